"""mkdir, mkdirat and mknod, against the bare host."""

from __future__ import annotations

import pytest

from tests.syscalls.comparison import AT, LONG_NAME, Bad, Case, Fd, case, refusals
from tests.syscalls.conftest import Answers

pytestmark = pytest.mark.vm

O_RDONLY, O_DIRECTORY = 0, 0o200000
S_IFREG, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, S_IFDIR = 0o100000, 0o010000, 0o140000, 0o020000, 0o060000, 0o040000

CASES: dict[str, Case] = {
    "makes a directory": case(("mkdir", "new", 0o777), judged_as="create_dir"),
    "makes a directory by its absolute name": case(("mkdir", "{top}/new", 0o777), judged_as="create_dir"),
    "is an answer, not an effect, where something is": case(("mkdir", "dir", 0o777), judged_as="create_dir"),
    "does not follow a final link": case(("mkdir", "dangling", 0o777), judged_as="create_dir"),
    "does not make what a link leads to": case(("mkdir", "dir-link", 0o777), judged_as="create_dir"),
    "follows a link on the way": case(("mkdir", "dir-link/new", 0o777), judged_as="create_dir"),
    "a trailing slash is allowed": case(("mkdir", "new/", 0o777), judged_as="create_dir"),
    "many slashes are one": case(("mkdir", ".//dir///new", 0o777), judged_as="create_dir"),
    "a trailing slash does not follow a dangling link": case(("mkdir", "dangling/", 0o777)),
    "dot": case(("mkdir", ".", 0o777)),
    "dot dot": case(("mkdir", "..", 0o777)),
    "a name ending in dot": case(("mkdir", "new/.", 0o777)),
    "the root": case(("mkdir", "/", 0o777)),
    "goes up": case(("mkdir", "dir/../new", 0o777), judged_as="create_dir"),
    "goes up from where a link leads": case(("mkdir", "dir-link/sub/../new", 0o777), judged_as="create_dir"),
    "below a file": case(("mkdir", "file/new", 0o777)),
    "below nothing": case(("mkdir", "absent/new", 0o777)),
    "below a loop": case(("mkdir", "loop/new", 0o777)),
    "below a dangling link": case(("mkdir", "dangling/new", 0o777)),
    "below a directory that may not be searched": case(("mkdir", "closed/new", 0o777)),
    "a name too long": case(("mkdir", LONG_NAME, 0o777)),
    "a long name that just fits": case(("mkdir", LONG_NAME[:-1], 0o777), judged_as="create_dir"),
    "a path too long": case(("mkdir", "./" * 2048 + "new", 0o777)),
    "a path that just fits": case(("mkdir", "./" * 2045 + "news", 0o777), judged_as="create_dir"),
    "an empty path": case(("mkdir", "", 0o777)),
    "no path": case(("mkdir", None, 0o777)),
    "a bad address": case(("mkdir", Bad(), 0o777)),
    "umask": case(("umask", 0o077), ("mkdir", "new", 0o777), judged_as="create_dir"),
    "no umask": case(("umask", 0), ("mkdir", "new", 0o1777), judged_as="create_dir"),
    "set-id bits": case(("umask", 0), ("mkdir", "new", 0o6777), judged_as="create_dir"),
    "mkdirat in the working directory": case(("mkdirat", AT, "new", 0o777), judged_as="create_dir"),
    "mkdirat in a directory": case(
        ("openat", AT, "dir", O_RDONLY | O_DIRECTORY), ("mkdirat", Fd(0), "new", 0o777), judged_as="create_dir"
    ),
    "mkdirat up from a directory": case(
        ("openat", AT, "dir/sub", O_RDONLY | O_DIRECTORY), ("mkdirat", Fd(0), "../new", 0o777), judged_as="create_dir"
    ),
    "mkdirat in a file": case(("openat", AT, "file", O_RDONLY), ("mkdirat", Fd(0), "new", 0o777)),
    "mkdirat in a bad descriptor": case(("mkdirat", 77, "new", 0o777)),
    "mkdirat in a bad descriptor by an absolute name": case(("mkdirat", 77, "{top}/new", 0o777), judged_as="create_dir"),
    "mkdirat in a negative descriptor": case(("mkdirat", -1, "new", 0o777)),
    "mkdirat with an empty path": case(("openat", AT, "dir", O_RDONLY), ("mkdirat", Fd(0), "", 0o777)),
    "mknod of a regular file": case(("mknod", "new", S_IFREG | 0o666, 0), judged_as="write"),
    "mknod without a type": case(("mknod", "new", 0o666, 0), judged_as="write"),
    "mknod of a fifo": case(("mknod", "new", S_IFIFO | 0o666, 0), judged_as="write"),
    "mknod of a socket": case(("mknodat", AT, "new", S_IFSOCK | 0o666, 0), judged_as="write"),
    "mknod of a character device": case(("mknod", "new", S_IFCHR | 0o666, 0x103)),
    "mknod of a block device": case(("mknodat", AT, "new", S_IFBLK | 0o666, 0x103)),
    "mknod of a directory": case(("mknod", "new", S_IFDIR | 0o777, 0)),
    "mknod of a type that is none": case(("mknod", "new", 0o150000 | 0o666, 0)),
    "mknod where something is": case(("mknod", "file", S_IFREG | 0o666, 0), judged_as="write"),
    "mknod does not follow a dangling link": case(("mknod", "dangling", S_IFREG | 0o666, 0), judged_as="write"),
    "mknod with a trailing slash": case(("mknod", "new/", S_IFREG | 0o666, 0)),
    "mknod below a file": case(("mknod", "file/new", S_IFIFO | 0o666, 0)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}
