"""getdents and getdents64 on directories opened through the supervisor, against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import Bad, Case, Fd, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY

CASES: dict[str, Case] = {
    "lists a directory": case(("open", "dir", DIRECTORY), ("getdents64", Fd(0), Out(4096), 4096)),
    "lists a directory in the old form": case(("open", "dir", DIRECTORY), ("getdents", Fd(0), Out(4096), 4096)),
    "lists the working directory": case(("open", ".", DIRECTORY), ("getdents64", Fd(0), Out(8192), 8192)),
    "lists through a link": case(("open", "dir-link", DIRECTORY), ("getdents64", Fd(0), Out(4096), 4096)),
    "ends": case(("open", "dir", DIRECTORY), ("getdents64", Fd(0), Out(4096), 4096), ("getdents64", Fd(0), Out(4096), 4096)),
    "lists what was made meanwhile": case(
        ("open", "empty-dir", DIRECTORY), ("mkdir", "empty-dir/new", 0o755), ("getdents64", Fd(0), Out(4096), 4096)
    ),
    "a removed directory": case(("open", "empty-dir", DIRECTORY), ("rmdir", "empty-dir"), ("getdents64", Fd(0), Out(4096), 4096)),
    "a file": case(("open", "file", os.O_RDONLY), ("getdents64", Fd(0), Out(4096), 4096)),
    "a bad descriptor": case(("getdents64", 77, Out(4096), 4096)),
    "into a bad address": case(("open", "dir", DIRECTORY), ("getdents64", Fd(0), Bad(), 4096)),
    "into too little room": case(("open", "dir", DIRECTORY), ("getdents64", Fd(0), Out(8), 8)),
    "a directory cannot be read": case(("open", "dir", DIRECTORY), ("read", Fd(0), Out(10), 10)),
    "opening to list": case(("open", "dir", DIRECTORY), judged_as="readdir"),
    "opening to list through a link": case(("open", "dir-link", DIRECTORY), judged_as="readdir"),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
