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


@pytest.mark.parametrize(
    ("scope", "operation", "subject", "says"),
    [
        ("fs", "read", "vault/key", '"vault/key" is not an absolute path'),
        ("fs", "read", "./key", "not an absolute path"),
        ("fs", "read", "/work/../home/key", "holds '..'"),
        ("fs", "read", "", "the subject is empty; it is an absolute path"),
        ("network", "http", "example.com", 'has no port; write host:port, for example "example.com:443"'),
        ("network", "http", "tcp://example.com", "has no port"),
        ("network", "listen", "127.0.0.1", "has no port"),
        ("network", "fetch", "::1", "has no port"),
        ("network", "http", "https://example.com/", "write host:port"),
        ("network", "http", "https://example.com:443", "write host:port"),
        ("network", "http", "example.com:443/path", "holds a path; write host:port"),
        ("network", "http", "dns://example.com", "write host:port"),
        ("network", "http", "example.com:https", '"https" is not a port'),
        ("network", "http", "example.com:65536", "is not a port"),
        ("network", "http", "example.com:", "is not a port"),
        ("network", "http", ":80", "names no host"),
        ("network", "http", "[::1", '"[address]:port"'),
        ("network", "dns", "tcp://example.com:80", "write the host alone"),
        ("network", "dns", "example.com:53", "a name lookup has no port"),
        ("childProcess", "spawn", "", "the subject is empty; it is the name or the path of a program"),
        ("process", "*", "", "the subject is empty; it is an action"),
        ("env", "read", "", "the subject is empty; it is the name of a variable"),
        ("binding", "*", "", "the subject is empty; it is the name of a binding"),
    ],
)
def test_what_could_be_the_subject_of_nothing_gets_no_verdict(scope: str, operation: str, subject: str, says: str) -> None:
    policy = Policy.parse({scope: "allow"})
    for ask in (policy.decide, policy.explain):
        with pytest.raises(ValueError) as caught:
            ask(scope, operation, subject)
        assert says in str(caught.value)
    assert policy.judge(scope, operation, subject).allowed  # a guest that names it is judged as ever


@pytest.mark.parametrize(
    ("scope", "operation", "subject", "judged"),
    [
        ("fs", "read", "/vault//./key/", "read '/vault/key'"),
        ("fs", "read", "/", "read '/'"),
        ("fs", "read", "/..x/y..", "read '/..x/y..'"),
        ("network", "http", "EXAMPLE.com.:443", "tcp://example.com:443"),
        ("network", "http", "udp://[::1]:53", "udp://[::1]:53"),
        ("network", "listen", "0.0.0.0:0", "tcp://0.0.0.0:0"),
        ("network", "dns", "dns://example.com", "dns://example.com"),
        ("network", "dns", "example.com.", "dns://example.com"),
    ],
)
def test_a_subject_is_told_in_the_spelling_that_is_judged(scope: str, operation: str, subject: str, judged: str) -> None:
    assert Policy.parse({scope: "allow"}).decide(scope, operation, subject).message.startswith(f"{judged}: allowed")
