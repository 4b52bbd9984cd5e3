"""readlink and readlinkat, against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import LONG_NAME, Bad, Case, Fd, FdPath, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

ROOM = Out(200)

CASES: dict[str, Case] = {
    "of a link": case(("readlink", "link", ROOM, 200), judged_as="readlink"),
    "of a dangling link": case(("readlink", "dangling", ROOM, 200), judged_as="readlink"),
    "of a loop": case(("readlink", "loop", ROOM, 200), judged_as="readlink"),
    "of a link to a directory": case(("readlink", "dir-link", ROOM, 200), judged_as="readlink"),
    "of an absolute link": case(("readlink", "absolute", ROOM, 200), judged_as="readlink"),
    "through a link to a directory": case(("readlink", "dir-link/../link", ROOM, 200), judged_as="readlink"),
    "cut to the buffer": case(("readlink", "dangling-deep", Out(5), 5), judged_as="readlink"),
    "of a file": case(("readlink", "file", ROOM, 200), judged_as="readlink"),
    "of a directory": case(("readlink", "dir", ROOM, 200), judged_as="readlink"),
    "of nothing": case(("readlink", "absent", ROOM, 200), judged_as="readlink"),
    "of a link with a trailing slash": case(("readlink", "link/", ROOM, 200)),
    "of a link to a directory with a trailing slash": case(("readlink", "dir-link/", ROOM, 200)),
    "of a loop with a trailing slash": case(("readlink", "loop/", ROOM, 200)),
    "below a file": case(("readlink", "file/x", ROOM, 200)),
    "where nothing may be searched": case(("readlink", "closed/hidden", ROOM, 200)),
    "of a name too long": case(("readlink", LONG_NAME, ROOM, 200)),
    "of an empty path": case(("readlink", "", ROOM, 200)),
    "of no path": case(("readlink", None, ROOM, 200)),
    "of a bad address": case(("readlink", Bad(), ROOM, 200)),
    "into a bad address": case(("readlink", "link", Bad(), 200)),
    "into nothing": case(("readlink", "link", ROOM, 0)),
    "into less than nothing": case(("readlink", "link", ROOM, -1)),
    "in a directory": case(("open", "dir", 0), ("readlinkat", Fd(0), "../link", ROOM, 200), judged_as="readlink"),
    "in a bad descriptor": case(("readlinkat", 77, "link", ROOM, 200)),
    "in a bad descriptor by an absolute name": case(("readlinkat", 77, "{top}/link", ROOM, 200), judged_as="readlink"),
    "of a descriptor of a file": case(("open", "file", 0), ("readlinkat", Fd(0), "", ROOM, 200)),
    "of a descriptor's path": case(("open", "file", 0), ("readlink", FdPath(0), ROOM, 200)),
    "of a descriptor of a directory": case(("open", "dir", os.O_DIRECTORY), ("readlink", FdPath(0), ROOM, 200)),
    "of a descriptor of a removed file": case(("open", "empty", 0), ("unlink", "empty"), ("readlink", FdPath(0), ROOM, 200)),
    "of the working directory": case(("readlink", "/proc/self/cwd", ROOM, 200)),
    "of the working directory of the thread": case(("chdir", "dir"), ("readlink", "/proc/thread-self/cwd", ROOM, 200)),
    "of the root": case(("readlink", "/proc/self/root", ROOM, 200)),
    "of a descriptor that is none": case(("readlink", "/proc/self/fd/77", ROOM, 200)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
