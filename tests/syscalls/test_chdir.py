"""chdir and fchdir, against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import LONG_NAME, Bad, Case, Fd, FdPath, Out, Step, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

INNER: Step = ("open", "inner", os.O_RDONLY)

CASES: dict[str, Case] = {
    "a directory": case(("chdir", "dir"), INNER),
    "a directory, refused": case(("chdir", "dir"), judged_as="stat"),
    "a directory by its absolute name": case(("chdir", "{top}/dir"), INNER),
    "a directory with a trailing slash": case(("chdir", "dir/"), INNER),
    "through a link": case(("chdir", "dir-link"), INNER),
    "through a link, refused": case(("chdir", "dir-link"), judged_as="stat"),
    "down and up again": case(("chdir", "dir/sub/.."), INNER),
    "here": case(("chdir", "."), ("open", "file", os.O_RDONLY)),
    "up": case(("chdir", "dir/sub"), ("chdir", ".."), INNER),
    "a file": case(("chdir", "file"), judged_as="stat"),
    "a link to a file": case(("chdir", "link"), judged_as="stat"),
    "a dangling link": case(("chdir", "dangling"), judged_as="stat"),
    "a loop": case(("chdir", "loop")),
    "nothing": case(("chdir", "absent"), judged_as="stat"),
    "below a file": case(("chdir", "file/x")),
    "a directory that may not be searched": case(("chdir", "closed"), judged_as="stat"),
    "a directory that is gone": case(("chdir", "empty-dir"), ("rmdir", "../empty-dir"), ("chdir", ".")),
    "out of a directory that is gone": case(("chdir", "empty-dir"), ("rmdir", "../empty-dir"), ("chdir", "..")),
    "a name too long": case(("chdir", LONG_NAME)),
    "an empty path": case(("chdir", "")),
    "no path": case(("chdir", None)),
    "a bad address": case(("chdir", Bad())),
    "a descriptor's path": case(("open", "dir", os.O_RDONLY), ("chdir", FdPath(0)), INNER),
    "a failure changes nothing": case(("chdir", "dir"), ("chdir", "inner"), INNER),
    "fchdir": case(("open", "dir", os.O_RDONLY), ("fchdir", Fd(0)), INNER),
    "fchdir of a file": case(("open", "file", os.O_RDONLY), ("fchdir", Fd(0))),
    "fchdir of a bad descriptor": case(("fchdir", 77)),
    "fchdir of a directory that is gone": case(
        ("open", "empty-dir", os.O_RDONLY), ("rmdir", "empty-dir"), ("fchdir", Fd(0)), ("stat", ".", Out(144))
    ),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
