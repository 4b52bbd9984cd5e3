"""inotify_add_watch, against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import Bad, Case, Fd, Out, Step, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

NONBLOCK = os.O_NONBLOCK
ACCESS, MODIFY, CREATE, DELETE_SELF = 1, 2, 0x100, 0x400
ONLYDIR, DONT_FOLLOW, MASK_CREATE, MASK_ADD = 0x0100_0000, 0x0200_0000, 0x1000_0000, 0x2000_0000
NEW: Step = ("inotify_init1", NONBLOCK)


def watch(path: str, mask: int, judged_as: str = "") -> Case:
    return case(NEW, ("inotify_add_watch", Fd(0), path, mask), judged_as=judged_as)


CASES: dict[str, Case] = {
    "a file": watch("file", MODIFY, "read"),
    "a directory": watch("dir", CREATE, "readdir"),
    "a file through a link": watch("link", MODIFY, "read"),
    "a directory through a link": watch("dir-link", CREATE, "readdir"),
    "a link itself": watch("link", MODIFY | DONT_FOLLOW, "read"),
    "a dangling link itself": watch("dangling", MODIFY | DONT_FOLLOW, "read"),
    "a dangling link": watch("dangling", MODIFY, "read"),
    "nothing": watch("absent", MODIFY, "read"),
    "a directory as one": watch("dir", CREATE | ONLYDIR, "readdir"),
    "a file as a directory": watch("file", MODIFY | ONLYDIR, "read"),
    "a fifo": watch("fifo", MODIFY, "read"),
    "a file that may not be read": watch("write-only", MODIFY, "read"),
    "a directory that may not be searched": watch("closed", CREATE, "readdir"),
    "below a file": watch("file/x", MODIFY),
    "a loop": watch("loop", MODIFY),
    "an empty path": watch("", MODIFY),
    "no path": case(NEW, ("inotify_add_watch", Fd(0), None, MODIFY)),
    "a bad address": case(NEW, ("inotify_add_watch", Fd(0), Bad(), MODIFY)),
    "no events": watch("file", 0),
    "twice": case(NEW, ("inotify_add_watch", Fd(0), "file", MODIFY), ("inotify_add_watch", Fd(0), "file", ACCESS)),
    "only once": case(
        NEW, ("inotify_add_watch", Fd(0), "file", MODIFY), ("inotify_add_watch", Fd(0), "file", ACCESS | MASK_CREATE)
    ),
    "only once and added": watch("file", MODIFY | MASK_CREATE | MASK_ADD),
    "a bad descriptor": case(("inotify_add_watch", 77, "file", MODIFY)),
    "a descriptor of another kind": case(("open", "file", 0), ("inotify_add_watch", Fd(0), "file", MODIFY)),
    "an event of a directory": case(
        NEW, ("inotify_add_watch", Fd(0), "dir", CREATE), ("mkdir", "dir/new", 0o755), ("read", Fd(0), Out(200), 200)
    ),
    "an event of a file": case(
        NEW,
        ("inotify_add_watch", Fd(0), "link", MODIFY | DELETE_SELF),
        ("truncate", "file", 1),
        ("unlink", "hard"),
        ("unlink", "file"),
        ("read", Fd(0), Out(200), 200),
    ),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
