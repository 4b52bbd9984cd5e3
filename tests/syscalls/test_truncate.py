"""truncate and ftruncate, against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import LONG_NAME, Bad, Case, Fd, FdPath, Out, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

CASES: dict[str, Case] = {
    "shortens": case(("truncate", "file", 3), judged_as="truncate"),
    "empties": case(("truncate", "file", 0), judged_as="truncate"),
    "lengthens": case(("truncate", "file", 40), judged_as="truncate"),
    "to the length it has": case(("truncate", "file", 16), judged_as="truncate"),
    "through a link": case(("truncate", "link", 3), judged_as="truncate"),
    "a dangling link": case(("truncate", "dangling", 3), judged_as="truncate"),
    "a loop": case(("truncate", "loop", 3)),
    "nothing": case(("truncate", "absent", 3), judged_as="truncate"),
    "a directory": case(("truncate", "dir", 3), judged_as="truncate"),
    "a fifo": case(("truncate", "fifo", 3), judged_as="truncate"),
    "a read-only file": case(("truncate", "read-only", 3), judged_as="truncate"),
    "a file that may only be written": case(("truncate", "write-only", 3), judged_as="truncate"),
    "a file with a trailing slash": case(("truncate", "file/", 3)),
    "below a file": case(("truncate", "file/x", 3)),
    "where nothing may be searched": case(("truncate", "closed/hidden", 3)),
    "to a negative length": case(("truncate", "file", -1)),
    "nothing to a negative length": case(("truncate", "absent", -1)),
    "a name too long": case(("truncate", LONG_NAME, 3)),
    "an empty path": case(("truncate", "", 3)),
    "no path": case(("truncate", None, 3)),
    "a bad address": case(("truncate", Bad(), 3)),
    "a descriptor's path": case(("open", "file", os.O_RDONLY), ("truncate", FdPath(0), 3), judged_as="truncate"),
    "ftruncate": case(("open", "file", os.O_WRONLY), ("ftruncate", Fd(0), 3), judged_as="truncate"),
    "ftruncate of a descriptor that is only read": case(("open", "file", os.O_RDONLY), ("ftruncate", Fd(0), 3)),
    "ftruncate of a directory": case(("open", "dir", os.O_RDONLY), ("ftruncate", Fd(0), 3)),
    "ftruncate to a negative length": case(("open", "file", os.O_WRONLY), ("ftruncate", Fd(0), -1)),
    "ftruncate of a bad descriptor": case(("ftruncate", 77, 3)),
    "ftruncate of a removed file": case(
        ("open", "empty", os.O_RDWR), ("unlink", "empty"), ("ftruncate", Fd(0), 3), ("fstat", Fd(0), Out(144))
    ),
    "ftruncate of an appending descriptor": case(("open", "file", os.O_WRONLY | os.O_APPEND), ("ftruncate", Fd(0), 3)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
