"""link and linkat, against the bare host."""

from __future__ import annotations

import pytest

from tests.syscalls.comparison import AT, EMPTY_PATH, LONG_NAME, SYMLINK_FOLLOW, Bad, Case, Fd, FdPath, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

O_RDWR, O_TMPFILE = 2, 0o20200000

CASES: dict[str, Case] = {
    "gives a second name": case(("link", "file", "new"), judged_as="write"),
    "gives a second name elsewhere": case(("link", "file", "dir/new"), judged_as="write"),
    "names the link itself": case(("link", "link", "new"), judged_as="write"),
    "names a dangling link itself": case(("link", "dangling", "new"), judged_as="write"),
    "names a fifo": case(("link", "fifo", "new"), judged_as="write"),
    "through links to directories": case(("link", "dir-link/inner", "dir-link/new"), judged_as="write"),
    "where a file is": case(("link", "file", "empty"), judged_as="write"),
    "where the same file is": case(("link", "file", "hard"), judged_as="write"),
    "where a dangling link is": case(("link", "file", "dangling"), judged_as="write"),
    "where a directory is": case(("link", "file", "dir"), judged_as="write"),
    "of a directory": case(("link", "dir", "new"), judged_as="write"),
    "of a link to a directory": case(("link", "dir-link", "new"), judged_as="write"),
    "of nothing": case(("link", "absent", "new"), judged_as="write"),
    "of a file with a trailing slash": case(("link", "file/", "new")),
    "to a name with a trailing slash": case(("link", "file", "new/")),
    "to dot": case(("link", "file", ".")),
    "below a file": case(("link", "file", "empty/new")),
    "below nothing": case(("link", "file", "absent/new")),
    "below a directory that may not be searched": case(("link", "file", "closed/new")),
    "of a file in a directory that may not be searched": case(("link", "closed/hidden", "new")),
    "to a name too long": case(("link", "file", LONG_NAME)),
    "of an empty path": case(("link", "", "new")),
    "to an empty path": case(("link", "file", "")),
    "of no path": case(("link", None, "new")),
    "to a bad address": case(("link", "file", Bad())),
    "linkat between directories": case(
        ("openat", AT, "dir", 0), ("openat", AT, "empty-dir", 0), ("linkat", Fd(0), "inner", Fd(1), "new", 0), judged_as="write"
    ),
    "linkat follows if told to": case(("linkat", AT, "link", AT, "new", SYMLINK_FOLLOW), judged_as="write"),
    "linkat follows a dangling link": case(("linkat", AT, "dangling", AT, "new", SYMLINK_FOLLOW), judged_as="write"),
    "linkat follows a loop": case(("linkat", AT, "loop", AT, "new", SYMLINK_FOLLOW)),
    "linkat with unknown flags": case(("linkat", AT, "file", AT, "new", 1)),
    "linkat from a bad descriptor": case(("linkat", 77, "file", AT, "new", 0)),
    "linkat to a bad descriptor": case(("linkat", AT, "file", 77, "new", 0)),
    "linkat of a descriptor's path": case(
        ("openat", AT, "file", 0), ("linkat", AT, FdPath(0), AT, "new", SYMLINK_FOLLOW), judged_as="write"
    ),
    "linkat of a descriptor's link": case(("openat", AT, "file", 0), ("linkat", AT, FdPath(0), AT, "new", 0)),
    "linkat of an empty path without the flag": case(("openat", AT, "file", 0), ("linkat", Fd(0), "", AT, "new", 0)),
    "a file without a name gets one": case(
        ("open", "dir", O_TMPFILE | O_RDWR, 0o600),
        ("linkat", AT, FdPath(0), AT, "new", SYMLINK_FOLLOW),
        ("stat", "new", Out(144)),
    ),
    "a removed file gets no new name": case(
        ("open", "empty", 0), ("unlink", "empty"), ("linkat", AT, FdPath(0), AT, "new", SYMLINK_FOLLOW)
    ),
    "linkat of a descriptor by an empty path": case(
        ("openat", AT, "file", 0), ("linkat", Fd(0), "", AT, "new", EMPTY_PATH), judged_as="write"
    ),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
