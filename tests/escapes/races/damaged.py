"""Supervisors with a mistake put in, to show that a test would notice it."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from callgate.kernel.launch import Supervisor

NATIVE: Final = Path(__file__).resolve().parents[3] / "kernel" / "native"


#: By file name, a text of the product's and the mistake in its place.
Mistakes: TypeAlias = Mapping[str, tuple[str, str]]


def build_supervisor(folder: Path, native: Path = NATIVE) -> Path:
    """The supervisor of these sources, made in *folder* by the product's own build steps; where it lies."""
    spec = importlib.util.spec_from_file_location("native_build", native / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    supervisor = folder / "supervisor"
    build.build_executable(supervisor, folder / "objects")
    return supervisor


def damaged_sources(folder: Path, mistakes: Mistakes) -> Path:
    """A copy of the native sources, below *folder*, with mistakes; the files keep their times, but for those."""
    native = folder / "kernel" / "native"
    shutil.copytree(NATIVE, native)
    for name, (sound, mistake) in mistakes.items():
        text = (native / name).read_text()
        assert sound in text
        (native / name).write_text(text.replace(sound, mistake))
    return native


def build_damaged(folder: Path, mistakes: Mistakes, sound: Path) -> Path:
    """A supervisor with mistakes, made in *folder*; where it lies. *sound* is where one without them was made."""
    shutil.copytree(sound / "objects", folder / "objects")
    return build_supervisor(folder, damaged_sources(folder, mistakes))


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
