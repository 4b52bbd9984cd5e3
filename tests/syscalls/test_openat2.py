"""openat2, whose flags lie in memory, against the bare host."""

from __future__ import annotations

import os
import struct

import pytest

from tests.syscalls.comparison import AT, LONG_NAME, Bad, Case, Fd, FdPath, Raw, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH, IN_ROOT, CACHED = 1, 2, 4, 8, 16, 32
SIZE = 24
RESOLVES = (BENEATH, IN_ROOT, BENEATH | NO_SYMLINKS, IN_ROOT | NO_MAGICLINKS)  # NO_XDEV depends on what else is mounted
PATHS = (
    "file",
    "link",
    "absolute",
    "dir-link/inner",
    "dir/../file",
    "../x",
    "{top}/file",
    "absent",
    "absent/x",
    "loop",
    "self/file",
)


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
    "no descriptor links, but one": case(("open", "file", R), ("openat2", AT, FdPath(0), how(R, resolve=NO_MAGICLINKS), SIZE)),
    "no links at all, but a descriptor link": case(
        ("open", "file", R), ("openat2", AT, FdPath(0), how(R, resolve=NO_SYMLINKS), SIZE)
    ),
    "creating, no links, but one on the way": opening("dir-link/new", W | os.O_CREAT, 0o600, resolve=NO_SYMLINKS),
    "creating, no links, but a dangling one": opening("dangling", W | os.O_CREAT, 0o600, resolve=NO_SYMLINKS),
    "creating, no descriptor links": opening("new", W | os.O_CREAT, 0o600, resolve=NO_MAGICLINKS),
    "in a directory": case(("open", "dir", R), ("openat2", Fd(0), "inner", how(R), SIZE), judged_as="read"),
    "beneath": opening("dir/inner", R, resolve=BENEATH, judged_as="read"),
    "beneath, up and down again": opening("dir/../file", R, resolve=BENEATH, judged_as="read"),
    "beneath, but out": opening("../file", R, resolve=BENEATH),
    "beneath, but absolute": opening("/etc/passwd", R, resolve=BENEATH),
    "beneath, creating": opening("dir/new", W | os.O_CREAT, 0o600, resolve=BENEATH, judged_as="write"),
    "beneath, creating through a dangling link": opening("dangling", W | os.O_CREAT, 0o600, resolve=BENEATH),
    "beneath a directory, but out": case(("open", "dir", R), ("openat2", Fd(0), "../file", how(R, resolve=BENEATH), SIZE)),
    "beneath, but a descriptor link": case(("open", "file", R), ("openat2", AT, FdPath(0), how(R, resolve=BENEATH), SIZE)),
    "a directory as the root": case(
        ("open", "dir", R), ("openat2", Fd(0), "/inner", how(R, resolve=IN_ROOT), SIZE), judged_as="read"
    ),
    "a directory as the root, and up": case(("open", "dir", R), ("openat2", Fd(0), "../../inner", how(R, resolve=IN_ROOT), SIZE)),
    "a directory as the root, creating": case(
        ("open", "dir", R), ("openat2", Fd(0), "/new", how(W | os.O_CREAT, 0o600, IN_ROOT), SIZE)
    ),
    "no other mount": opening("dir/inner", R, resolve=NO_XDEV, judged_as="read"),
    "no other mount, creating": opening("new", W | os.O_CREAT, 0o600, resolve=NO_XDEV, judged_as="write"),
    **{f"reading {path}, resolved by {by}": opening(path, R, resolve=by) for path in PATHS for by in RESOLVES},
    **{
        f"creating {path}, resolved by {by}": opening(path, W | os.O_CREAT, 0o600, resolve=by)
        for path in ("new", "dir/new", "dir-link/new", "self/new", "dangling", "dir/../new")
        for by in RESOLVES
    },
    **{
        f"reading {path} in a directory, resolved by {by}": case(
            ("open", "dir", R), ("openat2", Fd(0), path, how(R, resolve=by), SIZE)
        )
        for path in ("inner", "sub/../inner", "../file", "..", "/inner", "../dir/inner", "sub/../../dir/inner")
        for by in RESOLVES
    },
    "in a bad descriptor": case(("openat2", 77, "file", how(R), SIZE)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
