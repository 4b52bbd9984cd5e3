"""The effective policy: merged over the secure default, read once, and what follows from each of its forms."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from callgate.scopes import OPERATIONS, SCOPES, CompiledRule, Permissions, Policy, PolicyWarning
from callgate.scopes.operations import operation_mask
from callgate.scopes.rules import RULE_DEVICE, RULE_MODE, RULE_MOUNT, RULE_RUNTIME_IMAGE

BASELINE = {"fs": "allow", "network": "deny", "childProcess": "allow", "process": "allow", "env": "allow", "binding": "deny"}

DENY_VAULT: Permissions = {
    "fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/home/agentos/vault/**"]}]}
}
ALLOW_ONE_HOST: Permissions = {
    "network": {"default": "deny", "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["api.example.com"]}]}
}
ALLOW_ONE_BINDING: Permissions = {
    "binding": {"default": "deny", "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["add"]}]}
}


def rules(*written: tuple[str, list[str], list[str]], default: str = "deny") -> dict[str, Any]:
    return {"fs": {"default": default, "rules": [{"mode": m, "operations": o, "paths": p} for m, o, p in written]}}


def test_there_are_exactly_six_scopes() -> None:
    assert SCOPES == ("fs", "network", "childProcess", "process", "env", "binding")


def test_scopes_and_operations_are_numbered_as_in_the_protocol_header() -> None:
    header = (Path(__file__).parents[2] / "kernel/native/protocol.h").read_text()

    def enum(name: str, prefix: str) -> list[str]:
        body = header.split(f"enum {name} {{")[1].split("}")[0]
        return [word.strip().removeprefix(prefix) for word in body.split(",")]

    assert enum("cg_scope", "CG_SCOPE_")[:-1] == ["FS", "NETWORK", "CHILD_PROCESS", "PROCESS", "ENV", "BINDING"]
    assert enum("cg_fs_operation", "CG_FS_OP_")[:-1] == [name.upper() for name in OPERATIONS["fs"]]
    assert enum("cg_network_operation", "CG_NET_OP_") == [name.upper() for name in OPERATIONS["network"]]


@pytest.mark.parametrize("permissions", [None, {}])
def test_no_policy_is_the_secure_default(permissions: Permissions | None) -> None:
    assert Policy.parse(permissions).as_dict() == BASELINE


def test_an_omitted_scope_keeps_its_default_and_a_given_one_replaces_it_whole() -> None:
    assert Policy.parse({"network": "allow"}).as_dict() == {**BASELINE, "network": "allow"}
    assert Policy.parse(ALLOW_ONE_HOST).as_dict() == {**BASELINE, **ALLOW_ONE_HOST}


def test_registering_bindings_allows_them_unless_the_policy_speaks_of_them() -> None:
    assert Policy.parse({}, has_bindings=True).as_dict() == {**BASELINE, "binding": "allow"}
    assert Policy.parse({"binding": "deny"}, has_bindings=True).as_dict()["binding"] == "deny"
    gated = Policy.parse(ALLOW_ONE_BINDING, has_bindings=True)
    assert gated.decide("binding", "*", "add").allowed
    assert not gated.decide("binding", "*", "rm").allowed


def test_what_is_left_out_of_a_rule_set_is_filled_in() -> None:
    policy = Policy.parse({"env": {"default": "allow", "rules": [{"mode": "deny"}]}, "fs": {}})
    assert policy.as_dict()["env"] == {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "patterns": ["**"]}]}
    assert policy.as_dict()["fs"] == {"default": "deny", "rules": []}


def test_single_scope_policies_combine_by_spreading() -> None:
    policy = Policy.parse({**DENY_VAULT, **ALLOW_ONE_HOST, **ALLOW_ONE_BINDING})
    assert not policy.decide("fs", "read", "/home/agentos/vault/key").allowed
    assert not policy.decide("fs", "readdir", "/home/agentos/vault").allowed
    assert policy.decide("fs", "read", "/home/agentos/x").allowed
    assert policy.decide("network", "http", "tcp://api.example.com:443").allowed
    assert not policy.decide("network", "dns", "dns://other.example.com").allowed
    assert policy.decide("binding", "*", "add").allowed


def test_changing_the_dict_later_changes_nothing() -> None:
    permissions: dict[str, Any] = rules(("allow", ["read"], ["/a"]))
    policy = Policy.parse(permissions)
    before = json.dumps(policy.as_dict())
    permissions["fs"]["rules"][0]["paths"].append("/secret")
    permissions["fs"]["rules"].append({"mode": "allow"})
    permissions["network"] = "allow"
    policy.as_dict()["fs"]["rules"].clear()
    assert json.dumps(policy.as_dict()) == before
    assert not policy.decide("fs", "read", "/secret").allowed


def test_the_effective_policy_parses_to_an_equal_policy() -> None:
    policy = Policy.parse({**DENY_VAULT, **ALLOW_ONE_HOST})
    again = Policy.parse(json.loads(json.dumps(policy.as_dict())))
    assert again == policy
    assert hash(again) == hash(policy)
    assert Policy.parse({}) != policy


def test_a_policy_survives_pickling_and_cannot_be_changed() -> None:
    policy = Policy.parse(DENY_VAULT)
    assert pickle.loads(pickle.dumps(policy)) == policy
    with pytest.raises(AttributeError):
        policy._compiled = ()  # type: ignore[misc]  # pyright: ignore
    with pytest.raises(TypeError):
        policy.compiled()["fs"] = policy.compiled()["env"]  # type: ignore[index]  # pyright: ignore


def test_the_last_matching_rule_wins() -> None:
    first, second = ("allow", ["read"], ["/a/**"]), ("deny", ["read"], ["/a/b*"])
    assert Policy.parse(rules(first, second)).decide("fs", "read", "/a/b").rule == 1
    assert not Policy.parse(rules(first, second)).decide("fs", "read", "/a/b").allowed
    swapped = Policy.parse(rules(("deny", ["read"], ["/a/b*"]), ("allow", ["read"], ["/a/*"])))
    assert swapped.decide("fs", "read", "/a/b").allowed


def test_a_rule_matches_only_with_both_its_operation_and_its_pattern() -> None:
    policy = Policy.parse(rules(("allow", ["read"], ["/a"])))
    assert policy.decide("fs", "read", "/a").rule == 0
    assert policy.decide("fs", "write", "/a").rule == "default"
    assert policy.decide("fs", "read", "/b").rule == "default"


def test_a_bare_mode_is_reported_as_mode() -> None:
    verdict = Policy.parse({"fs": "deny"}).decide("fs", "read", "/a")
    assert (verdict.allowed, verdict.rule) == (False, "mode")
    assert verdict.message == "EACCES: permission denied, read '/a': blocked by fs.read policy"


@pytest.mark.parametrize(
    ("scope", "operation", "hint"),
    [("fs", "raed", 'did you mean "read"'), ("file", "read", "the scopes are fs"), ("process", "kill", "its operations are *")],
)
def test_an_unknown_scope_or_operation_is_an_error_with_a_hint(scope: str, operation: str, hint: str) -> None:
    with pytest.raises(ValueError) as caught:
        Policy.parse().decide(scope, operation, "x")
    assert hint in str(caught.value)


IMAGE = CompiledRule(True, operation_mask("fs", ["read", "stat", "readdir", "readlink"]), RULE_RUNTIME_IMAGE, ("/usr/lib/**",))
READ_ONLY = CompiledRule(False, operation_mask("fs", ["write", "rm"]), RULE_MOUNT, ("/mnt/**",))
DEVICE = CompiledRule(True, operation_mask("fs", ["*"]), RULE_DEVICE, ("/dev/null",))


def test_the_runtime_image_stands_before_the_users_rules() -> None:
    policy = Policy.parse({"fs": {"rules": [{"mode": "deny", "paths": ["/usr/lib/secret"]}]}}).with_rules(before=[IMAGE])
    assert policy.decide("fs", "read", "/usr/lib/libc.so.6").rule == "runtime image"
    assert not policy.decide("fs", "write", "/usr/lib/libc.so.6").allowed
    assert policy.decide("fs", "read", "/usr/lib/secret").rule == 0
    assert not policy.decide("fs", "read", "/usr/lib/secret").allowed


def test_a_bare_mode_with_kernel_rules_is_still_reported_as_mode() -> None:
    policy = Policy.parse({"fs": "deny"}).with_rules(before=[IMAGE], after=[DEVICE])
    assert policy.decide("fs", "read", "/etc/hostname").rule == "mode"
    assert policy.decide("fs", "write", "/dev/null").rule == "device"
    assert policy.compiled()["fs"].default_rule == RULE_MODE
    assert policy.as_dict()["fs"] == "deny"


def test_kernel_rules_after_the_users_win_over_them() -> None:
    policy = Policy.parse(rules(("allow", ["*"], ["/mnt/**"]))).with_rules(after=[READ_ONLY])
    assert policy.decide("fs", "write", "/mnt/a").rule == "mount"
    assert policy.decide("fs", "read", "/mnt/a").rule == 0


def test_kernel_rules_of_one_scope_leave_the_others_alone() -> None:
    plain = Policy.parse(ALLOW_ONE_HOST)
    with_rules = plain.with_rules(before=[IMAGE])
    assert {s: c for s, c in with_rules.compiled().items() if s != "fs"} == {
        s: c for s, c in plain.compiled().items() if s != "fs"
    }


@pytest.mark.parametrize(
    ("permissions", "operation", "expected"),
    [
        ({"fs": "allow"}, "read", True),
        ({"fs": "deny"}, "read", False),
        (DENY_VAULT, "read", None),
        (rules(("allow", ["read"], ["/a"])), "write", False),
        (rules(("deny", ["write"], ["*"]), default="allow"), "write", False),
        (rules(("deny", ["write"], ["*"]), default="allow"), "read", True),
        (rules(("deny", ["read"], ["/a"]), ("allow", ["read"], ["/b"]), default="allow"), "read", None),
        (rules(("allow", ["write"], ["/a"]), ("deny", ["*"], ["/b"]), default="deny"), "stat", False),
    ],
)
def test_constant_tells_when_the_subject_does_not_matter(permissions: Any, operation: str, expected: bool | None) -> None:
    assert Policy.parse(permissions).compiled()["fs"].constant(operation) is expected


def test_everything_after_the_last_rule_on_everything_decides_constancy() -> None:
    with pytest.warns(PolicyWarning, match="matched again"):
        policy = Policy.parse(
            rules(("deny", ["read"], ["/a"]), ("deny", ["read", "stat"], ["**"]), ("deny", ["read"], ["/b"]), default="allow")
        )
    assert policy.compiled()["fs"].constant("read") is False
