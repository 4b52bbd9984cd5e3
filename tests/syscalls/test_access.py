"""access, faccessat and faccessat2, against the bare host."""

from __future__ import annotations

import pytest

from tests.syscalls.comparison import AT, EACCESS, EMPTY_PATH, LONG_NAME, SYMLINK_NOFOLLOW, Bad, Case, Fd, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

F, X, W, R = 0, 1, 2, 4
MODES = {"existing": F, "executing": X, "writing": W, "reading": R, "everything": R | W | X}
PATHS = ("file", "read-only", "write-only", "program", "dir", "closed", "link", "dir-link", "fifo", "dangling", "absent")

CASES: dict[str, Case] = {
    **{
        f"access to {path} for {name}": case(("access", path, mode), judged_as="stat")
        for path in PATHS
        for name, mode in MODES.items()
    },
    "access with an unknown mode": case(("access", "file", 8)),
    "access to a loop": case(("access", "loop", F)),
    "access below a file": case(("access", "file/x", F)),
    "access with a trailing slash": case(("access", "file/", F)),
    "access to a directory with a trailing slash": case(("access", "dir/", X), judged_as="stat"),
    "access where nothing may be searched": case(("access", "closed/hidden", F)),
    "access to a name too long": case(("access", LONG_NAME, F)),
    "access to an empty path": case(("access", "", F)),
    "access to no path": case(("access", None, F)),
    "access to a bad address": case(("access", Bad(), F)),
    "faccessat in a directory": case(("open", "dir", 0), ("faccessat", Fd(0), "inner", R), judged_as="stat"),
    "faccessat in a bad descriptor": case(("faccessat", 77, "file", R)),
    "faccessat in a bad descriptor by an absolute name": case(("faccessat", 77, "{top}/file", R), judged_as="stat"),
    "faccessat has no flags": case(("faccessat", AT, "link", R, SYMLINK_NOFOLLOW), judged_as="stat"),
    "faccessat2": case(("faccessat2", AT, "file", R, 0), judged_as="stat"),
    "faccessat2 for the effective ids": case(("faccessat2", AT, "read-only", W, EACCESS), judged_as="stat"),
    "faccessat2 of a link itself": case(("faccessat2", AT, "dangling", F, SYMLINK_NOFOLLOW), judged_as="stat"),
    "faccessat2 for writing a link itself": case(("faccessat2", AT, "link", R | W | X, SYMLINK_NOFOLLOW), judged_as="stat"),
    "faccessat2 of a descriptor": case(("open", "read-only", 0), ("faccessat2", Fd(0), "", W, EMPTY_PATH), judged_as="stat"),
    "faccessat2 of an empty path without the flag": case(("open", "file", 0), ("faccessat2", Fd(0), "", R, 0)),
    "faccessat2 with unknown flags": case(("faccessat2", AT, "file", R, 1)),
    "faccessat2 with an unknown mode": case(("faccessat2", AT, "file", 8, 0)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
