"""chown, fchown, lchown and fchownat, against the bare host."""

from __future__ import annotations

import pytest

from tests.syscalls.comparison import AT, EMPTY_PATH, LONG_NAME, SYMLINK_NOFOLLOW, Bad, Case, Fd, FdPath, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

KEEP = 0xFFFF_FFFF  # an id of -1; a real one has no name in common between the host and a VM
SETID = ("chmod", "program", 0o6755)

CASES: dict[str, Case] = {
    "a file": case(("chown", "file", KEEP, KEEP), judged_as="write"),
    "a file by its absolute name": case(("chown", "{top}/file", KEEP, KEEP), judged_as="write"),
    "a directory": case(("chown", "dir", KEEP, KEEP), judged_as="write"),
    "a fifo": case(("chown", "fifo", KEEP, KEEP), judged_as="write"),
    "through a link": case(("chown", "link", KEEP, KEEP), judged_as="write"),
    "a dangling link": case(("chown", "dangling", KEEP, KEEP), judged_as="write"),
    "a loop": case(("chown", "loop", KEEP, KEEP)),
    "nothing": case(("chown", "absent", KEEP, KEEP), judged_as="write"),
    "below a file": case(("chown", "file/x", KEEP, KEEP)),
    "a file with a trailing slash": case(("chown", "file/", KEEP, KEEP)),
    "where nothing may be searched": case(("chown", "closed/hidden", KEEP, KEEP)),
    "a name too long": case(("chown", LONG_NAME, KEEP, KEEP)),
    "an empty path": case(("chown", "", KEEP, KEEP)),
    "no path": case(("chown", None, KEEP, KEEP)),
    "a bad address": case(("chown", Bad(), KEEP, KEEP)),
    "set-id bits go": case(SETID, ("chown", "program", KEEP, KEEP), ("stat", "program", Out(144))),
    "the high half of an id does not matter": case(("chown", "file", KEEP | 7 << 32, KEEP | 9 << 32), judged_as="write"),
    "lchown of a file": case(("lchown", "file", KEEP, KEEP), judged_as="write"),
    "lchown of a link": case(("lchown", "link", KEEP, KEEP), judged_as="write"),
    "lchown of a dangling link": case(("lchown", "dangling", KEEP, KEEP), judged_as="write"),
    "lchown of a bad address": case(("lchown", Bad(), KEEP, KEEP)),
    "lchown of nothing": case(("lchown", "absent", KEEP, KEEP), judged_as="write"),
    "fchown": case(("open", "file", 0), ("fchown", Fd(0), KEEP, KEEP), judged_as="write"),
    "fchown of a directory": case(("open", "dir", 0), ("fchown", Fd(0), KEEP, KEEP), judged_as="write"),
    "fchown of a bad descriptor": case(("fchown", 77, KEEP, KEEP)),
    "fchown of a negative descriptor": case(("fchown", -1, KEEP, KEEP)),
    "fchown of the working directory's number": case(("fchown", AT, KEEP, KEEP)),
    "fchown of a removed file": case(("open", "empty", 0), ("unlink", "empty"), ("fchown", Fd(0), KEEP, KEEP)),
    "a descriptor's path": case(("open", "file", 0), ("chown", FdPath(0), KEEP, KEEP), judged_as="write"),
    "fchownat": case(("fchownat", AT, "file", KEEP, KEEP, 0), judged_as="write"),
    "fchownat follows": case(("fchownat", AT, "dangling", KEEP, KEEP, 0), judged_as="write"),
    "fchownat of a link": case(("fchownat", AT, "dangling", KEEP, KEEP, SYMLINK_NOFOLLOW), judged_as="write"),
    "fchownat in a directory": case(("open", "dir", 0), ("fchownat", Fd(0), "inner", KEEP, KEEP, 0), judged_as="write"),
    "fchownat of a descriptor": case(("open", "file", 0), ("fchownat", Fd(0), "", KEEP, KEEP, EMPTY_PATH), judged_as="write"),
    "fchownat of the working directory": case(("chdir", "dir"), ("fchownat", AT, "", KEEP, KEEP, EMPTY_PATH), judged_as="write"),
    "fchownat of an empty path": case(("open", "file", 0), ("fchownat", Fd(0), "", KEEP, KEEP, 0)),
    "fchownat with unknown flags": case(("fchownat", AT, "file", KEEP, KEEP, 1)),
    "fchownat in a bad descriptor": case(("fchownat", 77, "file", KEEP, KEEP, 0)),
    "fchownat of a bad descriptor": case(("fchownat", 77, "", KEEP, KEEP, EMPTY_PATH)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
