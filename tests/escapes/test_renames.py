"""Names that are moved into or out of reach (catalogue 31 to 35)."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES, EPERM
from typing import TYPE_CHECKING

import pytest

from tests.escapes.three_ways import ThreeWays
from tests.vm_fixtures import AT_FDCWD, Probe, call, deny, results, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R, W, CREAT = os.O_RDONLY, os.O_WRONLY, os.O_CREAT
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4


def renames(top: str, old: str, new: str) -> list[str]:
    """Every call that moves a name."""
    return [
        call("rename", f"{top}/{old}", f"{top}/{new}"),
        call("renameat", AT_FDCWD, f"{top}/{old}", AT_FDCWD, f"{top}/{new}"),
        *(call("renameat2", AT_FDCWD, f"{top}/{old}", AT_FDCWD, f"{top}/{new}", flags) for flags in (0, NOREPLACE, EXCHANGE)),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [("secret", "alias"), ("plain", "secret"), ("secret", "plain"), ("vault/inner", "alias"), ("plain", "vault/x")],
)
def test_no_name_goes_into_or_out_of_a_denied_place(three_ways: ThreeWays, old: str, new: str) -> None:
    assert results(three_ways.on_host(lambda top: renames(top, old, new)[:1])) == [0]
    assert results(three_ways.where_nothing_is_refused(lambda top: renames(top, old, new)[:1])) == [0]
    three_ways.refused(lambda top: renames(top, old, new), [-EACCES] * 5, "secret", "vault/**")


def test_an_exchange_works_where_it_is_allowed_and_is_refused_both_ways(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        pairs = [("plain", "secret"), ("secret", "plain")]
        return [call("renameat2", AT_FDCWD, f"{top}/{old}", AT_FDCWD, f"{top}/{new}", EXCHANGE) for old, new in pairs]

    three_ways.works(script, [0, 0])
    three_ways.refused(script, [-EACCES, -EACCES], "secret")


def test_a_whiteout_which_makes_a_device_is_never_made(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [call("renameat2", AT_FDCWD, f"{top}/plain", AT_FDCWD, f"{top}/new", WHITEOUT)]

    assert results(three_ways.where_nothing_is_refused(script)) == [-EPERM]


@pytest.mark.parametrize("operations", [["*"], ["read"], ["readdir"], ["write"], ["stat"]], ids=lambda operations: operations[0])
@pytest.mark.parametrize("moved", ["vault", "outer", "outer/vault"])
def test_a_folder_does_not_carry_what_is_denied_below_it_out_of_reach(
    three_ways: ThreeWays, moved: str, operations: list[str]
) -> None:
    """No widening: neither a denied folder nor one that holds a denied folder can be moved or exchanged."""
    assert results(three_ways.where_nothing_is_refused(lambda top: renames(top, moved, "elsewhere")[:1])) == [0]
    denied = ("vault/**", "outer/vault/**")
    answers = three_ways.where_refused(
        lambda top: [
            *renames(top, moved, "elsewhere")[:4],
            call("renameat2", AT_FDCWD, f"{top}/{moved}", AT_FDCWD, f"{top}/open", EXCHANGE),
        ],
        *denied,
        operations=operations,
    )
    assert results(answers) == [-EACCES] * 5


def test_a_folder_with_nothing_denied_below_it_is_moved(three_ways: ThreeWays, probe: Probe) -> None:
    vm = three_ways.vm(deny("/w/vault/**", "/w/secret"))
    lines = [call("rename", "/w/open", "/w/opened"), call("open", "/w/opened/inner", R), call("rename", "/w/outer", "/w/o")]
    assert results(probe.in_vm(vm, lines)) == [0, 3, 0]


ENV = "**/.env"


def test_no_name_is_made_that_a_rule_would_deny(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        new = f"{top}/open/.env"
        return [
            call("rename", f"{top}/plain", new),
            call("link", f"{top}/plain", new),
            call("symlink", "../plain", new),
            call("mkdir", new, 0o755),
            call("open", new, W | CREAT, 0o600),
            call("mknod", new, 0o010600, 0),
        ]

    for n in range(6):
        assert results(three_ways.where_nothing_is_refused(lambda top, n=n: [script(top)[n]]))[0] >= 0  # type: ignore[misc]
    three_ways.refused(script, [-EACCES] * 6, ENV)


def test_a_folder_is_not_moved_to_where_a_rule_would_stop_denying_what_is_in_it(
    vm_factory: Callable[..., VM], probe: Probe
) -> None:
    files = {"/w/project/.env": b"secret", "/w/out/keep": b"", "/x/keep": b""}
    vm = vm_factory(permissions=deny("/w/**/.env"), files=probe.files | files)
    before = tree_of(vm, "/w")
    lines = [
        call("rename", "/w/project", "/x/project"),  # its .env would be /x/project/.env, which no rule denies
        call("rename", "/w/project/.env", "/w/project/env"),
        call("open", "/w/project/.env", R),
    ]
    assert results(probe.in_vm(vm, lines)) == [-EACCES] * 3
    assert tree_of(vm, "/w") == before
    within = [call("rename", "/w/project", "/w/renamed"), call("open", "/w/renamed/.env", R)]
    assert results(probe.in_vm(vm, within)) == [0, -EACCES]


def test_a_grant_of_one_file_survives_its_replacement(vm_factory: Callable[..., VM]) -> None:
    """Rules are on names, so an editor that writes beside and renames over keeps the grant, and gets no other."""
    rules = [
        {"mode": "deny", "paths": ["/w/**"]},
        {"mode": "allow", "paths": ["/w/config", "/w/config.tmp"]},
        {"mode": "allow", "operations": ["stat"], "paths": ["/w"]},
    ]
    vm = vm_factory(permissions={"fs": {"default": "allow", "rules": rules}}, files={"/w/config": b"old", "/w/other": b"other"})
    script = "echo new > /w/config.tmp && mv /w/config.tmp /w/config && cat /w/config; mv /w/config /w/other; cat /w/other"
    result = vm.run(script)
    assert result.stdout == "new\n"
    assert result.stderr.count("ermission denied") == 2
    assert vm.fs.unchecked.read_bytes("/w/other") == b"other"


@pytest.mark.parametrize(
    ("pattern", "path", "is_denied"),
    [
        ("/w/*", "/w/open/inner", False),
        ("/w/*", "/w/plain", True),
        ("/w/**", "/w/open/inner", True),
        ("/w/open/**", "/w/open", True),
        ("/w/open", "/w/open/inner", False),
        ("/w/SECRET", "/w/secret", False),
        ("/w/[ps]ecret", "/w/secret", False),
        ("/w/\\secret", "/w/secret", False),
        ("/w/sec?et", "/w/secret", True),
        ("/w/**/inner", "/w/open/inner", True),
        ("/w/secret/", "/w/secret", True),
        ("/w/secre", "/w/secret", False),
        ("w/secret", "/w/secret", None),
    ],
)
def test_the_edges_of_the_pattern_language(
    three_ways: ThreeWays, probe: Probe, pattern: str, path: str, is_denied: bool | None
) -> None:
    from callgate import PolicyError

    if is_denied is None:
        with pytest.raises(PolicyError):
            three_ways.vm(deny(pattern))
        return
    (answer,) = results(probe.in_vm(three_ways.vm(deny(pattern)), [call("open", path, R)]))
    assert answer == (-EACCES if is_denied else 3)


def test_the_last_matching_rule_wins(three_ways: ThreeWays, probe: Probe) -> None:
    rules = [
        {"mode": "deny", "paths": ["/w/**"]},
        {"mode": "allow", "paths": ["/w/s*"]},
        {"mode": "deny", "paths": ["/w/secret"]},
    ]
    for count, expected in ((0, [3, 4]), (1, [-EACCES, -EACCES]), (2, [3, -EACCES]), (3, [-EACCES, -EACCES])):
        vm = three_ways.vm({"fs": {"default": "allow", "rules": rules[:count]}})
        lines = [call("open", "/w/secret", R), call("open", "/w/plain", R)]
        assert results(probe.in_vm(vm, lines)) == expected
