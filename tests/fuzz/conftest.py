"""What tests of this folder build once for all test processes: fuzz targets, and supervisors with sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.built_once import BuiltOnce
from tests.fuzz import targets
from tests.fuzz.sanitized import Sanitized


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
