"""stat, lstat, newfstatat, statx and statfs, against the bare host."""

from __future__ import annotations

import pytest

from tests.syscalls.comparison import AT, EMPTY_PATH, LONG_NAME, SYMLINK_NOFOLLOW, Bad, Case, Fd, FdPath, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

STAT, STATX = Out(144), Out(256)
BASIC = 0x7FF
NO_AUTOMOUNT, FORCE_SYNC, DONT_SYNC = 0x800, 0x2000, 0x4000


def stats(path: str, *, judged: bool = True) -> dict[str, Case]:
    """Every way to look at a path."""
    shown = path or "nothing at all"
    operation = "stat" if judged else ""
    return {
        f"stat of {shown}": case(("stat", path, STAT), judged_as=operation),
        f"lstat of {shown}": case(("lstat", path, STAT), judged_as=operation),
        f"newfstatat of {shown}": case(("newfstatat", AT, path, STAT, 0), judged_as=operation),
        f"newfstatat of {shown}, not followed": case(("newfstatat", AT, path, STAT, SYMLINK_NOFOLLOW), judged_as=operation),
        f"statx of {shown}": case(("statx", AT, path, 0, BASIC, STATX), judged_as=operation),
        f"statx of {shown}, not followed": case(("statx", AT, path, SYMLINK_NOFOLLOW, BASIC, STATX), judged_as=operation),
    }


JUDGED = ("file", "link", "dir", "dir/", "dir-link", "dir-link/", "dangling", "absolute", "fifo", "closed", "dir/sub/../inner")
UNJUDGED = ("absent/x", "loop", "file/", "file/x", "closed/hidden", "to-closed", "link/", "c39", "c40", "", LONG_NAME)

CASES: dict[str, Case] = {
    **{name: one for path in JUDGED for name, one in stats(path).items()},
    **{name: one for path in UNJUDGED for name, one in stats(path, judged=False).items()},
    "stat of nothing": case(("stat", "absent", STAT), judged_as="stat"),
    "stat of no path": case(("stat", None, STAT)),
    "stat of a bad address": case(("stat", Bad(), STAT)),
    "stat into a bad address": case(("stat", "file", Bad())),
    "stat into no buffer": case(("stat", "file", None)),
    "stat of a path too long": case(("stat", "./" * 2048 + "file", STAT)),
    "stat of an open descriptor's path": case(("open", "file", 0), ("stat", FdPath(0), STAT), judged_as="stat"),
    "lstat of an open descriptor's path": case(("open", "file", 0), ("newfstatat", AT, FdPath(0), STAT, 0), judged_as="stat"),
    "newfstatat in a directory": case(("open", "dir", 0), ("newfstatat", Fd(0), "inner", STAT, 0), judged_as="stat"),
    "newfstatat up from a directory": case(("open", "dir/sub", 0), ("newfstatat", Fd(0), "..", STAT, 0), judged_as="stat"),
    "newfstatat in a file": case(("open", "file", 0), ("newfstatat", Fd(0), "x", STAT, 0)),
    "newfstatat in a bad descriptor": case(("newfstatat", 77, "file", STAT, 0)),
    "newfstatat in a bad descriptor by an absolute name": case(("newfstatat", 77, "{top}/file", STAT, 0), judged_as="stat"),
    "newfstatat of a descriptor": case(("open", "file", 0), ("newfstatat", Fd(0), "", STAT, EMPTY_PATH)),
    "newfstatat of a removed file": case(("open", "empty", 0), ("unlink", "empty"), ("newfstatat", Fd(0), "", STAT, EMPTY_PATH)),
    "newfstatat of the working directory": case(("newfstatat", AT, "", STAT, EMPTY_PATH), judged_as="stat"),
    "newfstatat of an empty path without the flag": case(("open", "file", 0), ("newfstatat", Fd(0), "", STAT, 0)),
    "newfstatat with unknown flags": case(("newfstatat", AT, "file", STAT, 1)),
    "newfstatat without mounting": case(("newfstatat", AT, "file", STAT, NO_AUTOMOUNT), judged_as="stat"),
    "statx of a descriptor": case(("open", "file", 0), ("statx", Fd(0), "", EMPTY_PATH, BASIC, STATX)),
    "statx of no path": case(("open", "file", 0), ("statx", Fd(0), None, 0, BASIC, STATX)),
    "statx with unknown flags": case(("statx", AT, "file", 1, BASIC, STATX)),
    "statx with both ways to synchronise": case(("statx", AT, "file", FORCE_SYNC | DONT_SYNC, BASIC, STATX)),
    "statx without synchronising": case(("statx", AT, "file", DONT_SYNC, BASIC, STATX), judged_as="stat"),
    "statx with the reserved mask": case(("statx", AT, "file", 0, 0x8000_0000, STATX)),
    "statx into a bad address": case(("statx", AT, "file", 0, BASIC, Bad())),
    "statx in a bad descriptor": case(("statx", 77, "file", 0, BASIC, STATX)),
    "statfs": case(("statfs", "file", Out(120)), judged_as="stat"),
    "statfs through a link": case(("statfs", "dir-link", Out(120)), judged_as="stat"),
    "statfs of nothing": case(("statfs", "absent", Out(120)), judged_as="stat"),
    "statfs of a loop": case(("statfs", "loop", Out(120))),
    "statfs into a bad address": case(("statfs", "file", Bad())),
    "chdir": case(("chdir", "dir"), judged_as="stat"),
    "chdir through a link": case(("chdir", "dir-link"), ("stat", "inner", STAT), judged_as=""),
    "chdir to a file": case(("chdir", "file"), judged_as="stat"),
    "chdir to nothing": case(("chdir", "absent"), judged_as="stat"),
    "chdir to where nothing may be searched": case(("chdir", "closed"), judged_as="stat"),
    "chdir to an empty path": case(("chdir", "")),
    "chdir up": case(("chdir", "dir/sub"), ("chdir", ".."), ("stat", "inner", STAT)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
