"""Supervisors built with sanitizers, put in the place of the ordinary one for the time of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from callgate.kernel.launch import Supervisor

HERE: Final = Path(__file__).resolve().parent
NATIVE: Final = HERE.parents[1] / "kernel" / "native"


class SanitizerReport(AssertionError):
    """What the sanitizers said of a supervisor."""


class Sanitized:
    """One such supervisor, and the file that its reports go to."""

    def __init__(self, folder: Path, reports_in: Path) -> None:
        self.kind = folder.name
        self._launcher = reports_in / "launcher"
        self._reports = reports_in / "reports"
        self._reports.touch()
        definitions = [f'-DPROGRAM="{folder / "supervisor"}"', f'-DREPORTS="{self._reports}"']
        command = ["gcc", "-O1", "-Wall", "-Wextra", *definitions, str(HERE / "sanitized_launcher.c"), "-o", str(self._launcher)]
        subprocess.run(command, check=True)

    @staticmethod
    def build(kind: str, folder: Path, native: Path = NATIVE) -> None:
        """Make the supervisor of *native* with `-fsanitize=kind` in *folder*, by the product's own build steps.

        Objects that lie there, of files that have not changed, are used again.
        """
        program = (
            "import importlib.util, pathlib, sys\n"
            "spec = importlib.util.spec_from_file_location('native_build', sys.argv[1])\n"
            "build = importlib.util.module_from_spec(spec)\n"
            "spec.loader.exec_module(build)\n"
            "folder = pathlib.Path(sys.argv[2])\n"
            "build.build_executable(folder / 'supervisor', folder / 'objects')\n"
        )
        environment = os.environ | {"CALLGATE_SANITIZE": kind}
        command = [sys.executable, "-B", "-c", program, str(native / "build.py"), str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the supervisor with -fsanitize={kind} cannot be built:\n{done.stderr}")

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """VMs made meanwhile have this supervisor; what its sanitizers report is raised at the end."""
        start_method: Any = Supervisor.start
        defaults = start_method.__func__.__kwdefaults__  # the only place where it is said: the product has no setting for it
        before, start = defaults["executable"], self._reports.stat().st_size
        defaults["executable"] = self._launcher
        try:
            yield
        finally:
            defaults["executable"] = before
        if reports := self._reports.read_bytes()[start:]:
            raise SanitizerReport(reports.decode(errors="replace"))
