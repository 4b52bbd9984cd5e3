"""utime, utimes, futimesat and utimensat, against the bare host."""

from __future__ import annotations

import struct

import pytest

from tests.syscalls.comparison import AT, EMPTY_PATH, LONG_NAME, SYMLINK_NOFOLLOW, Bad, Case, Fd, FdPath, Raw, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2
TWO_SECONDS = struct.pack("<qq", 1_000_000, 1_000_001)  # struct utimbuf


def pair(first: int, first_part: int, second: int, second_part: int) -> Raw:
    """struct timespec[2], or timeval[2]."""
    return Raw(struct.pack("<qqqq", first, first_part, second, second_part))


THEN = pair(1_000_000, 123_456, 1_000_001, 654_321)


def of(path: str, *steps: tuple[object, ...]) -> Case:
    """Steps, and what became of the times of *path*."""
    return case(*steps, ("times", path))


CASES: dict[str, Case] = {
    "utime": of("file", ("utime", "file", Raw(TWO_SECONDS))),
    "utime, refused": case(("utime", "file", Raw(TWO_SECONDS)), judged_as="write"),
    "utime to now": of("file", ("utime", "file", Raw(TWO_SECONDS)), ("utime", "file", None)),
    "utime to now, refused": case(("utime", "file", None), judged_as="write"),
    "utime through a link": of("file", ("utime", "link", Raw(TWO_SECONDS))),
    "utime of a directory": of("dir", ("utime", "dir", Raw(TWO_SECONDS))),
    "utime of a dangling link": case(("utime", "dangling", None), judged_as="write"),
    "utime of nothing": case(("utime", "absent", Raw(TWO_SECONDS)), judged_as="write"),
    "utime with bad times": case(("utime", "file", Bad())),
    "utime of nothing with bad times": case(("utime", "absent", Bad())),
    "utime of a bad address": case(("utime", Bad(), None)),
    "utime of an empty path": case(("utime", "", None)),
    "utime of a name too long": case(("utime", LONG_NAME, None)),
    "utime where nothing may be searched": case(("utime", "closed/hidden", None)),
    "utime to now of a file that may only be read": case(("utime", "read-only", None), judged_as="write"),
    "utimes": of("file", ("utimes", "file", THEN)),
    "utimes, refused": case(("utimes", "file", THEN), judged_as="write"),
    "utimes to now": of("file", ("utimes", "file", THEN), ("utimes", "file", None)),
    "utimes with a part that is none": case(("utimes", "file", pair(1, 1_000_000, 1, 0))),
    "utimes with a negative part": case(("utimes", "file", pair(1, 0, 1, -1))),
    "utimes of nothing": case(("utimes", "absent", THEN), judged_as="write"),
    "utimes of a bad address": case(("utimes", Bad(), THEN)),
    "utimes of no path": case(("utimes", None, THEN)),
    "futimesat": of("file", ("futimesat", AT, "file", THEN)),
    "futimesat, refused": case(("futimesat", AT, "file", THEN), judged_as="write"),
    "futimesat in a directory": of("dir/inner", ("open", "dir", 0), ("futimesat", Fd(0), "inner", THEN)),
    "futimesat of a descriptor": of("file", ("open", "file", 0), ("futimesat", Fd(0), None, THEN)),
    "futimesat of a descriptor, refused": case(("open", "file", 0), ("futimesat", Fd(0), None, THEN), judged_as="write"),
    "futimesat of a bad descriptor": case(("futimesat", 77, None, THEN)),
    "futimesat of no path here": case(("futimesat", AT, None, THEN)),
    "utimensat": of("file", ("utimensat", AT, "file", THEN, 0)),
    "utimensat, refused": case(("utimensat", AT, "file", THEN, 0), judged_as="write"),
    "utimensat to now": of("file", ("utimensat", AT, "file", THEN, 0), ("utimensat", AT, "file", None, 0)),
    "utimensat of one time": of("file", ("utimensat", AT, "file", THEN, 0), ("utimensat", AT, "file", pair(7, OMIT, 5, 5), 0)),
    "utimensat of the other": of("file", ("utimensat", AT, "file", THEN, 0), ("utimensat", AT, "file", pair(5, 5, 7, NOW), 0)),
    "utimensat of neither": of("file", ("utimensat", AT, "file", THEN, 0), ("utimensat", AT, "file", pair(7, OMIT, 7, OMIT), 0)),
    "utimensat of neither, of nothing": case(("utimensat", AT, "absent", pair(7, OMIT, 7, OMIT), 0)),
    "utimensat of neither, of a bad descriptor": case(("utimensat", 77, None, pair(7, OMIT, 7, OMIT), 0)),
    "utimensat with a part that is none": case(("utimensat", AT, "file", pair(1, 1 << 31, 1, 0), 0)),
    "utimensat with bad times": case(("utimensat", AT, "file", Bad(), 0)),
    "utimensat follows": of("file", ("utimensat", AT, "link", THEN, 0)),
    "utimensat of a link": of("link", ("utimensat", AT, "link", THEN, SYMLINK_NOFOLLOW)),
    "utimensat of a link, refused": case(("utimensat", AT, "dangling", THEN, SYMLINK_NOFOLLOW), judged_as="write"),
    "utimensat in a directory": of("dir/inner", ("open", "dir", 0), ("utimensat", Fd(0), "inner", THEN, 0)),
    "utimensat of a descriptor": of("file", ("open", "file", 0), ("utimensat", Fd(0), None, THEN, 0)),
    "utimensat of a descriptor, refused": case(("open", "file", 0), ("utimensat", Fd(0), None, THEN, 0), judged_as="write"),
    "utimensat of a descriptor to now, refused": case(
        ("open", "file", 0), ("utimensat", Fd(0), None, None, 0), judged_as="write"
    ),
    "utimensat of a descriptor with a flag": case(("open", "file", 0), ("utimensat", Fd(0), None, THEN, SYMLINK_NOFOLLOW)),
    "utimensat of a descriptor with an empty path": of("file", ("open", "file", 0), ("utimensat", Fd(0), "", THEN, EMPTY_PATH)),
    "utimensat with an empty path, refused": case(
        ("open", "file", 0), ("utimensat", Fd(0), "", THEN, EMPTY_PATH), judged_as="write"
    ),
    "utimensat of an empty path": case(("open", "file", 0), ("utimensat", Fd(0), "", THEN, 0)),
    "utimensat of a descriptor's path": of("file", ("open", "file", 0), ("utimensat", AT, FdPath(0), THEN, 0)),
    "utimensat of a removed file": case(("open", "empty", 0), ("unlink", "empty"), ("utimensat", Fd(0), None, THEN, 0)),
    "utimensat with unknown flags": case(("utimensat", AT, "file", THEN, 1)),
    "utimensat of a bad descriptor": case(("utimensat", 77, None, THEN, 0)),
    "utimensat in a bad descriptor": case(("utimensat", 77, "file", THEN, 0)),
    "utimensat of no path here": case(("utimensat", AT, None, THEN, 0)),
    "utimensat of nothing": case(("utimensat", AT, "absent", THEN, 0), judged_as="write"),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
