"""What is slow to build and does not change is built by the first test process that asks for it, for all of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

#: Gives a folder by its name, filled by the first test process that asks for it.
BuiltOnce: TypeAlias = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> BuiltOnce:
    """A folder of that name, filled by the first test process that asks for it."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder_of(name: str, fill: Callable[[Path], object]) -> Path:
        folder = shared / name
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                folder.mkdir(exist_ok=True)
                fill(folder)
                (folder / "complete").touch()
        return folder

    return folder_of
