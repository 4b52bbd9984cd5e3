"""setxattrat, getxattrat, listxattrat and removexattrat (Linux 6.13), against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import AT, EMPTY_PATH, SYMLINK_NOFOLLOW, Bad, Case, Fd, Out, Raw, Step, Words, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

NAME = "user.name"
SIZE = 16  # of struct xattr_args: an address, a size, flags
CREATE, REPLACE = 1, 2


def arguments(value: object, size: int, flags: int = 0) -> Words:
    """struct xattr_args."""
    return Words((value, size | flags << 32))


VALUE = arguments(Raw(b"value"), 5)
SET: Step = ("setxattrat", AT, "file", 0, NAME, VALUE, SIZE)
SHOWN: Step = ("attributes", "file")

SETTING: dict[str, Case] = {
    "set": case(SET, SHOWN),
    "set, refused": case(SET, judged_as="write"),
    "set follows": case(("setxattrat", AT, "link", 0, NAME, VALUE, SIZE), SHOWN),
    "set on a link": case(("setxattrat", AT, "link", SYMLINK_NOFOLLOW, NAME, VALUE, SIZE)),
    "set on a link, refused": case(("setxattrat", AT, "dangling", SYMLINK_NOFOLLOW, NAME, VALUE, SIZE), judged_as="write"),
    "set on nothing": case(("setxattrat", AT, "absent", 0, NAME, VALUE, SIZE), judged_as="write"),
    "set in a directory": case(
        ("open", "dir", 0), ("setxattrat", Fd(0), "inner", 0, NAME, VALUE, SIZE), ("attributes", "dir/inner")
    ),
    "set on a descriptor": case(("open", "file", 0), ("setxattrat", Fd(0), "", EMPTY_PATH, NAME, VALUE, SIZE), SHOWN),
    "set on a descriptor, refused": case(
        ("open", "file", 0), ("setxattrat", Fd(0), "", EMPTY_PATH, NAME, VALUE, SIZE), judged_as="write"
    ),
    "set on a descriptor without a path": case(
        ("open", "file", 0), ("setxattrat", Fd(0), None, EMPTY_PATH, NAME, VALUE, SIZE), SHOWN
    ),
    "set on an empty path": case(("open", "file", 0), ("setxattrat", Fd(0), "", 0, NAME, VALUE, SIZE)),
    "set with unknown flags": case(("setxattrat", AT, "file", 1, NAME, VALUE, SIZE)),
    "set with flags of its own": case(("setxattrat", AT, "file", 0, NAME, arguments(Raw(b"value"), 5, CREATE), SIZE), SHOWN),
    "replace what is not there": case(("setxattrat", AT, "file", 0, NAME, arguments(Raw(b"value"), 5, REPLACE), SIZE)),
    "set with flags that are none": case(("setxattrat", AT, "file", 0, NAME, arguments(Raw(b"value"), 5, 8), SIZE)),
    "a structure too short": case(("setxattrat", AT, "file", 0, NAME, VALUE, SIZE - 1)),
    "a structure of no size": case(("setxattrat", AT, "file", 0, NAME, VALUE, 0)),
    "a longer structure of zeros": case(("setxattrat", AT, "file", 0, NAME, Words((Raw(b"value"), 5, 0)), SIZE + 8), SHOWN),
    "a longer structure with something in it": case(("setxattrat", AT, "file", 0, NAME, Words((Raw(b"value"), 5, 1)), SIZE + 8)),
    "a structure longer than a page": case(("setxattrat", AT, "file", 0, NAME, Raw(bytes(5000)), 5000)),
    "a bad structure": case(("setxattrat", AT, "file", 0, NAME, Bad(), SIZE)),
    "a bad value": case(("setxattrat", AT, "file", 0, NAME, arguments(Bad(), 5), SIZE)),
    "a bad name": case(("setxattrat", AT, "file", 0, Bad(), VALUE, SIZE)),
    "a bad descriptor": case(("setxattrat", 77, "file", 0, NAME, VALUE, SIZE)),
    "a bad descriptor with an empty path": case(("setxattrat", 77, "", EMPTY_PATH, NAME, VALUE, SIZE)),
}

GETTING: dict[str, Case] = {
    "get": case(SET, ("getxattrat", AT, "file", 0, NAME, arguments(Out(9), 9), SIZE)),
    "get, refused": case(("getxattrat", AT, "file", 0, NAME, arguments(Out(9), 9), SIZE), judged_as="read"),
    "get the size": case(SET, ("getxattrat", AT, "file", 0, NAME, arguments(None, 0), SIZE)),
    "get into too little room": case(SET, ("getxattrat", AT, "file", 0, NAME, arguments(Out(2), 2), SIZE)),
    "get of nothing": case(("getxattrat", AT, "absent", 0, NAME, arguments(Out(9), 9), SIZE), judged_as="read"),
    "get of a link": case(("getxattrat", AT, "link", SYMLINK_NOFOLLOW, NAME, arguments(Out(9), 9), SIZE)),
    "get with flags of its own": case(SET, ("getxattrat", AT, "file", 0, NAME, arguments(Out(9), 9, CREATE), SIZE)),
    "get of a descriptor": case(
        SET, ("open", "file", 0), ("getxattrat", Fd(1), "", EMPTY_PATH, NAME, arguments(Out(9), 9), SIZE)
    ),
    "get of a descriptor, refused": case(
        ("open", "file", os.O_WRONLY), ("getxattrat", Fd(0), "", EMPTY_PATH, NAME, arguments(Out(9), 9), SIZE), judged_as="read"
    ),
}

LISTING: dict[str, Case] = {
    "list": case(SET, ("listxattrat", AT, "file", 0, Out(200), 200)),
    "list, refused": case(("listxattrat", AT, "file", 0, Out(200), 200), judged_as="read"),
    "list nothing": case(("listxattrat", AT, "absent", 0, Out(200), 200), judged_as="read"),
    "list a link": case(("listxattrat", AT, "link", SYMLINK_NOFOLLOW, Out(200), 200)),
    "list a descriptor": case(SET, ("open", "file", 0), ("listxattrat", Fd(1), "", EMPTY_PATH, Out(200), 200)),
    "list a descriptor, refused": case(
        ("open", "file", os.O_WRONLY), ("listxattrat", Fd(0), "", EMPTY_PATH, Out(200), 200), judged_as="read"
    ),
    "list with unknown flags": case(("listxattrat", AT, "file", 1, Out(200), 200)),
}

REMOVING: dict[str, Case] = {
    "remove": case(SET, ("removexattrat", AT, "file", 0, NAME), SHOWN),
    "remove, refused": case(("removexattrat", AT, "file", 0, NAME), judged_as="write"),
    "remove what is not there": case(("removexattrat", AT, "file", 0, NAME)),
    "remove of nothing": case(("removexattrat", AT, "absent", 0, NAME), judged_as="write"),
    "remove of a link": case(("removexattrat", AT, "dangling", SYMLINK_NOFOLLOW, NAME), judged_as="write"),
    "remove of a descriptor": case(SET, ("open", "file", 0), ("removexattrat", Fd(1), "", EMPTY_PATH, NAME), SHOWN),
    "remove of a descriptor, refused": case(
        ("open", "file", 0), ("removexattrat", Fd(0), "", EMPTY_PATH, NAME), judged_as="write"
    ),
    "remove with unknown flags": case(("removexattrat", AT, "file", 1, NAME)),
}

CASES = SETTING | GETTING | LISTING | REMOVING


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
