"""Compiles the C programs of benchmarks/programs, each once and only when it is asked for."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).with_name("programs")
_OPTIONS: Final = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")


class NativePrograms:
    """The programs by name, kept in a folder of the caller's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Path:
        """The compiled program; static where the host has a static C library, so that it starts in any VM.

        KeyError for a name without a source, `subprocess.CalledProcessError` if the compiler refuses it.
        """
        source, program = SOURCES / f"{name}.c", self._folder / name
        if not source.is_file():
            raise KeyError(name)
        if not program.exists():
            command = [*shlex.split(os.environ.get("CC", "gcc")), *_OPTIONS, str(source), "-o", str(program)]
            if subprocess.run([*command, "-static"], capture_output=True, check=False).returncode != 0:
                subprocess.run(command, check=True)
        return program
