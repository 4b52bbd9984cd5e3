"""unlink, unlinkat and rmdir, against the bare host."""

from __future__ import annotations

import pytest

from tests.syscalls.comparison import AT, LONG_NAME, REMOVEDIR, Bad, Case, Fd, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

CASES: dict[str, Case] = {
    "removes a file": case(("unlink", "file"), judged_as="rm"),
    "removes one name of two": case(("unlink", "hard"), ("stat", "file", Out(144))),
    "removes a link, not what it leads to": case(("unlink", "link"), judged_as="rm"),
    "removes a dangling link": case(("unlink", "dangling"), judged_as="rm"),
    "removes a loop": case(("unlink", "loop"), judged_as="rm"),
    "removes a fifo": case(("unlink", "fifo"), judged_as="rm"),
    "removes a read-only file": case(("unlink", "read-only"), judged_as="rm"),
    "follows a link on the way": case(("unlink", "dir-link/inner"), judged_as="rm"),
    "an open file lives on": case(("open", "file", 0), ("unlink", "hard"), ("unlink", "file"), ("fstat", Fd(0), Out(144))),
    "nothing there": case(("unlink", "absent"), judged_as="rm"),
    "a directory": case(("unlink", "dir"), judged_as="rm"),
    "an empty directory": case(("unlink", "empty-dir"), judged_as="rm"),
    "a link to a directory": case(("unlink", "dir-link"), judged_as="rm"),
    "a file with a trailing slash": case(("unlink", "file/")),
    "a directory with a trailing slash": case(("unlink", "dir/")),
    "a link with a trailing slash": case(("unlink", "link/")),
    "a link to a directory with a trailing slash": case(("unlink", "dir-link/")),
    "nothing with a trailing slash": case(("unlink", "absent/")),
    "dot": case(("unlink", ".")),
    "dot dot": case(("unlink", "..")),
    "the root": case(("unlink", "/")),
    "below a file": case(("unlink", "file/x")),
    "below nothing": case(("unlink", "absent/x")),
    "below a loop": case(("unlink", "loop/x")),
    "in a directory that may not be searched": case(("unlink", "closed/hidden")),
    "a name too long": case(("unlink", LONG_NAME)),
    "a path too long": case(("unlink", "./" * 2048 + "file")),
    "an empty path": case(("unlink", "")),
    "no path": case(("unlink", None)),
    "a bad address": case(("unlink", Bad())),
    "unlinkat in the working directory": case(("unlinkat", AT, "file", 0), judged_as="rm"),
    "unlinkat in a directory": case(("openat", AT, "dir", 0), ("unlinkat", Fd(0), "inner", 0), judged_as="rm"),
    "unlinkat up from a directory": case(("openat", AT, "dir/sub", 0), ("unlinkat", Fd(0), "../inner", 0), judged_as="rm"),
    "unlinkat of a directory": case(("unlinkat", AT, "empty-dir", REMOVEDIR), judged_as="rm"),
    "unlinkat of a full directory": case(("unlinkat", AT, "dir", REMOVEDIR), judged_as="rm"),
    "unlinkat of a file as a directory": case(("unlinkat", AT, "file", REMOVEDIR), judged_as="rm"),
    "unlinkat with unknown flags": case(("unlinkat", AT, "file", 0x1)),
    "unlinkat in a bad descriptor": case(("unlinkat", 77, "file", 0)),
    "unlinkat in a file": case(("openat", AT, "file", 0), ("unlinkat", Fd(0), "x", 0)),
    "unlinkat with an empty path": case(("openat", AT, "dir", 0), ("unlinkat", Fd(0), "", REMOVEDIR)),
    "rmdir": case(("rmdir", "empty-dir"), judged_as="rm"),
    "rmdir with a trailing slash": case(("rmdir", "empty-dir/"), judged_as="rm"),
    "rmdir of a full directory": case(("rmdir", "dir"), judged_as="rm"),
    "rmdir of a file": case(("rmdir", "file"), judged_as="rm"),
    "rmdir of nothing": case(("rmdir", "absent"), judged_as="rm"),
    "rmdir of a link to a directory": case(("rmdir", "dir-link"), judged_as="rm"),
    "rmdir of a link to a directory with a trailing slash": case(("rmdir", "dir-link/")),
    "rmdir of dot": case(("rmdir", ".")),
    "rmdir of dot in a directory": case(("rmdir", "empty-dir/.")),
    "rmdir of dot with slashes": case(("rmdir", "empty-dir/.//")),
    "rmdir of dot dot": case(("rmdir", "dir/sub/..")),
    "rmdir of the root": case(("rmdir", "/")),
    "rmdir of an empty path": case(("rmdir", "")),
    "rmdir of a directory that may not be read": case(("chmod", "empty-dir", 0), ("rmdir", "empty-dir")),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
