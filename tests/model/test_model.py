"""Random calls on random trees under random policies: verdicts, errnos and trees of a VM are those of a model in plain Python.

Kept apart by the kind of policy, so that a failure says what it is about.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.model.execution import difference, in_model, in_vm
from tests.model.lookup import Found
from tests.model.machine import Machine
from tests.model.scenarios import FAMILIES, Call, Scenario, scenarios

pytestmark = pytest.mark.vm

# Shrinking runs hundreds of VMs for many minutes; dropping the calls that do not matter says as much.
PHASES = [Phase.generate]
SLOW_TO_MAKE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def assert_equal(scenario: Scenario) -> None:
    """The VM does what the model does."""
    if found := _difference(scenario):
        shorter, found = _without_needless_calls(scenario, found)
        pytest.fail(f"policy {shorter.fs}\ntree {shorter.spec}\n{found}", pytrace=False)


def _difference(scenario: Scenario) -> str:
    return difference(scenario, in_model(scenario), in_vm(scenario))


def _without_needless_calls(scenario: Scenario, found: str) -> tuple[Scenario, str]:
    for number in reversed(range(len(scenario.calls))):
        shorter = scenario._replace(calls=scenario.calls[:number] + scenario.calls[number + 1 :])
        if still := _difference(shorter):
            scenario, found = shorter, still
    return scenario, found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_vm_does_what_the_model_does(family: str) -> None:
    _compare(family, examples=40, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_vm_does_what_the_model_does_at_length(family: str) -> None:
    _compare(family, examples=120, derandomize=False)


def _compare(family: str, examples: int, *, derandomize: bool) -> None:
    @settings(max_examples=examples, derandomize=derandomize, suppress_health_check=SLOW_TO_MAKE, phases=PHASES)
    @given(scenarios(family))
    def compare(scenario: Scenario) -> None:
        assert_equal(scenario)

    compare()


class Blind(Machine):
    """A model with one wrong verdict: it takes what is denied to be read as allowed."""

    def allows(self, operation: str, path: str) -> bool:
        return operation == "read" or super().allows(operation, path)


class Widening(Machine):
    """A model that forgets what a rename may give to the object."""

    def _judge_widening(self, source: Found, target: Found) -> None:
        pass


def _denied_below_b(*operations: str) -> dict[str, Any]:
    return {"default": "allow", "rules": [{"mode": "deny", "operations": list(operations), "paths": ["/w/b/**"]}]}


@pytest.mark.parametrize(
    ("wrong", "fs", "calls"),
    [
        (Blind, _denied_below_b("*"), [("stat", "a"), ("open", "b/c", 0, b"")]),
        (Widening, _denied_below_b("read"), [("rename", "b/c", "c", 0)]),
    ],
)
def test_one_wrong_verdict_of_the_model_would_be_noticed(wrong: type[Machine], fs: dict[str, Any], calls: list[Call]) -> None:
    scenario = Scenario(fs, {"a": b"", "b": {"c": b"content"}}, tuple(calls))
    vm = in_vm(scenario)
    assert difference(scenario, in_model(scenario), vm) == ""
    mistaken = in_model(scenario, wrong)
    assert mistaken.answers[-1] != vm.answers[-1] == "EACCES"
    assert difference(scenario, mistaken, vm)
