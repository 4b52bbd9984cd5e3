"""Descriptors in control messages, which a judged send exchanges one by one: any number of them, and none is left behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.escapes.held import gives_back, open_descriptors
from tests.vm_fixtures import as_ordinary_user

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

#: Sends as many descriptors as told in as many control messages as told, and says what came of it.
PROGRAM = """
import array, os, socket, sys
def attempt(descriptors, messages, kind=socket.SOCK_STREAM):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    passed = [os.open("/dev/null", os.O_RDONLY) for _ in range(descriptors)]
    size = -(-descriptors // messages)
    parts = [passed[n : n + size] for n in range(0, descriptors, size)]
    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", part)) for part in parts]
    try: sent = one.sendmsg([b"x"], control)
    except OSError as error: sent = -error.errno
    got = array.array("i")
    if sent > 0:
        _, received, flags, _ = other.recvmsg(10, socket.CMSG_SPACE(260 * 4))
        for _, _, data in received: got.frombytes(data[: len(data) - len(data) % 4])
    for fd in [*passed, *got]: os.close(fd)
    one.close(), other.close()
    return sent, len(got)
def refused(control):
    one, other = socket.socketpair()
    try: sent = one.sendmsg([b"x"], control)
    except OSError as error: sent = -error.errno
    one.close(), other.close()
    return sent
for descriptors in (1, 2, 5, 6, 7, 12, 252, 253, 254):
    for messages in (1, 2, 6):
        if messages <= descriptors: print(descriptors, messages, *attempt(descriptors, messages))
print(*attempt(6, 6, socket.SOCK_DGRAM))
rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
print(refused([(*rights, array.array("i", [99]))]), refused([(*rights, array.array("i", [0, 0, 0, 0, 0, 99]))]))
print(refused([(*rights, array.array("i", [0] * 5)), (*rights, array.array("i", [-1]))]), refused([(*rights, b"")]))
"""
#: Every sendmsg goes to the supervisor, by a bare verdict and by rules alike.
JUDGED = {"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": ["127.0.0.1"]}]}}


def test_as_many_as_the_kernel_takes_and_nothing_is_left(vm_factory: Callable[..., VM], host_dir: Path) -> None:
    command = as_ordinary_user(["/usr/bin/python3", "-c", PROGRAM])
    on_host = subprocess.run(command, capture_output=True, text=True, check=True, cwd=host_dir).stdout.splitlines()
    assert "6 1 1 6" in on_host
    assert "6 6 1 6" in on_host
    for permissions in ({"network": "allow"}, JUDGED):
        vm = vm_factory(permissions=permissions)
        vm.run(["true"])
        before, notified = open_descriptors(vm), vm.status().calls_notified
        for _ in range(3):
            result = vm.run(["python3", "-c", PROGRAM], timeout=60)
            assert (result.stdout.splitlines(), result.stderr) == (on_host, "")
        assert vm.status().calls_notified > notified
        assert gives_back(vm, before)
