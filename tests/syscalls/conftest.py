"""Runs the CASES of a module of this folder: compared with the bare host, and refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.syscalls.comparison import Comparison, operations
from tests.vm_fixtures import dynamic_probe, host_dir, probe

__all__ = ["dynamic_probe", "host_dir", "probe"]


class Answers(NamedTuple):
    """What one case gave in a VM that refuses nothing, and on the bare host."""

    vm: Any
    host: Any


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each case of the module, and one for each operation its cases are about."""
    cases = getattr(metafunc.module, "CASES", {})
    if "answers" in metafunc.fixturenames:
        metafunc.parametrize("answers", cases, indirect=True)
    if "operation" in metafunc.fixturenames:
        metafunc.parametrize("operation", operations(cases))


@pytest.fixture(scope="module")
def comparison(request: pytest.FixtureRequest) -> Comparison:
    return Comparison(request.module.CASES)


@pytest.fixture
def answers(request: pytest.FixtureRequest, comparison: Comparison) -> Answers:
    name: str = request.param
    return Answers(comparison.vm[name], comparison.host[name])
