"""file_getattr and file_setattr (Linux 6.17), against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import AT, EMPTY_PATH, SYMLINK_NOFOLLOW, Bad, Case, Fd, Out, Raw, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

SIZE = 24  # of struct file_attr
NODUMP = 0x80
NOTHING, SKIPPED_BY_DUMPS = Raw(bytes(SIZE)), Raw(NODUMP.to_bytes(8, "little") + bytes(SIZE - 8))
SEEN = ("file_getattr", AT, "file", Out(SIZE), SIZE, 0)

GETTING: dict[str, Case] = {
    "get": case(SEEN),
    "get, refused": case(SEEN, judged_as="stat"),
    "get of a directory": case(("file_getattr", AT, "dir", Out(SIZE), SIZE, 0), judged_as="stat"),
    "get follows": case(("file_getattr", AT, "link", Out(SIZE), SIZE, 0), judged_as="stat"),
    "get of a link": case(("file_getattr", AT, "dangling", Out(SIZE), SIZE, SYMLINK_NOFOLLOW), judged_as="stat"),
    "get of a dangling link": case(("file_getattr", AT, "dangling", Out(SIZE), SIZE, 0), judged_as="stat"),
    "get of nothing": case(("file_getattr", AT, "absent", Out(SIZE), SIZE, 0), judged_as="stat"),
    "get in a directory": case(("open", "dir", 0), ("file_getattr", Fd(0), "inner", Out(SIZE), SIZE, 0), judged_as="stat"),
    "get of a descriptor": case(("open", "file", 0), ("file_getattr", Fd(0), "", Out(SIZE), SIZE, EMPTY_PATH)),
    "get of an empty path": case(("open", "file", 0), ("file_getattr", Fd(0), "", Out(SIZE), SIZE, 0)),
    "get into too little room": case(("file_getattr", AT, "file", Out(SIZE), SIZE - 1, 0)),
    "get into more room": case(("file_getattr", AT, "file", Out(40), 40, 0)),
    "get into a bad address": case(("file_getattr", AT, "file", Bad(), SIZE, 0)),
    "get with unknown flags": case(("file_getattr", AT, "file", Out(SIZE), SIZE, 1)),
    "get in a bad descriptor": case(("file_getattr", 77, "file", Out(SIZE), SIZE, 0)),
}

SETTING: dict[str, Case] = {
    "set": case(("file_setattr", AT, "file", SKIPPED_BY_DUMPS, SIZE, 0), SEEN),
    "set, refused": case(("file_setattr", AT, "file", SKIPPED_BY_DUMPS, SIZE, 0), judged_as="write"),
    "set nothing, refused": case(("file_setattr", AT, "file", NOTHING, SIZE, 0), judged_as="write"),
    "set follows": case(("file_setattr", AT, "link", SKIPPED_BY_DUMPS, SIZE, 0), SEEN),
    "set of a link, refused": case(("file_setattr", AT, "dangling", NOTHING, SIZE, SYMLINK_NOFOLLOW), judged_as="write"),
    "set of nothing": case(("file_setattr", AT, "absent", NOTHING, SIZE, 0), judged_as="write"),
    "set of a descriptor": case(("open", "file", 0), ("file_setattr", Fd(0), "", SKIPPED_BY_DUMPS, SIZE, EMPTY_PATH), SEEN),
    "set of a descriptor, refused": case(
        ("open", "file", os.O_RDONLY), ("file_setattr", Fd(0), "", NOTHING, SIZE, EMPTY_PATH), judged_as="write"
    ),
    "set what only an administrator may": case(("file_setattr", AT, "file", Raw(b"\x08" + bytes(23)), SIZE, 0)),
    "set what is none": case(("file_setattr", AT, "file", Raw(b"\xff" * SIZE), SIZE, 0)),
    "set with too short a structure": case(("file_setattr", AT, "file", NOTHING, SIZE - 1, 0)),
    "set with a longer structure of zeros": case(("file_setattr", AT, "file", Raw(bytes(40)), 40, 0)),
    "set with a longer structure with something in it": case(("file_setattr", AT, "file", Raw(bytes(39) + b"x"), 40, 0)),
    "set with a very long structure of zeros": case(("file_setattr", AT, "file", Raw(bytes(4000)), 4000, 0)),
    "set with a structure longer than a page": case(("file_setattr", AT, "file", Raw(bytes(5000)), 5000, 0)),
    "set with a bad structure": case(("file_setattr", AT, "file", Bad(), SIZE, 0)),
    "set with unknown flags": case(("file_setattr", AT, "file", NOTHING, SIZE, 1)),
}

CASES = GETTING | SETTING


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
