"""Random calls on random trees under random policies: a VM gives the verdicts, errnos and trees that a model in plain Python gives.

Kept apart by the kind of policy, so that a failure says what it is about.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, find, given, note, settings
from hypothesis import strategies as st

from tests.model.execution import difference, in_model, in_vm
from tests.model.machine import Machine
from tests.model.scenarios import FAMILIES, Scenario, scenarios

pytestmark = pytest.mark.vm

SLOW_TO_MAKE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def assert_equal(scenario: Scenario) -> None:
    """The VM does what the model does."""
    model, vm = in_model(scenario), in_vm(scenario)
    found = difference(scenario, model, vm)
    note(f"policy {scenario.fs}\ntree {scenario.spec}\n{found}")
    assert not found, f"policy {scenario.fs}\ntree {scenario.spec}\n{found}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_vm_does_what_the_model_does(family: str) -> None:
    _compare(family, examples=40)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_vm_does_what_the_model_does_at_length(family: str) -> None:
    _compare(family, examples=600)


def _compare(family: str, examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=SLOW_TO_MAKE)
    @given(scenarios(family))
    def compare(scenario: Scenario) -> None:
        assert_equal(scenario)

    compare()
