"""openat2, whose flags lie in memory, against the bare host."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from errno import EACCES
from typing import TYPE_CHECKING

import pytest

from tests.syscalls.comparison import AT, LONG_NAME, Bad, Case, Fd, FdPath, Raw, case, refusals
from tests.syscalls.conftest import Answers
from tests.vm_fixtures import AT_FDCWD, Probe, call, judged_but_allowed, results, tree_of
from tests.vm_fixtures import Raw as RawBytes

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT, CACHED = 1, 2, 4, 8, 16, 32
SIZE = 24


def how(flags: int, mode: int = 0, resolve: int = 0, more: bytes = b"") -> Raw:
    """struct open_how."""
    return Raw(struct.pack("<QQQ", flags, mode, resolve) + more)


def opening(path: str, flags: int, mode: int = 0, resolve: int = 0, judged_as: str = "") -> Case:
    return case(("openat2", AT, path, how(flags, mode, resolve), SIZE), judged_as=judged_as)


CASES: dict[str, Case] = {
    "reading": opening("file", R, judged_as="read"),
    "reading through a link": opening("link", R, judged_as="read"),
    "reading close-on-exec": opening("file", R | os.O_CLOEXEC, judged_as="read"),
    "listing": opening("dir", R | os.O_DIRECTORY, judged_as="readdir"),
    "writing": opening("file", W, judged_as="write"),
    "truncating": opening("file", W | os.O_TRUNC, judged_as="truncate"),
    "creating": opening("new", W | os.O_CREAT, 0o640, judged_as="write"),
    "creating exclusively what is there": opening("file", W | os.O_CREAT | os.O_EXCL, 0o640, judged_as="write"),
    "without a name": opening("dir", RW | os.O_TMPFILE, 0o600, judged_as="write"),
    "a mode without creating": opening("file", R, 0o640),
    "a mode with more than permissions": opening("new", W | os.O_CREAT, 0o100640),
    "unknown flags": opening("file", R | 1 << 30),
    "unknown flags in the high half": opening("file", R | 1 << 40),
    "unknown resolve flags": opening("file", R, resolve=1 << 10),
    "a resolve flag in the high half": opening("file", R, resolve=1 << 40),
    "beneath and in the root": opening("file", R, resolve=BENEATH | IN_ROOT),
    "O_PATH with more": opening("file", os.O_PATH | os.O_RDWR),
    "a directory and creating": opening("new", W | os.O_CREAT | os.O_DIRECTORY, 0o600),
    "nothing": opening("absent", R, judged_as="read"),
    "a loop": opening("loop", R),
    "a link, not followed": opening("link", R | os.O_NOFOLLOW),
    "a name too long": opening(LONG_NAME, R),
    "an empty path": opening("", R),
    "a bad address for the path": case(("openat2", AT, Bad(), how(R), SIZE)),
    "a bad address for the structure": case(("openat2", AT, "file", Bad(), SIZE)),
    "a structure too short": case(("openat2", AT, "file", how(R), SIZE - 1)),
    "a structure of no size": case(("openat2", AT, "file", how(R), 0)),
    "a longer structure of zeros": case(("openat2", AT, "file", how(R, more=bytes(40)), SIZE + 40), judged_as="read"),
    "a longer structure with something in it": case(("openat2", AT, "file", how(R, more=bytes(39) + b"x"), SIZE + 40)),
    "a structure longer than a page": case(("openat2", AT, "file", how(R, more=bytes(5000)), SIZE + 5000)),
    "no links, and none there": opening("dir/inner", R, resolve=NO_SYMLINKS, judged_as="read"),
    "no links, but the last is one": opening("link", R, resolve=NO_SYMLINKS),
    "no links, but one on the way": opening("dir-link/inner", R, resolve=NO_SYMLINKS),
    "no links, and the last is not followed": opening("link", R | os.O_NOFOLLOW, resolve=NO_SYMLINKS),
    "no links and nothing there": opening("absent", R, resolve=NO_SYMLINKS, judged_as="read"),
    "no descriptor links, and none there": opening("link", R, resolve=NO_MAGICLINKS, judged_as="read"),
    "no descriptor links, but one": case(
        ("open", "file", R), ("openat2", AT, FdPath(0), how(R, resolve=NO_MAGICLINKS), SIZE)
    ),
    "no links at all, but a descriptor link": case(("open", "file", R), ("openat2", AT, FdPath(0), how(R, resolve=NO_SYMLINKS), SIZE)),
    "creating, no links, but one on the way": opening("dir-link/new", W | os.O_CREAT, 0o600, resolve=NO_SYMLINKS),
    "creating, no links, but a dangling one": opening("dangling", W | os.O_CREAT, 0o600, resolve=NO_SYMLINKS),
    "creating, no descriptor links": opening("new", W | os.O_CREAT, 0o600, resolve=NO_MAGICLINKS),
    "in a directory": case(("open", "dir", R), ("openat2", Fd(0), "inner", how(R), SIZE), judged_as="read"),
    "in a bad descriptor": case(("openat2", 77, "file", how(R), SIZE)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}


@pytest.mark.parametrize("resolve", [NO_XDEV, BENEATH, IN_ROOT, BENEATH | NO_SYMLINKS], ids=hex)
def test_a_way_of_resolving_that_is_not_supported_is_refused_with_a_reason(
    vm_factory: Callable[..., VM], probe: Probe, resolve: int
) -> None:
    vm = vm_factory(permissions=judged_but_allowed(), files=probe.files | {"/w/file": b"content"})
    before = tree_of(vm, "/w")
    flags = struct.pack("<QQQ", os.O_RDWR | os.O_CREAT, 0o600, resolve)
    lines = [call("openat2", AT_FDCWD, path, RawBytes(flags), SIZE) for path in ("/w/file", "/w/new")]
    assert results(probe.in_vm(vm, lines)) == [-EACCES, -EACCES]
    assert tree_of(vm, "/w") == before
    assert {denial.rule for denial in vm.denials} == {"unsupported"}
    assert all("RESOLVE" in denial.reason for denial in vm.denials)
