"""chmod, fchmod, fchmodat and fchmodat2, against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import AT, EMPTY_PATH, LONG_NAME, SYMLINK_NOFOLLOW, Bad, Case, Fd, FdPath, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

CASES: dict[str, Case] = {
    "changes a file": case(("chmod", "file", 0o600), judged_as="chmod"),
    "changes a directory": case(("chmod", "dir", 0o700), judged_as="chmod"),
    "changes what a link leads to": case(("chmod", "link", 0o600), judged_as="chmod"),
    "changes a fifo": case(("chmod", "fifo", 0o600), judged_as="chmod"),
    "takes every right away": case(("chmod", "file", 0), ("open", "file", 0), ("stat", "file", Out(144))),
    "sets the sticky bit": case(("chmod", "dir", 0o1777), judged_as="chmod"),
    "sets set-id bits": case(("chmod", "program", 0o6755), judged_as="chmod"),
    "ignores the file type": case(("chmod", "file", 0o170600), judged_as="chmod"),
    "opens a closed directory": case(("chmod", "closed", 0o755), ("open", "closed/hidden", 0)),
    "a dangling link": case(("chmod", "dangling", 0o600), judged_as="chmod"),
    "a loop": case(("chmod", "loop", 0o600)),
    "nothing": case(("chmod", "absent", 0o600), judged_as="chmod"),
    "a file with a trailing slash": case(("chmod", "file/", 0o600)),
    "a directory with a trailing slash": case(("chmod", "dir/", 0o700), judged_as="chmod"),
    "below a file": case(("chmod", "file/x", 0o600)),
    "where nothing may be searched": case(("chmod", "closed/hidden", 0o600)),
    "a name too long": case(("chmod", LONG_NAME, 0o600)),
    "an empty path": case(("chmod", "", 0o600)),
    "no path": case(("chmod", None, 0o600)),
    "a bad address": case(("chmod", Bad(), 0o600)),
    "fchmod": case(("open", "file", os.O_RDONLY), ("fchmod", Fd(0), 0o600), judged_as="chmod"),
    "fchmod of a directory": case(("open", "dir", os.O_RDONLY), ("fchmod", Fd(0), 0o700), judged_as="chmod"),
    "fchmod of a removed file": case(
        ("open", "empty", 0), ("unlink", "empty"), ("fchmod", Fd(0), 0o600), ("fstat", Fd(0), Out(144))
    ),
    "fchmod of a bad descriptor": case(("fchmod", 77, 0o600)),
    "fchmod of a negative descriptor": case(("fchmod", -1, 0o600)),
    "fchmod of the working directory's number": case(("fchmod", AT, 0o600)),
    "a descriptor's path": case(("open", "file", 0), ("chmod", FdPath(0), 0o600), judged_as="chmod"),
    "fchmodat in a directory": case(("open", "dir", 0), ("fchmodat", Fd(0), "inner", 0o600), judged_as="chmod"),
    "fchmodat in a bad descriptor": case(("fchmodat", 77, "file", 0o600)),
    "fchmodat in a bad descriptor by an absolute name": case(("fchmodat", 77, "{top}/file", 0o600), judged_as="chmod"),
    "fchmodat has no flags": case(("fchmodat", AT, "link", 0o600, SYMLINK_NOFOLLOW), judged_as="chmod"),
    "fchmodat2": case(("fchmodat2", AT, "file", 0o600, 0), judged_as="chmod"),
    "fchmodat2 of a link itself": case(("fchmodat2", AT, "link", 0o600, SYMLINK_NOFOLLOW), judged_as="chmod"),
    "fchmodat2 of a file, not followed": case(("fchmodat2", AT, "file", 0o600, SYMLINK_NOFOLLOW), judged_as="chmod"),
    "fchmodat2 of a descriptor": case(("open", "file", 0), ("fchmodat2", Fd(0), "", 0o600, EMPTY_PATH), judged_as="chmod"),
    "fchmodat2 of an empty path without the flag": case(("open", "file", 0), ("fchmodat2", Fd(0), "", 0o600, 0)),
    "fchmodat2 with unknown flags": case(("fchmodat2", AT, "file", 0o600, 1)),
    "fchmodat2 in a bad descriptor": case(("fchmodat2", 77, "file", 0o600, 0)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
