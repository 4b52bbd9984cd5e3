"""The explanation of a verdict names what decided it and why nothing else did."""

from typing import Any

import pytest

from callgate.scopes import CompiledRule, Policy
from callgate.scopes.rules import RULE_MOUNT

TWO_RULES = {
    "fs": {
        "default": "deny",
        "rules": [
            {"mode": "allow", "operations": ["read", "stat"], "paths": ["/a/**", "/b"]},
            {"mode": "deny", "operations": ["*"], "paths": ["/a/secret*"]},
        ],
    }
}
ONE_HOST = {"network": {"rules": [{"mode": "allow", "operations": ["http"], "patterns": ["x.example", "API.example.:443"]}]}}


@pytest.mark.parametrize(
    ("permissions", "request_", "expected"),
    [
        (
            TWO_RULES,
            ("fs", "read", "/a/x"),
            "read '/a/x' is allowed by fs.read: fs.rules[0] allows read, stat on path \"/a/**\", and no later rule matches.",
        ),
        (
            TWO_RULES,
            ("fs", "read", "/a/secret"),
            "read '/a/secret' is denied by fs.read:"
            ' fs.rules[1] denies every operation on path "/a/secret*", and it is the last rule.',
        ),
        (
            TWO_RULES,
            ("fs", "write", "/c"),
            "write '/c' is denied by fs.write: none of its 2 rules matches, so the default, \"deny\", applies.",
        ),
        (
            {"env": {}},
            ("env", "read", "HOME"),
            'env://HOME is denied by env.read: it has no rules, so the default, "deny", applies.',
        ),
        (
            {"network": "allow"},
            ("network", "dns", "x.example"),
            'dns://x.example is allowed by network.dns: the policy sets the whole network scope to "allow".',
        ),
        (
            {},
            ("network", "dns", "dns://x.example"),
            "dns://x.example is denied by network.dns: the policy says nothing about it,"
            ' and the secure default sets the whole network scope to "deny".',
        ),
        (
            ONE_HOST,
            ("network", "http", "tcp://api.EXAMPLE:443"),
            'tcp://api.example:443 is allowed by network.http: network.rules[0] allows http on pattern "API.example.:443",'
            " and it is the last rule.",
        ),
        (
            ONE_HOST,
            ("network", "http", "tcp://api.example:80"),
            'tcp://api.example:80 is denied by network.http: its one rule does not match, so the default, "deny", applies.',
        ),
    ],
)
def test_the_explanation(permissions: dict[str, Any], request_: tuple[str, str, str], expected: str) -> None:
    assert Policy.parse(permissions).explain(*request_) == expected


def test_a_rule_of_the_kernels_own_is_explained() -> None:
    policy = Policy.parse().with_rules(after=[CompiledRule(False, 2, RULE_MOUNT, ("/mnt/**",))])
    assert policy.explain("fs", "write", "/mnt/a") == "write '/mnt/a' is denied by fs.write: the path lies in a read-only mount."


def test_an_unknown_operation_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown operation"):
        Policy.parse().explain("fs", "open", "/a")
