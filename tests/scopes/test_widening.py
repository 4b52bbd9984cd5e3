"""Which renames the policy cannot tell apart, and which would bring something into reach (LEDGER A6)."""

from typing import Any

import pytest

from callgate.scopes import Policy


def fs(default: str, *rules: tuple[str, list[str], list[str]]) -> Policy:
    written: list[dict[str, Any]] = [{"mode": m, "operations": o, "paths": p} for m, o, p in rules]
    return Policy.parse({"fs": {"default": default, "rules": written}})


VAULT = fs("allow", ("deny", ["*"], ["/home/agentos/vault/**"]))
DOTFILES = fs("allow", ("deny", ["*"], ["/**/.env", "/**/.ssh/**"]))
ONLY_DATA = fs("deny", ("allow", ["read", "stat"], ["/data/**"]))
LAYERED = fs(
    "deny", ("allow", ["*"], ["/w/**"]), ("deny", ["write", "rm"], ["/w/lock/**"]), ("allow", ["write"], ["/w/lock/tmp/*"])
)


@pytest.mark.parametrize(
    ("policy", "source", "target"),
    [
        (Policy.parse(), "/a", "/b"),
        (Policy.parse({"fs": "deny"}), "/a", "/b"),
        (VAULT, "/tmp/a", "/home/agentos/b"),
        (VAULT, "/tmp/a", "/home/agentos/vault/a"),
        (VAULT, "/home/agentos/vault/a", "/home/agentos/vault/b/c"),
        (DOTFILES, "/tmp/a", "/home/b"),
        (DOTFILES, "/tmp/.env", "/home/.env"),
        (DOTFILES, "/tmp/a", "/home/.ssh/b"),
        (ONLY_DATA, "/data/a", "/data/b/c"),
        (ONLY_DATA, "/data/a", "/tmp/a"),
        (ONLY_DATA, "/etc/a", "/tmp/b"),
        (LAYERED, "/w/a", "/w/b/c"),
        (LAYERED, "/w/a", "/w/lock/a"),
        (fs("allow", ("deny", ["*"], ["/tmp/*"])), "/home/a", "/srv/b"),
    ],
)
def test_a_rename_between_places_that_no_rule_tells_apart_is_equal(policy: Policy, source: str, target: str) -> None:
    assert not policy.widens(source, target, is_directory=True)
    assert not policy.widens(source, target, is_directory=False)


@pytest.mark.parametrize(
    ("policy", "source", "target"),
    [
        (VAULT, "/home/agentos/vault", "/home/agentos/v"),
        (VAULT, "/home/agentos/vault/key", "/tmp/key"),
        (DOTFILES, "/tmp/.env", "/tmp/env"),
        (DOTFILES, "/root/.ssh", "/root/ssh"),
        (ONLY_DATA, "/etc/passwd", "/data/passwd"),
        (LAYERED, "/w/lock/a", "/w/a"),
        (LAYERED, "/w/lock/a", "/w/lock/tmp/a"),
    ],
)
def test_a_rename_that_gives_the_object_itself_an_operation_widens(policy: Policy, source: str, target: str) -> None:
    assert policy.widens(source, target, is_directory=True)
    assert policy.widens(source, target, is_directory=False)


@pytest.mark.parametrize(
    ("policy", "source", "target"),
    [
        (VAULT, "/home/agentos", "/tmp/me"),
        (VAULT, "/home", "/tmp/home"),
        (fs("allow", ("deny", ["*"], ["/a/*/secret"])), "/a", "/b"),
        (fs("allow", ("deny", ["*"], ["/a/**/.key"])), "/a/x", "/b/x"),
        (LAYERED, "/w/lock", "/w/open"),
    ],
)
def test_moving_a_directory_away_from_the_rule_on_what_is_below_it_widens(policy: Policy, source: str, target: str) -> None:
    assert policy.widens(source, target, is_directory=True)


def test_a_file_has_nothing_below_it() -> None:
    assert not VAULT.widens("/home/agentos", "/tmp/me", is_directory=False)
