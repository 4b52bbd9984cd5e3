"""copy_file_range, sendfile, fallocate and the ioctls that clone: settled when the files are opened, as on the bare host."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES, EBADF
from typing import TYPE_CHECKING

import pytest

from tests.syscalls.comparison import Case, Fd, Out, Step, Words, case
from tests.syscalls.conftest import Answers
from tests.vm_fixtures import Earlier, Probe, call, deny, results, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R, W, RW = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
FICLONE, FICLONERANGE, FIDEDUPERANGE = 0x4004_9409, 0x4020_940D, 0xC018_9436
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16


def both(first: int, second: int, *last: Step) -> Case:
    """Two files opened, and a call on them."""
    return case(("open", "file", first), ("open", "dir/inner", second), *last, ("stat", "dir/inner", Out(144)))


CASES: dict[str, Case] = {
    "copy_file_range": both(R, W, ("copy_file_range", Fd(0), None, Fd(1), None, 7, 0)),
    "copy_file_range within a file": case(
        ("open", "file", RW), ("copy_file_range", Fd(0), Words((0,)), Fd(0), Words((100,)), 7, 0)
    ),
    "copy_file_range into what is only read": both(R, R, ("copy_file_range", Fd(0), None, Fd(1), None, 7, 0)),
    "copy_file_range of what is only written": both(W, W, ("copy_file_range", Fd(0), None, Fd(1), None, 7, 0)),
    "copy_file_range to the end": both(R, W | os.O_APPEND, ("copy_file_range", Fd(0), None, Fd(1), None, 7, 0)),
    "sendfile": both(R, W, ("sendfile", Fd(1), Fd(0), None, 7)),
    "sendfile into what is only read": both(R, R, ("sendfile", Fd(1), Fd(0), None, 7)),
    "FICLONE": both(R, W, ("ioctl", Fd(1), FICLONE, Fd(0))),
    "FICLONE into what is only read": both(R, R, ("ioctl", Fd(1), FICLONE, Fd(0))),
    "FICLONERANGE": both(R, W, ("ioctl", Fd(1), FICLONERANGE, Words((Fd(0), 0, 0, 0)))),
    "FICLONERANGE into what is only read": both(R, R, ("ioctl", Fd(1), FICLONERANGE, Words((Fd(0), 0, 0, 0)))),
    "FIDEDUPERANGE": both(R, W, ("ioctl", Fd(0), FIDEDUPERANGE, Words((0, 4096, 1, Fd(1), 0, 0, 0)))),
    "fallocate": case(("open", "file", W), ("fallocate", Fd(0), 0, 0, 100), ("stat", "file", Out(144))),
    "fallocate of a hole": case(("open", "file", W), ("fallocate", Fd(0), PUNCH_HOLE | KEEP_SIZE, 0, 5), ("open", "file", R)),
    "fallocate of what is only read": case(
        ("open", "file", R), ("fallocate", Fd(0), PUNCH_HOLE | KEEP_SIZE, 0, 5), ("open", "file", R)
    ),
    "fallocate of zeros": case(("open", "file", W), ("fallocate", Fd(0), ZERO_RANGE, 0, 5), ("open", "file", R)),
    "fallocate of a directory": case(("open", "dir", R), ("fallocate", Fd(0), 0, 0, 5)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


@pytest.mark.parametrize("denied", ["read", "write"])
def test_what_is_denied_is_neither_a_source_nor_a_target(vm_factory: Callable[..., VM], probe: Probe, denied: str) -> None:
    files = {"/w/secret": b"the secret", "/w/plain": b"plain"}
    vm = vm_factory(permissions=deny("/w/secret", operations=[denied]), files=probe.files | files)
    before = tree_of(vm, "/w")
    source, target = ("secret", "plain") if denied == "read" else ("plain", "secret")
    lines = [
        call("open", f"/w/{source}", R),
        call("open", f"/w/{target}", W),
        call("copy_file_range", Earlier(0), 0, Earlier(1), 0, 5, 0),
        call("sendfile", Earlier(1), Earlier(0), 0, 5),
        call("ioctl", Earlier(1), FICLONE, Earlier(0)),
        call("fallocate", Earlier(1), 0, 0, 100) if denied == "write" else call("read", Earlier(0), 0, 0),
    ]
    answers = results(probe.in_vm(vm, lines))
    assert answers.count(-EACCES) == 1
    assert set(answers[2:]) == {-EBADF}
    assert tree_of(vm, "/w") == before
