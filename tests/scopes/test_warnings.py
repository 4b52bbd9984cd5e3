"""A rule that can never match or never matter is pointed out; every rule that does something is left alone."""

import warnings
from typing import Any

import pytest

from callgate.scopes import Policy, PolicyWarning


def warnings_of(permissions: dict[str, Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Policy.parse(permissions)
    assert all(warning.category is PolicyWarning for warning in caught)
    return [str(warning.message) for warning in caught]


def rule_set(scope: str, default: str, *rules: tuple[str, list[str], list[str]]) -> dict[str, Any]:
    key = "paths" if scope == "fs" else "patterns"
    return {scope: {"default": default, "rules": [{"mode": m, "operations": o, key: p} for m, o, p in rules]}}


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        (
            rule_set("process", "allow", ("deny", ["*"], ["kil"])),
            'process.rules[0].patterns[0]: can never match: "kil" is not an action',
        ),
        (rule_set("process", "allow", ("deny", ["*"], ["kill:x"])), '"x" is not a process id'),
        (rule_set("process", "allow", ("deny", ["*"], ["kill:042"])), '"042" is not a process id'),
        (rule_set("env", "allow", ("deny", ["*"], ["A=1"])), "patterns match the name alone"),
        (rule_set("childProcess", "allow", ("deny", ["*"], ["bin/git"])), 'write "/..." or "**/..."'),
        (rule_set("network", "deny", ("allow", ["http"], ["dns://a"])), "is the subject of dns alone, not of http"),
        (rule_set("network", "deny", ("allow", ["dns"], ["tcp://a:1"])), 'dns is judged as "dns://host"'),
    ],
)
def test_a_pattern_that_can_never_match(permissions: dict[str, Any], expected: str) -> None:
    (message,) = warnings_of(permissions)
    assert expected in message


def test_a_pattern_that_can_never_match_beside_one_that_can() -> None:
    (message,) = warnings_of(rule_set("env", "allow", ("deny", ["*"], ["A", "B=1"])))
    assert message.startswith("env.rules[0].patterns[1]: can never match")


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        (rule_set("fs", "allow", ("allow", ["*"], ["/a"])), 'fs.rules[0]: can never matter: it repeats the default, "allow"'),
        (rule_set("env", "deny", ("deny", ["read"], ["A"]), ("allow", ["*"], ["B"])), "env.rules[0]: can never matter"),
        (rule_set("env", "deny", ("allow", ["write"], ["B"]), ("deny", ["read"], ["A"])), "env.rules[1]: can never matter"),
        (rule_set("fs", "deny", ("allow", ["read"], ["/a/b"]), ("deny", ["*"], ["/a/**"])), "matched again by rules[1]"),
        (rule_set("fs", "deny", ("allow", ["read"], ["/a"]), ("allow", ["*"], ["*"])), "matched again by rules[1]"),
        (
            rule_set("fs", "deny", ("allow", ["read", "stat"], ["/a"]), ("deny", ["read"], ["/a"]), ("deny", ["stat"], ["/**"])),
            "matched again by rules[1], rules[2]",
        ),
        (rule_set("network", "deny", ("allow", ["*"], ["a.example"]), ("deny", ["*"], ["*"])), "matched again by rules[1]"),
    ],
)
def test_a_rule_that_can_never_matter(permissions: dict[str, Any], expected: str) -> None:
    assert [message for message in warnings_of(permissions) if expected in message]


@pytest.mark.parametrize(
    "permissions",
    [
        {},
        {"fs": "deny", "network": "allow"},
        {"env": {}},
        rule_set("fs", "allow", ("deny", ["*"], ["/home/agentos/vault/**"])),
        rule_set("fs", "deny", ("allow", ["*"], ["/w/**"]), ("deny", ["write"], ["/w/x"]), ("allow", ["write"], ["/w/x/*"])),
        rule_set("fs", "deny", ("allow", ["read"], ["/a/b"]), ("deny", ["write"], ["/a/**"])),
        # takes paths out of the runtime image
        rule_set("fs", "deny", ("deny", ["*"], ["/usr/lib/python3/**"])),
        # says that a local address is meant
        rule_set("network", "allow", ("allow", ["*"], ["127.0.0.1"])),
        # ptrace wants an explicit allow
        rule_set("process", "allow", ("allow", ["*"], ["ptrace"])),
        rule_set("childProcess", "deny", ("allow", ["spawn"], ["git", "**/sh"]), ("deny", ["*"], ["/tmp/**"])),
    ],
)
def test_rules_that_do_something_are_left_alone(permissions: dict[str, Any]) -> None:
    assert warnings_of(permissions) == []


def test_the_warning_points_at_the_caller() -> None:
    with pytest.warns(PolicyWarning) as caught:
        Policy.parse(rule_set("fs", "allow", ("allow", ["*"], ["/a"])))
    assert caught[0].filename == __file__
