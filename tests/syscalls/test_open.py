"""open, openat and creat, against the bare host."""

from __future__ import annotations

import os

import pytest

from tests.syscalls.comparison import AT, LONG_NAME, Bad, Case, Fd, FdPath, Out, Raw, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
CREAT, EXCL, TRUNC, APPEND = os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND
DIRECTORY, NOFOLLOW, CLOEXEC, NONBLOCK, TMPFILE = os.O_DIRECTORY, os.O_NOFOLLOW, os.O_CLOEXEC, os.O_NONBLOCK, os.O_TMPFILE
UNKNOWN_FLAG = 1 << 30

READING: dict[str, Case] = {
    "a file": case(("open", "file", R), judged_as="read"),
    "a file by its absolute name": case(("open", "{top}/file", R), judged_as="read"),
    "an empty file": case(("open", "empty", R), judged_as="read"),
    "through a link": case(("open", "link", R), judged_as="read"),
    "through a link to a link": case(("open", "link-to-link", R), judged_as="read"),
    "through an absolute link": case(("open", "absolute", R), judged_as="read"),
    "through a link to a directory": case(("open", "dir-link/inner", R), judged_as="read"),
    "through a link with a slash in its text": case(("open", "link-slash/inner", R), judged_as="read"),
    "up and down again": case(("open", "dir/sub/../../file", R), judged_as="read"),
    "up from where a link leads": case(("open", "dir-link/../file", R), judged_as="read"),
    "through a link that goes up": case(("chdir", "dir"), ("open", "../up", R | DIRECTORY)),
    "slashes and dots": case(("open", ".//./dir/.//inner", R), judged_as="read"),
    "forty links": case(("open", "c39", R)),
    "forty-one links": case(("open", "c40", R)),
    "a loop": case(("open", "loop", R)),
    "a dangling link": case(("open", "dangling", R), judged_as="read"),
    "nothing": case(("open", "absent", R), judged_as="read"),
    "below a file": case(("open", "file/x", R)),
    "below nothing": case(("open", "absent/x", R)),
    "a file with a trailing slash": case(("open", "file/", R)),
    "a link with a trailing slash": case(("open", "link/", R)),
    "a link whose text has a trailing slash": case(("open", "file-slash", R)),
    "nothing with a trailing slash": case(("open", "absent/", R)),
    "a file that may only be written": case(("open", "write-only", R), judged_as="read"),
    "in a directory that may not be searched": case(("open", "closed/hidden", R)),
    "a link into a directory that may not be searched": case(("open", "to-closed", R)),
    "a name too long": case(("open", LONG_NAME, R)),
    "a path too long": case(("open", "./" * 2048 + "file", R)),
    "a path that just fits": case(("open", "./" * 2045 + "file", R), judged_as="read"),
    "an empty path": case(("open", "", R)),
    "no path": case(("open", None, R)),
    "a bad address": case(("open", Bad(), R)),
    "close-on-exec": case(("open", "file", R | CLOEXEC), judged_as="read"),
    "other flags": case(("open", "file", R | NONBLOCK | os.O_NOCTTY | os.O_SYNC | os.O_NOATIME), judged_as="read"),
    "flags that are none": case(("open", "file", R | UNKNOWN_FLAG), judged_as="read"),
    "access mode three": case(("open", "file", 3)),
    "a fifo without waiting": case(("open", "fifo", R | NONBLOCK), judged_as="read"),
    "a fifo for writing without a reader": case(("open", "fifo", W | NONBLOCK), judged_as="write"),
    "a fifo for both": case(("open", "fifo", RW)),
    "a socket": case(("mknod", "socket", 0o140644, 0), ("open", "socket", R)),
}

DIRECTORIES: dict[str, Case] = {
    "a directory": case(("open", "dir", R), judged_as="readdir"),
    "a directory as one": case(("open", "dir", R | DIRECTORY), judged_as="readdir"),
    "a directory with a trailing slash": case(("open", "dir/", R), judged_as="readdir"),
    "dot": case(("open", ".", R), judged_as="readdir"),
    "dot dot": case(("open", "dir/..", R), judged_as="readdir"),
    "a link to a directory": case(("open", "dir-link", R | DIRECTORY), judged_as="readdir"),
    "a link to a directory with a trailing slash, not followed": case(("open", "dir-link/", R | NOFOLLOW), judged_as="readdir"),
    "a link to here": case(("open", "self/self/self", R), judged_as="readdir"),
    "a directory for writing": case(("open", "dir", W)),
    "a directory for both": case(("open", "dir", RW)),
    "a directory that may not be read": case(("open", "closed", R | DIRECTORY), judged_as="readdir"),
    "a file as a directory": case(("open", "file", R | DIRECTORY)),
    "a link to a file as a directory": case(("open", "link", R | DIRECTORY)),
    "nothing as a directory": case(("open", "absent", R | DIRECTORY), judged_as="readdir"),
    "truncating a directory": case(("open", "dir", R | TRUNC)),
}

NOT_FOLLOWING: dict[str, Case] = {
    "nofollow of a file": case(("open", "file", R | NOFOLLOW), judged_as="read"),
    "nofollow of a link": case(("open", "link", R | NOFOLLOW)),
    "nofollow of a link, for writing": case(("open", "link", W | NOFOLLOW)),
    "nofollow of a dangling link": case(("open", "dangling", R | NOFOLLOW)),
    "nofollow still follows on the way": case(("open", "dir-link/inner", R | NOFOLLOW), judged_as="read"),
    "nofollow of a link to a directory": case(("open", "dir-link", R | NOFOLLOW | DIRECTORY)),
    "nofollow of a file with a trailing slash": case(("open", "link/", R | NOFOLLOW)),
    "creating without following": case(("open", "dangling", W | CREAT | NOFOLLOW, 0o644)),
    "creating at a link without following": case(("open", "link", W | CREAT | NOFOLLOW, 0o644)),
}

WRITING: dict[str, Case] = {
    "for writing": case(("open", "file", W), judged_as="write"),
    "for both": case(("open", "file", RW), judged_as="write"),
    "for both, refused for reading": case(("open", "file", RW), judged_as="read"),
    "for writing through a link": case(("open", "link", W), judged_as="write"),
    "for writing a read-only file": case(("open", "read-only", W), judged_as="write"),
    "for writing a file that may only be written": case(("open", "write-only", W), judged_as="write"),
    "for writing nothing": case(("open", "absent", W), judged_as="write"),
    "for writing a file with a trailing slash": case(("open", "file/", W)),
    "truncating": case(("open", "file", W | TRUNC), judged_as="truncate"),
    "truncating, refused for writing": case(("open", "file", W | TRUNC), judged_as="write"),
    "truncating while only reading": case(("open", "file", R | TRUNC), judged_as="truncate"),
    "truncating through a link": case(("open", "link", RW | TRUNC), judged_as="truncate"),
    "truncating a read-only file": case(("open", "read-only", R | TRUNC), judged_as="truncate"),
    "appending": case(("open", "file", W | APPEND), ("write", Fd(0), Raw(b"more"), 4), ("stat", "file", Out(144))),
    "writing where it is": case(("open", "file", W), ("write", Fd(0), Raw(b"more"), 4), ("stat", "file", Out(144))),
    "direct input and output": case(("open", "file", R | os.O_DIRECT)),
}

CREATING: dict[str, Case] = {
    "a new file": case(("open", "new", W | CREAT, 0o666), judged_as="write"),
    "a new file that is only read": case(("open", "new", R | CREAT, 0o666), judged_as="write"),
    "a new file for both": case(("open", "new", RW | CREAT, 0o600), judged_as="write"),
    "a new file with no rights": case(("open", "new", RW | CREAT, 0), ("open", "new", R)),
    "a new file under another umask": case(("umask", 0o077), ("open", "new", W | CREAT, 0o666), judged_as="write"),
    "a new file under no umask": case(("umask", 0), ("open", "new", W | CREAT, 0o1777), judged_as="write"),
    "a new file with set-id bits": case(("umask", 0), ("open", "new", W | CREAT, 0o6777), judged_as="write"),
    "creat": case(("creat", "new", 0o640), judged_as="write"),
    "creat of a file that is there": case(("creat", "file", 0o640), judged_as="truncate"),
    "creat of a directory": case(("creat", "dir", 0o640)),
    "creating what is there": case(("open", "file", W | CREAT, 0o600), judged_as="write"),
    "creating what is there, only reading": case(("open", "file", R | CREAT, 0o600), judged_as="read"),
    "creating and truncating what is there": case(("open", "file", W | CREAT | TRUNC, 0o600), judged_as="truncate"),
    "creating a read-only file that is there": case(("open", "read-only", W | CREAT, 0o600)),
    "creating through a link to a file": case(("open", "link", W | CREAT, 0o600), judged_as="write"),
    "creating through a dangling link": case(("open", "dangling", W | CREAT, 0o644), judged_as="write"),
    "creating through a link into nothing": case(("open", "dangling-deep", W | CREAT, 0o644)),
    "creating through a loop": case(("open", "loop", W | CREAT, 0o644)),
    "creating through a link to a directory": case(("open", "dir-link/new", W | CREAT, 0o644), judged_as="write"),
    "creating exclusively": case(("open", "new", W | CREAT | EXCL, 0o644), judged_as="write"),
    "creating exclusively what is there": case(("open", "file", W | CREAT | EXCL, 0o644), judged_as="write"),
    "creating exclusively at a link": case(("open", "link", W | CREAT | EXCL, 0o644), judged_as="write"),
    "creating exclusively at a dangling link": case(("open", "dangling", W | CREAT | EXCL, 0o644), judged_as="write"),
    "creating exclusively at a directory": case(("open", "dir", W | CREAT | EXCL, 0o644)),
    "exclusive without creating": case(("open", "file", R | EXCL), judged_as="read"),
    "creating at a directory": case(("open", "dir", W | CREAT, 0o644)),
    "creating at a directory, only reading": case(("open", "dir", R | CREAT, 0o644)),
    "creating at a link to a directory": case(("open", "dir-link", W | CREAT, 0o644)),
    "creating with a trailing slash": case(("open", "new/", W | CREAT, 0o644)),
    "creating what is there with a trailing slash": case(("open", "file/", W | CREAT, 0o644)),
    "creating through a link whose text has a trailing slash": case(("symlink", "new/", "l"), ("open", "l", W | CREAT, 0o644)),
    "creating below a file": case(("open", "file/new", W | CREAT, 0o644)),
    "creating below nothing": case(("open", "absent/new", W | CREAT, 0o644)),
    "creating where nothing may be searched": case(("open", "closed/new", W | CREAT, 0o644)),
    "creating a name too long": case(("open", LONG_NAME, W | CREAT, 0o644)),
    "creating dot": case(("open", ".", W | CREAT, 0o644)),
    "creating dot dot": case(("open", "..", W | CREAT, 0o644)),
    "creating a directory": case(("open", "new", R | CREAT | DIRECTORY, 0o644)),
    "creating in a sticky directory": case(("open", "sticky/new", W | CREAT, 0o644), judged_as="write"),
    "creating at a fifo": case(("open", "fifo", R | CREAT | NONBLOCK, 0o644)),
}

TEMPORARY: dict[str, Case] = {
    "without a name": case(("open", "dir", RW | TMPFILE, 0o640), judged_as="write"),
    "without a name, only written": case(("open", "dir", W | TMPFILE, 0o640), judged_as="write"),
    "without a name, only read": case(("open", "dir", R | TMPFILE, 0o640)),
    "without a name in a file": case(("open", "file", RW | TMPFILE, 0o640)),
    "without a name in nothing": case(("open", "absent", RW | TMPFILE, 0o640)),
    "without a name through a link": case(("open", "dir-link", RW | TMPFILE, 0o640), judged_as="write"),
    "without a name where nothing may be searched": case(("open", "closed", RW | TMPFILE, 0o640)),
    "without a name and creating": case(("open", "dir", RW | TMPFILE | CREAT, 0o640)),
    "without a name under another umask": case(("umask", 0o077), ("open", "dir", RW | TMPFILE, 0o666), judged_as="write"),
    "the bit of O_TMPFILE alone": case(("open", "dir", RW | (TMPFILE & ~DIRECTORY), 0o640)),
}

BASES: dict[str, Case] = {
    "openat in the working directory": case(("openat", AT, "file", R), judged_as="read"),
    "openat in a directory": case(("openat", AT, "dir", R), ("openat", Fd(0), "inner", R), judged_as="read"),
    "openat up from a directory": case(("openat", AT, "dir/sub", R), ("openat", Fd(0), "../inner", R), judged_as="read"),
    "openat out of a directory and back": case(
        ("openat", AT, "dir/sub", R), ("openat", Fd(0), "../../dir/../file", R), judged_as="read"
    ),
    "openat by an absolute link": case(("openat", AT, "dir", R), ("openat", Fd(0), "../absolute", R), judged_as="read"),
    "openat in a file": case(("openat", AT, "file", R), ("openat", Fd(0), "x", R)),
    "openat in a bad descriptor": case(("openat", 77, "file", R)),
    "openat in a negative descriptor": case(("openat", -1, "file", R)),
    "openat in a bad descriptor by an absolute name": case(("openat", 77, "{top}/file", R), judged_as="read"),
    "openat in a bad descriptor with an empty path": case(("openat", 77, "", R)),
    "openat with an empty path": case(("openat", AT, "dir", R), ("openat", Fd(0), "", R)),
    "openat in a removed directory": case(
        ("openat", AT, "empty-dir", R), ("rmdir", "empty-dir"), ("openat", Fd(0), "new", W | CREAT, 0o644)
    ),
    "openat in a removed directory for reading": case(
        ("openat", AT, "empty-dir", R), ("rmdir", "empty-dir"), ("openat", Fd(0), ".", R)
    ),
    "creating in a removed working directory": case(
        ("chdir", "empty-dir"), ("rmdir", "../empty-dir"), ("open", "new", W | CREAT, 0o644)
    ),
    "after chdir": case(("chdir", "dir"), ("open", "inner", R), judged_as="read"),
    "after fchdir": case(("openat", AT, "dir", R), ("fchdir", Fd(0)), ("open", "inner", R), judged_as="read"),
    "a descriptor again": case(("open", "file", R), ("open", FdPath(0), R)),
    "a descriptor again for writing": case(("open", "file", R), ("open", FdPath(0), W), judged_as="write"),
    "a removed file again": case(("open", "empty", R), ("unlink", "empty"), ("open", FdPath(0), RW)),
    "below a directory's descriptor": case(("open", "dir", R), ("open", FdPath(0), R | DIRECTORY)),
    "a descriptor without following": case(("open", "file", R), ("open", FdPath(0), R | NOFOLLOW)),
    "a descriptor that is none": case(("open", "/proc/self/fd/77", R)),
    "creating through a descriptor": case(("open", "file", R), ("open", FdPath(0), W | CREAT, 0o644)),
}

CASES = READING | DIRECTORIES | NOT_FOLLOWING | WRITING | CREATING | TEMPORARY | BASES
assert len(CASES) == sum(map(len, (READING, DIRECTORIES, NOT_FOLLOWING, WRITING, CREATING, TEMPORARY, BASES)))


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
