"""What a policy says about a name before it is connected to, against asking about every port there is."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.kernel.egress.verdicts import NameVerdicts
from callgate.scopes import CompiledScope, Policy


def compiled(network: Any) -> CompiledScope:
    return Policy.parse({"network": network}).compiled()["network"]


def rule(mode: str, operations: list[str], *patterns: str) -> dict[str, Any]:
    return {"mode": mode, "operations": operations, "patterns": list(patterns)}


@pytest.mark.parametrize(
    ("network", "name", "lookup", "reachable"),
    [
        ("deny", "a.example", False, False),
        ("allow", "a.example", True, True),
        ({"rules": [rule("allow", ["*"], "a.example")]}, "a.example", True, True),
        ({"rules": [rule("allow", ["*"], "a.example")]}, "b.example", False, False),
        ({"rules": [rule("allow", ["*"], "a.example")]}, "a.example.b", False, False),
        ({"rules": [rule("allow", ["*"], "*.example")]}, "example", False, False),
        ({"rules": [rule("allow", ["*"], "A.Example.")]}, "a.example", True, True),
        ({"rules": [rule("allow", ["dns"], "a.example")]}, "a.example", True, False),
        ({"rules": [rule("allow", ["http"], "a.example:443")]}, "a.example", False, True),
        ({"rules": [rule("allow", ["http"], "udp://a.example:65535")]}, "a.example", False, True),
        ({"rules": [rule("allow", ["listen"], "*")]}, "a.example", False, False),
        ({"rules": [rule("allow", ["fetch"], "a.example")]}, "a.example", False, True),
        ({"rules": [rule("allow", ["http"], "a.example:8??"), rule("deny", ["http"], "*:8*")]}, "a.example", False, False),
        ({"rules": [rule("allow", ["http"], "*:80"), rule("deny", ["*"], "a.example")]}, "a.example", False, False),
        ({"default": "allow", "rules": [rule("deny", ["http", "fetch"], "*")]}, "a.example", True, False),
        ({"default": "allow", "rules": [rule("deny", ["dns"], "a.example")]}, "a.example", False, True),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::callgate.PolicyWarning")
def test_the_verdict_on_a_name(network: Any, name: str, lookup: bool, reachable: bool) -> None:
    assert NameVerdicts(compiled(network)).judge(name)[:2] == (lookup, reachable)


PORTS = st.sampled_from(["", ":80", ":443", ":8*", ":?", ":4?3", ":*", ":0", ":65535"])
HOSTS = st.sampled_from(["a.example", "*", "*.example", "b.example", "tcp://a.example", "udp://a.example", "?.example"])
RULES = st.lists(
    st.builds(
        lambda mode, operations, host, port: rule(mode, operations, host + port),
        st.sampled_from(["allow", "deny"]),
        st.lists(st.sampled_from(["http", "dns", "fetch"]), min_size=1, max_size=2, unique=True),
        HOSTS,
        PORTS,
    ),
    max_size=5,
)


@given(RULES, st.sampled_from(["allow", "deny"]))
@settings(max_examples=40)
@pytest.mark.filterwarnings("ignore::callgate.PolicyWarning")
def test_a_name_is_reachable_if_some_port_of_it_is(rules: list[dict[str, Any]], default: str) -> None:
    policy = Policy.parse({"network": {"default": default, "rules": rules}})
    # Enough ports for these patterns; that no other behaves differently is what is claimed of them.
    ports = [0, 1, 7, 9, 10, 79, 80, 81, 89, 403, 413, 443, 444, 800, 8080, 8443, 65535]
    reachable = any(
        policy.decide("network", operation, f"{scheme}://a.example:{port}").allowed
        for operation in ("http", "fetch")
        for scheme in ("tcp", "udp")
        for port in ports
    )
    verdict = NameVerdicts(policy.compiled()["network"]).judge("a.example")
    assert verdict.reachable == reachable
    assert verdict.lookup == policy.decide("network", "dns", "dns://a.example").allowed


def test_only_a_rule_that_names_a_host_speaks_of_what_a_name_is_an_alias_for() -> None:
    def alias(*rules: dict[str, Any], name: str = "cdn.example.net") -> int | None:
        return NameVerdicts(compiled({"default": "deny", "rules": list(rules)})).alias(name)

    allow = rule("allow", ["*"], "www.example.com")
    assert alias(allow) is None
    assert alias(rule("deny", ["*"], "*"), allow) is None
    assert alias(rule("deny", ["*"], "*:25"), allow) is None
    assert alias(rule("deny", ["*"], "cdn.example.net"), allow) == 0
    assert alias(allow, rule("deny", ["dns"], "*.example.net")) == 1
    assert alias(allow, rule("deny", ["http"], "*.example.net")) is None
    assert alias(rule("deny", ["*"], "*.example.net"), rule("allow", ["dns"], "cdn.*")) is None


def test_names_that_many_rules_with_ports_speak_of_are_judged_at_once() -> None:
    """A guest chooses which of them speak of a name; no choice may keep the thread that serves every VM for long."""
    letters = "abcdefghijklmnopqrstuvwx"
    patterns = [f"*{letter}*.example:{place}0??" for place, letter in enumerate(letters, 10)]
    verdicts = NameVerdicts(compiled({"default": "deny", "rules": [rule("allow", ["http"], pattern) for pattern in patterns]}))
    begun = time.process_time()
    for number in range(1, 60):
        name = "z" + "".join(letter for place, letter in enumerate(letters) if number * 0x9E3779B1 >> place & 1)
        assert verdicts.judge(f"{name}.example")[:2] == (False, len(name) > 1)
    assert time.process_time() - begun < 10
