"""rename, renameat and renameat2, against the bare host."""

from __future__ import annotations

import pytest

from tests.syscalls.comparison import AT, LONG_NAME, Bad, Case, Fd, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4

CASES: dict[str, Case] = {
    "moves a file": case(("rename", "file", "new"), judged_as="rename"),
    "moves a file into a directory": case(("rename", "file", "dir/new"), judged_as="rename"),
    "moves a directory": case(("rename", "dir", "new"), judged_as="rename"),
    "moves a link, not what it leads to": case(("rename", "link", "new"), judged_as="rename"),
    "moves a dangling link": case(("rename", "dangling", "new"), judged_as="rename"),
    "moves a fifo": case(("rename", "fifo", "new"), judged_as="rename"),
    "moves through links to directories": case(("rename", "dir-link/inner", "dir-link/sub/new"), judged_as="rename"),
    "replaces a file": case(("rename", "file", "empty"), judged_as="rename"),
    "replaces a link, not what it leads to": case(("rename", "file", "link"), judged_as="rename"),
    "replaces an empty directory": case(("rename", "dir", "empty-dir"), judged_as="rename"),
    "what is replaced lives on while it is open": case(
        ("open", "empty", 0), ("rename", "file", "empty"), ("fstat", Fd(0), Out(144))
    ),
    "onto itself": case(("rename", "file", "file"), judged_as="rename"),
    "onto another name of the same file": case(("rename", "file", "hard"), judged_as="rename"),
    "a file onto a directory": case(("rename", "file", "empty-dir"), judged_as="rename"),
    "a directory onto a file": case(("rename", "dir", "file"), judged_as="rename"),
    "a directory onto a full directory": case(("rename", "empty-dir", "dir"), judged_as="rename"),
    "a directory into itself": case(("rename", "dir", "dir/sub/new"), judged_as="rename"),
    "a directory onto its parent": case(("rename", "dir/sub", "dir"), judged_as="rename"),
    "nothing": case(("rename", "absent", "new"), judged_as="rename"),
    "nothing onto something": case(("rename", "absent", "file"), judged_as="rename"),
    "below a file": case(("rename", "file/x", "new")),
    "to below a file": case(("rename", "empty", "file/new")),
    "to below nothing": case(("rename", "file", "absent/new")),
    "to a directory that may not be searched": case(("rename", "file", "closed/new")),
    "from a directory that may not be searched": case(("rename", "closed/hidden", "new")),
    "from below a loop": case(("rename", "loop/x", "new")),
    "a directory with trailing slashes": case(("rename", "dir/", "new/"), judged_as="rename"),
    "a file with a trailing slash": case(("rename", "file/", "new")),
    "a file to a name with a trailing slash": case(("rename", "file", "new/")),
    "a link to a directory with a trailing slash": case(("rename", "dir-link/", "new")),
    "dot": case(("rename", ".", "new")),
    "dot dot": case(("rename", "dir/..", "new")),
    "to dot": case(("rename", "dir", "empty-dir/.")),
    "a name too long": case(("rename", "file", LONG_NAME)),
    "from a name too long": case(("rename", LONG_NAME, "new")),
    "an empty old path": case(("rename", "", "new")),
    "an empty new path": case(("rename", "file", "")),
    "no old path": case(("rename", None, "new")),
    "no new path": case(("rename", "file", None)),
    "a bad address": case(("rename", "file", Bad())),
    "renameat between directories": case(
        ("openat", AT, "dir", 0), ("openat", AT, "empty-dir", 0), ("renameat", Fd(0), "inner", Fd(1), "new"), judged_as="rename"
    ),
    "renameat in bad descriptors": case(("renameat", 77, "file", AT, "new")),
    "renameat to a bad descriptor": case(("renameat", AT, "file", 77, "new")),
    "renameat in bad descriptors by absolute names": case(("renameat", 77, "{top}/file", 78, "{top}/new"), judged_as="rename"),
    "renameat2 without flags": case(("renameat2", AT, "file", AT, "new", 0), judged_as="rename"),
    "noreplace to a free name": case(("renameat2", AT, "file", AT, "new", NOREPLACE), judged_as="rename"),
    "noreplace onto a file": case(("renameat2", AT, "file", AT, "empty", NOREPLACE), judged_as="rename"),
    "noreplace onto itself": case(("renameat2", AT, "file", AT, "file", NOREPLACE), judged_as="rename"),
    "noreplace onto a dangling link": case(("renameat2", AT, "file", AT, "dangling", NOREPLACE), judged_as="rename"),
    "exchange of files": case(("renameat2", AT, "file", AT, "empty", EXCHANGE), judged_as="rename"),
    "exchange of a file and a directory": case(("renameat2", AT, "file", AT, "dir", EXCHANGE), judged_as="rename"),
    "exchange of links": case(("renameat2", AT, "link", AT, "dir-link", EXCHANGE), judged_as="rename"),
    "exchange with nothing": case(("renameat2", AT, "file", AT, "absent", EXCHANGE), judged_as="rename"),
    "exchange with a parent": case(("renameat2", AT, "dir", AT, "dir/sub", EXCHANGE), judged_as="rename"),
    "exchange and noreplace": case(("renameat2", AT, "file", AT, "empty", EXCHANGE | NOREPLACE)),
    "exchange and whiteout": case(("renameat2", AT, "file", AT, "empty", EXCHANGE | WHITEOUT)),
    "unknown flags": case(("renameat2", AT, "file", AT, "new", 8)),
    "a file in a sticky directory of one's own": case(("rename", "file", "sticky/new"), judged_as="rename"),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
