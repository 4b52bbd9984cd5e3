"""Links that a guest makes to what it may not touch (catalogue 3, 5 to 7, 29, 30)."""

from __future__ import annotations

import os
from errno import EACCES, EEXIST

import pytest

from tests.escapes.three_ways import ThreeWays, kind_of
from tests.vm_fixtures import AT_FDCWD, Out, Probe, call, deny, results

pytestmark = pytest.mark.vm

R, W, CREAT, EXCL = os.O_RDONLY, os.O_WRONLY, os.O_CREAT, os.O_EXCL
SYMLINK_FOLLOW, EMPTY_PATH = 0x400, 0x1000


def test_a_link_to_a_secret_may_be_looked_at_but_not_followed(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [
            call("symlink", "secret", f"{top}/link"),
            call("open", f"{top}/link", R),
            call("lstat", f"{top}/link", Out(144)),
            call("readlink", f"{top}/link", Out(64), 64),
            call("stat", f"{top}/link", Out(144)),
            call("truncate", f"{top}/link", 0),
            call("chmod", f"{top}/link", 0o777),
        ]

    three_ways.works(lambda top: script(top)[:5], [0, 3, 0, 6, 0])
    answers = three_ways.where_refused(script, "secret", preparation=1)
    assert results(answers) == [-EEXIST, -EACCES, 0, 6, -EACCES, -EACCES, -EACCES]
    assert kind_of(answers[2]) == "l"


def test_a_link_to_a_folder_in_the_middle_of_a_path(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        made = [call("symlink", "vault", f"{top}/d"), call("symlink", f"{top}/outer", f"{top}/open/o")]
        return [*made, call("open", f"{top}/d/inner", R), call("open", f"{top}/open/o/vault/../vault/deep", R)]

    three_ways.works(script, [0, 0, 3, 4])
    three_ways.refused(script, [-EEXIST, -EEXIST, -EACCES, -EACCES], "vault/**", "outer/vault/**", preparation=2)


def test_a_dangling_link_into_a_denied_folder_makes_nothing_there(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [call("symlink", "vault/new", f"{top}/link"), call("open", f"{top}/link", W | CREAT, 0o600)]

    three_ways.works(script, [0, 3])
    three_ways.refused(script, [-EEXIST, -EACCES], "vault/**", preparation=1)


def test_a_chain_of_dangling_links_makes_nothing_either(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        links = [("../vault", "open/up"), ("open/up/new", "one"), ("one", "two"), ("open/../two", "three")]
        made = [call("symlink", text, f"{top}/{name}") for text, name in links]
        return [*made, call("open", f"{top}/three", W | CREAT, 0o600)]

    three_ways.works(script, [0, 0, 0, 0, 3])
    three_ways.refused(script, [-EEXIST] * 4 + [-EACCES], "vault/**", preparation=4)


def test_exclusive_creation_does_not_follow(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [call("symlink", "vault/new", f"{top}/link"), call("open", f"{top}/link", W | CREAT | EXCL, 0o600)]

    three_ways.works(script, [0, -EEXIST])
    three_ways.refused(script, [-EEXIST, -EEXIST], "vault/**", preparation=1)


@pytest.mark.parametrize("denied", ["secret", "open/**"], ids=["the-source", "the-target"])
def test_a_hard_link_into_or_out_of_reach(three_ways: ThreeWays, denied: str) -> None:
    def script(top: str) -> list[str]:
        return [
            call("link", f"{top}/secret", f"{top}/open/x"),
            call("linkat", AT_FDCWD, f"{top}/secret", AT_FDCWD, f"{top}/open/y", SYMLINK_FOLLOW),
        ]

    three_ways.works(script, [0, 0])
    three_ways.refused(script, [-EACCES, -EACCES], denied)


@pytest.mark.parametrize("operation", ["read", "write", "truncate", "chmod", "stat"])
def test_a_hard_link_gives_no_operation_that_the_old_name_lacks(three_ways: ThreeWays, operation: str) -> None:
    """No widening: it is refused whichever operation the new name would give."""

    def script(top: str) -> list[str]:
        return [call("link", f"{top}/secret", f"{top}/alias")]

    three_ways.works(script, [0])
    three_ways.refused(script, [-EACCES], "secret", operations=[operation])


def test_a_hard_link_that_gives_nothing_is_made(three_ways: ThreeWays, probe: Probe) -> None:
    vm = three_ways.vm(deny("/w/secret", "/w/alias", operations=["read"]))
    lines = [call("link", "/w/secret", "/w/alias"), call("open", "/w/alias", R), call("link", "/w/plain", "/w/alias2")]
    assert results(probe.in_vm(vm, lines)) == [0, -EACCES, 0]


def test_a_descriptor_is_linked_as_the_file_it_is(three_ways: ThreeWays, probe: Probe) -> None:
    """Reading is allowed and writing is not: neither spelling of the descriptor gives the file a name where both are."""
    vm = three_ways.vm(deny("/w/secret", operations=["write"]))
    lines = [
        call("open", "/w/secret", R),
        call("linkat", 3, "", AT_FDCWD, "/w/alias", EMPTY_PATH),
        call("linkat", AT_FDCWD, "/proc/self/fd/3", AT_FDCWD, "/w/alias", SYMLINK_FOLLOW),
        call("open", "/w/alias", W),
    ]
    assert results(probe.in_vm(vm, lines)) == [3, -EACCES, -EACCES, -2]


def test_a_file_without_a_name_gets_none_in_a_denied_folder(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [
            call("open", f"{top}/open", os.O_TMPFILE | os.O_RDWR, 0o600),
            call("linkat", AT_FDCWD, "/proc/self/fd/3", AT_FDCWD, f"{top}/vault/new", SYMLINK_FOLLOW),
            call("open", f"{top}/vault", os.O_TMPFILE | os.O_RDWR, 0o600),
            call("linkat", 3, "", AT_FDCWD, f"{top}/vault/other", EMPTY_PATH),
        ]

    three_ways.works(script, [3, 0, 4, 0])
    three_ways.refused(script, [3, -EACCES, -EACCES, -EACCES], "vault/**")
