"""What tests of this folder build once for all test processes: fuzz targets, and supervisors with sanitizers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.fuzz import targets
from tests.fuzz.sanitized import Sanitized

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


@pytest.fixture(scope="session")
def fuzz_targets(built_once: BuiltOnce) -> Path:
    """The folder with all targets and their object files."""
    return built_once("fuzz-targets", lambda folder: targets.build(targets.TARGETS, folder))


@pytest.fixture(scope="session", params=["address,undefined", "thread"])
def sanitized(
    request: pytest.FixtureRequest,
    built_once: BuiltOnce,
    tmp_path_factory: pytest.TempPathFactory,
) -> Sanitized:
    """A supervisor with each set of sanitizers."""
    kind: str = request.param
    folder = built_once(kind, lambda folder: Sanitized.build(kind, folder))
    return Sanitized(folder, tmp_path_factory.mktemp("reports"))
