"""The twelve calls on extended attributes by path, link and descriptor, against the bare host."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from errno import EINVAL
from typing import TYPE_CHECKING

import pytest

from tests.syscalls.comparison import LONG_NAME, Bad, Case, Fd, FdPath, Out, Raw, Step, case, refusals
from tests.syscalls.conftest import Answers
from tests.vm_fixtures import Out as OutBytes
from tests.vm_fixtures import Probe, call, judged_but_allowed
from tests.vm_fixtures import Raw as RawBytes

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

NAME, VALUE = "user.name", Raw(b"value")
CREATE, REPLACE = 1, 2
SET: Step = ("setxattr", "file", NAME, VALUE, 5, 0)
SHOWN: Step = ("attributes", "file")
TOO_LONG_A_VALUE = 65537

SETTING: dict[str, Case] = {
    "set": case(SET, SHOWN),
    "set, refused": case(SET, judged_as="write"),
    "set an empty value": case(("setxattr", "file", NAME, VALUE, 0, 0), SHOWN),
    "set with no value": case(("setxattr", "file", NAME, None, 0, 0), SHOWN),
    "set through a link": case(("setxattr", "link", NAME, VALUE, 5, 0), SHOWN),
    "set through a link, refused": case(("setxattr", "link", NAME, VALUE, 5, 0), judged_as="write"),
    "set on a directory": case(("setxattr", "dir", NAME, VALUE, 5, 0), ("attributes", "dir")),
    "set on a fifo": case(("setxattr", "fifo", NAME, VALUE, 5, 0)),
    "set on a dangling link": case(("setxattr", "dangling", NAME, VALUE, 5, 0), judged_as="write"),
    "set on nothing": case(("setxattr", "absent", NAME, VALUE, 5, 0), judged_as="write"),
    "set on a file that may only be read": case(("setxattr", "read-only", NAME, VALUE, 5, 0), judged_as="write"),
    "set where nothing may be searched": case(("setxattr", "closed/hidden", NAME, VALUE, 5, 0)),
    "create": case(("setxattr", "file", NAME, VALUE, 5, CREATE), SHOWN),
    "create what is there": case(SET, ("setxattr", "file", NAME, VALUE, 5, CREATE)),
    "replace": case(SET, ("setxattr", "file", NAME, Raw(b"other"), 5, REPLACE), SHOWN),
    "replace what is not there": case(("setxattr", "file", NAME, VALUE, 5, REPLACE)),
    "set with unknown flags": case(("setxattr", "file", NAME, VALUE, 5, 8)),
    "set a name without a kind": case(("setxattr", "file", "name", VALUE, 5, 0)),
    "set a name of a kind that is none": case(("setxattr", "file", "nonsense.name", VALUE, 5, 0)),
    "set an empty name": case(("setxattr", "file", "", VALUE, 5, 0)),
    "set a name too long": case(("setxattr", "file", "user." + LONG_NAME, VALUE, 5, 0)),
    "set the longest name": case(("setxattr", "file", "user." + "n" * 250, VALUE, 5, 0), SHOWN),
    "set a value too long": case(("setxattr", "file", NAME, VALUE, TOO_LONG_A_VALUE, 0)),
    "set a bad name": case(("setxattr", "file", Bad(), VALUE, 5, 0)),
    "set a bad value": case(("setxattr", "file", NAME, Bad(), 5, 0)),
    "set with a bad path": case(("setxattr", Bad(), NAME, VALUE, 5, 0)),
    "set with an empty path": case(("setxattr", "", NAME, VALUE, 5, 0)),
    "set what only an administrator may": case(("setxattr", "file", "trusted.name", VALUE, 5, 0)),
    "lset on a file": case(("lsetxattr", "file", NAME, VALUE, 5, 0), SHOWN),
    "lset on a file, refused": case(("lsetxattr", "file", NAME, VALUE, 5, 0), judged_as="write"),
    "lset on a link": case(("lsetxattr", "link", NAME, VALUE, 5, 0)),
    "lset on a link, refused": case(("lsetxattr", "dangling", NAME, VALUE, 5, 0), judged_as="write"),
    "fset": case(("open", "file", 0), ("fsetxattr", Fd(0), NAME, VALUE, 5, 0), SHOWN),
    "fset, refused": case(("open", "file", 0), ("fsetxattr", Fd(0), NAME, VALUE, 5, 0), judged_as="write"),
    "fset on a bad descriptor": case(("fsetxattr", 77, NAME, VALUE, 5, 0)),
    "fset on a removed file": case(
        ("open", "empty", 0),
        ("unlink", "empty"),
        ("fsetxattr", Fd(0), NAME, VALUE, 5, 0),
        ("fgetxattr", Fd(0), NAME, Out(9), 9),
    ),
    "set by a descriptor's path": case(("open", "file", 0), ("setxattr", FdPath(0), NAME, VALUE, 5, 0), judged_as="write"),
}

GETTING: dict[str, Case] = {
    "get": case(SET, ("getxattr", "file", NAME, Out(9), 9)),
    "get, refused": case(("getxattr", "file", NAME, Out(9), 9), judged_as="read"),
    "get the size": case(SET, ("getxattr", "file", NAME, None, 0)),
    "get into too little room": case(SET, ("getxattr", "file", NAME, Out(2), 2)),
    "get into a bad address": case(SET, ("getxattr", "file", NAME, Bad(), 9)),
    "get what is not there": case(("getxattr", "file", NAME, Out(9), 9)),
    "get of nothing": case(("getxattr", "absent", NAME, Out(9), 9), judged_as="read"),
    "get through a link": case(SET, ("getxattr", "link", NAME, Out(9), 9)),
    "get of a file that may only be written": case(("getxattr", "write-only", NAME, Out(9), 9), judged_as="read"),
    "get a bad name": case(("getxattr", "file", Bad(), Out(9), 9)),
    "get an empty name": case(("getxattr", "file", "", Out(9), 9)),
    "lget of a file": case(SET, ("lgetxattr", "file", NAME, Out(9), 9)),
    "lget of a link": case(SET, ("lgetxattr", "link", NAME, Out(9), 9)),
    "lget of a link, refused": case(("lgetxattr", "dangling", NAME, Out(9), 9), judged_as="read"),
    "fget": case(SET, ("open", "file", 0), ("fgetxattr", Fd(1), NAME, Out(9), 9)),
    "fget, refused": case(("open", "file", os.O_WRONLY), ("fgetxattr", Fd(0), NAME, Out(9), 9), judged_as="read"),
    "fget of a bad descriptor": case(("fgetxattr", 77, NAME, Out(9), 9)),
}

LISTING: dict[str, Case] = {
    "list": case(SET, ("listxattr", "file", Out(200), 200)),
    "list, refused": case(("listxattr", "file", Out(200), 200), judged_as="read"),
    "list into too little room": case(SET, ("listxattr", "file", Out(2), 2)),
    "list into a bad address": case(SET, ("listxattr", "file", Bad(), 200)),
    "list nothing": case(("listxattr", "absent", Out(200), 200), judged_as="read"),
    "list a directory": case(("listxattr", "dir", Out(200), 200), judged_as="read"),
    "list through a link": case(SET, ("listxattr", "link", Out(200), 200)),
    "llist a file": case(SET, ("llistxattr", "file", Out(200), 200)),
    "llist a link": case(SET, ("llistxattr", "link", Out(200), 200)),
    "llist a link, refused": case(("llistxattr", "dangling", Out(200), 200), judged_as="read"),
    "flist": case(SET, ("open", "file", 0), ("flistxattr", Fd(1), Out(200), 200)),
    "flist, refused": case(("open", "file", os.O_WRONLY), ("flistxattr", Fd(0), Out(200), 200), judged_as="read"),
    "flist of a bad descriptor": case(("flistxattr", 77, Out(200), 200)),
}

REMOVING: dict[str, Case] = {
    "remove": case(SET, ("removexattr", "file", NAME), SHOWN),
    "remove, refused": case(("removexattr", "file", NAME), judged_as="write"),
    "remove what is not there": case(("removexattr", "file", NAME)),
    "remove of nothing": case(("removexattr", "absent", NAME), judged_as="write"),
    "remove through a link": case(SET, ("removexattr", "link", NAME), SHOWN),
    "remove an empty name": case(("removexattr", "file", "")),
    "remove a bad name": case(("removexattr", "file", Bad())),
    "lremove": case(SET, ("lremovexattr", "file", NAME), SHOWN),
    "lremove of a link": case(SET, ("lremovexattr", "link", NAME), SHOWN),
    "lremove of a link, refused": case(("lremovexattr", "dangling", NAME), judged_as="write"),
    "fremove": case(SET, ("open", "file", 0), ("fremovexattr", Fd(1), NAME), SHOWN),
    "fremove, refused": case(("open", "file", 0), ("fremovexattr", Fd(0), NAME), judged_as="write"),
    "fremove of a bad descriptor": case(("fremovexattr", 77, NAME)),
}

CASES = SETTING | GETTING | LISTING | REMOVING


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


def test_a_refused_call_is_eacces_and_changes_nothing(operation: str) -> None:
    assert set(refusals(CASES, operation).values()) == {"EACCES"}


ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
NOBODY = 0xFFFF_FFFF


def access_list(user: int, group: int) -> bytes:
    """A list of rights (acl(5)) that names a user and a group."""
    entries = [
        (USER_OBJ, 7, NOBODY),
        (USER, 6, user),
        (GROUP_OBJ, 5, NOBODY),
        (GROUP, 4, group),
        (MASK, 7, NOBODY),
        (OTHER, 4, NOBODY),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.parametrize("permissions", [None, judged_but_allowed()], ids=["default", "judged"])
def test_access_lists_name_the_ids_of_the_vm(
    vm_factory: Callable[..., VM], probe: Probe, permissions: dict[str, object] | None
) -> None:
    """Set on behalf, the ids must not become those of the host."""
    vm = vm_factory(permissions=permissions, files=probe.files | {"/w/d/file": b""})
    own, strange = access_list(1000, 1000), access_list(4242, 1000)
    lines = [
        *(call("setxattr", path, name, RawBytes(own), len(own), 0) for path, name in (("/w/d/file", ACCESS), ("/w/d", DEFAULT))),
        *(call("getxattr", path, name, OutBytes(99), 99) for path, name in (("/w/d/file", ACCESS), ("/w/d", DEFAULT))),
        call("setxattr", "/w/d/file", ACCESS, RawBytes(strange), len(strange), 0),
        call("open", "/w/d/new", os.O_CREAT | os.O_WRONLY, 0o666),
        call("fgetxattr", 3, ACCESS, OutBytes(99), 99),
    ]
    answers = probe.in_vm(vm, lines)
    assert [answer.result for answer in answers] == [0, 0, len(own), len(own), -EINVAL, 3, len(own)]
    assert answers[2].outputs[0][: len(own)] == own
    assert answers[3].outputs[0][: len(own)] == own
    assert struct.unpack_from("<HHI", answers[6].outputs[0], 12) == (USER, 6, 1000)
