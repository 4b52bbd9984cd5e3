"""The no-widening check never misses a gain that trying every name of a small tree finds."""

import itertools
import warnings
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.scopes import OPERATIONS, Policy

NAMES = ("a", "b", ".k")
BELOW = ["".join(f"/{name}" for name in names) for depth in range(4) for names in itertools.product(NAMES, repeat=depth)]

PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda names: "".join(f"/{name}" for name in names))
PATTERNS = st.lists(st.sampled_from([*NAMES, "*", "**", "?", "a*", "*k", "**b"]), min_size=1, max_size=4).map(
    lambda names: "".join(f"/{name}" for name in names)
)
RULES = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["allow", "deny"]),
        "operations": st.lists(st.sampled_from(["*", "read", "write"]), min_size=1, max_size=2),
        "paths": st.lists(PATTERNS, min_size=1, max_size=2),
    }
)
RULE_SETS = st.fixed_dictionaries({"default": st.sampled_from(["allow", "deny"]), "rules": st.lists(RULES, max_size=4)})


def parse(rule_set: Any) -> Policy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Policy.parse({"fs": rule_set})


def gains(policy: Policy, source: str, target: str, below: list[str]) -> bool:
    return any(
        policy.decide("fs", operation, target + name).allowed and not policy.decide("fs", operation, source + name).allowed
        for operation in ("read", "write", "stat")
        for name in below
    )


@settings(max_examples=300)
@given(RULE_SETS, PATHS, PATHS)
def test_a_gain_below_a_directory_is_never_missed(rule_set: Any, source: str, target: str) -> None:
    policy = parse(rule_set)
    if gains(policy, source, target, BELOW):
        assert policy.widens(source, target, is_directory=True)


@given(RULE_SETS, PATHS, PATHS)
def test_the_answer_for_a_file_is_exact(rule_set: Any, source: str, target: str) -> None:
    policy = parse(rule_set)
    assert policy.widens(source, target, is_directory=False) == gains(policy, source, target, [""])


@given(RULE_SETS, PATHS)
def test_staying_in_place_widens_nothing(rule_set: Any, path: str) -> None:
    assert not parse(rule_set).widens(path, path, is_directory=True)


def test_the_three_operations_tried_stand_for_all() -> None:
    # Rules above name read, write or all; stat stands for every operation that only "*" names.
    assert {"read", "write", "stat"} <= set(OPERATIONS["fs"])
