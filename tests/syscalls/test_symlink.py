"""symlink and symlinkat, against the bare host."""

from __future__ import annotations

import pytest

from tests.syscalls.comparison import AT, LONG_NAME, Bad, Case, Fd, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

CASES: dict[str, Case] = {
    "makes a link": case(("symlink", "file", "new"), judged_as="symlink"),
    "makes a dangling link": case(("symlink", "nowhere/at/all", "new"), judged_as="symlink"),
    "keeps the text as it is": case(("symlink", "//a/.././b//", "new"), ("readlink", "new", Out(64), 64)),
    "makes a loop": case(("symlink", "new", "new"), ("open", "new", 0)),
    "of a text as long as a path may be": case(("symlink", "t" * 4095, "new"), judged_as="symlink"),
    "of a text too long": case(("symlink", "t" * 4096, "new")),
    "of an empty text": case(("symlink", "", "new")),
    "through a link to a directory": case(("symlink", "x", "dir-link/new"), judged_as="symlink"),
    "where a file is": case(("symlink", "x", "file"), judged_as="symlink"),
    "where a directory is": case(("symlink", "x", "dir"), judged_as="symlink"),
    "where a dangling link is": case(("symlink", "x", "dangling"), judged_as="symlink"),
    "with a trailing slash": case(("symlink", "x", "new/")),
    "with a trailing slash where a directory is": case(("symlink", "x", "dir/")),
    "as dot": case(("symlink", "x", ".")),
    "as dot dot": case(("symlink", "x", "dir/..")),
    "as the root": case(("symlink", "x", "/")),
    "below a file": case(("symlink", "x", "file/new")),
    "below nothing": case(("symlink", "x", "absent/new")),
    "below a loop": case(("symlink", "x", "loop/new")),
    "below a directory that may not be searched": case(("symlink", "x", "closed/new")),
    "as a name too long": case(("symlink", "x", LONG_NAME)),
    "as an empty path": case(("symlink", "x", "")),
    "of no text": case(("symlink", None, "new")),
    "of a bad address": case(("symlink", Bad(), "new")),
    "as no path": case(("symlink", "x", None)),
    "as a bad address": case(("symlink", "x", Bad())),
    "umask does not matter": case(("umask", 0o777), ("symlink", "file", "new"), judged_as="symlink"),
    "symlinkat in a directory": case(("openat", AT, "dir", 0), ("symlinkat", "inner", Fd(0), "new"), judged_as="symlink"),
    "symlinkat in a bad descriptor": case(("symlinkat", "x", 77, "new")),
    "symlinkat in a bad descriptor by an absolute name": case(("symlinkat", "x", 77, "{top}/new"), judged_as="symlink"),
    "symlinkat in a file": case(("openat", AT, "file", 0), ("symlinkat", "x", Fd(0), "new")),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
