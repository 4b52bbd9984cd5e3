"""Supervisors with a mistake put in, to show that a test would notice it."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from callgate.kernel.launch import Supervisor

NATIVE: Final = Path(__file__).resolve().parents[3] / "kernel" / "native"


def build_damaged(folder: Path, mistakes: Mapping[str, tuple[str, str]]) -> Path:
    """A supervisor whose sources have a text replaced by another, by file name; where it lies."""
    native = folder / "kernel" / "native"
    shutil.copytree(NATIVE, native)
    for name, (sound, mistake) in mistakes.items():
        text = (native / name).read_text()
        assert sound in text
        (native / name).write_text(text.replace(sound, mistake))
    spec = importlib.util.spec_from_file_location("native_build", native / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    supervisor = folder / "supervisor"
    build.build_executable(supervisor, folder / "objects")
    return supervisor


@contextmanager
def in_place(supervisor: Path) -> Iterator[None]:
    """VMs made meanwhile have this supervisor; the product has no setting for it."""
    start_method: Any = Supervisor.start
    defaults = start_method.__func__.__kwdefaults__
    before = defaults["executable"]
    defaults["executable"] = supervisor
    try:
        yield
    finally:
        defaults["executable"] = before
