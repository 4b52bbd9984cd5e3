"""What is said beforehand of a local address is what the supervisor does."""

from __future__ import annotations

import pytest

from callgate.kernel.egress.guard import with_guard
from callgate.scopes import Policy

OPEN = Policy.parse({"network": "allow"})


@pytest.mark.parametrize(
    "subject",
    ["tcp://10.0.0.1:80", "10.0.0.1:80", "udp://169.254.169.254:80", "tcp://[fe80::1]:80", "tcp://[64:ff9b::a00:1]:80", "tcp://0.1.2.3:80"],
)  # fmt: skip
def test_a_local_address_is_refused_under_a_bare_allow(subject: str) -> None:
    verdict = with_guard(OPEN, "network", "http", subject)
    assert (verdict.allowed, verdict.rule) == (False, "local address")
    assert verdict.message.endswith("blocked by network.http policy")


@pytest.mark.parametrize(
    "subject", ["tcp://127.0.0.1:80", "tcp://[::1]:80", "tcp://192.0.2.1:80", "tcp://host.example:80", "tcp://[2606::1]:1"]
)
def test_the_vms_own_loopback_names_and_other_addresses_are_as_the_policy_says(subject: str) -> None:
    assert with_guard(OPEN, "network", "http", subject).rule == "mode"


def test_a_rule_that_names_the_address_lifts_the_guard() -> None:
    policy = Policy.parse({"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": ["10.*"]}]}})
    assert with_guard(policy, "network", "http", "10.0.0.1:80").allowed
    assert with_guard(policy, "network", "http", "11.0.0.1:80").rule == "default"


def test_other_operations_and_scopes_know_no_guard() -> None:
    assert with_guard(OPEN, "network", "listen", "tcp://10.0.0.1:80").allowed
    assert with_guard(OPEN, "fs", "read", "/etc/passwd").allowed
