"""The Python evaluator gives every verdict of decisions.json."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate.scopes import Policy

CORPUS: dict[str, Any] = json.loads(Path(__file__).with_name("decisions.json").read_text())


def cases_of(policy: str) -> Iterator[dict[str, Any]]:
    return (case for case in CORPUS["cases"] if case["policy"] == policy)


def test_the_corpus_is_complete() -> None:
    assert len(CORPUS["cases"]) == 4181
    assert {case["policy"] for case in CORPUS["cases"]} == set(CORPUS["policies"])


@pytest.mark.parametrize("name", CORPUS["policies"])
def test_every_case_has_its_verdict_and_its_rule(name: str) -> None:
    policy = Policy.parse(CORPUS["policies"][name])
    wrong = []
    for case in cases_of(name):
        verdict = policy.decide(case["scope"], case["operation"], case["subject"])
        if (verdict.allowed, verdict.rule) != (case["allowed"], case["rule"]):
            wrong.append((case, verdict))
    assert not wrong


@pytest.mark.parametrize("name", CORPUS["policies"])
def test_a_constant_operation_has_the_same_verdict_in_every_case(name: str) -> None:
    compiled = Policy.parse(CORPUS["policies"][name]).compiled()
    for case in cases_of(name):
        constant = compiled[case["scope"]].constant(case["operation"])
        assert constant in (None, case["allowed"]), case
