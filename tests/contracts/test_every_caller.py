"""The same verdicts for every process: raw calls without a library, a thread, a child, a detached grandchild, shared memory."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from errno import EACCES, ECONNREFUSED
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import AT_FDCWD, Answer, Earlier, Out, Probe, Raw, call, deny, judged_but_allowed, results, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

SECRET = b"the secret\n"
PLAIN = b"plain text\n"
PEER = struct.pack("<H", socket.AF_INET) + struct.pack(">H", 9) + socket.inet_aton("192.0.2.1") + bytes(8)

OPEN_HOW = struct.pack("<QQQ", os.O_RDONLY, 0, 0)


def script(top: str) -> list[str]:
    """Eleven ways to the secret or to a new name beside it, each with its own call."""
    secret, new = f"{top}/vault/secret", f"{top}/vault/new"
    return [
        call("open", secret, os.O_RDONLY),
        call("openat", AT_FDCWD, secret, os.O_RDONLY),
        call("openat2", AT_FDCWD, secret, Raw(OPEN_HOW), len(OPEN_HOW)),
        call("stat", secret, Out(144)),
        call("lstat", secret, Out(144)),
        call("access", secret, os.R_OK),
        call("mkdir", new, 0o755),
        call("rename", secret, f"{top}/out"),
        call("link", secret, f"{top}/out"),
        call("symlink", "text", new),
        call("unlink", new),
    ]


def make_on_host(top: Path) -> None:
    (top / "vault").mkdir(mode=0o777)
    (top / "vault").chmod(0o777)
    (top / "vault/secret").write_bytes(SECRET)
    (top / "vault/secret").chmod(0o666)
    if os.geteuid() == 0:
        os.chown(top / "vault/secret", 65534, 65534)


#: What the script gives where nothing is refused: it moves the secret away half-way, so that later calls do not find it.
EXPECTED_FREE = [3, 4, 5, 0, 0, 0, 0, 0, -2, -17, -21]


def test_the_script_works_on_the_bare_host(probe: Probe, host_dir: Path) -> None:
    make_on_host(host_dir)
    assert results(probe.on_host(script(str(host_dir)), cwd=host_dir)) == EXPECTED_FREE


@pytest.mark.parametrize("caller", Probe.CALLERS)
def test_the_script_works_where_no_rule_refuses_it(vm_factory: Callable[..., VM], probe: Probe, caller: str) -> None:
    vm = vm_factory(permissions=judged_but_allowed(), files=probe.files | {"/w/vault/secret": SECRET})
    assert results(probe.in_vm(vm, script("/w"), caller=caller)) == EXPECTED_FREE


@pytest.mark.parametrize("linked", ["static", "dynamic"])
@pytest.mark.parametrize("caller", Probe.CALLERS)
def test_every_caller_is_refused_every_call_and_nothing_changes(
    vm_factory: Callable[..., VM], probe: Probe, dynamic_probe: Probe, caller: str, linked: str
) -> None:
    program = probe if linked == "static" else dynamic_probe
    vm = vm_factory(permissions=deny("/w/vault/**"), files=program.files | {"/w/vault/secret": SECRET, "/w/plain": PLAIN})
    before = tree_of(vm, "/w")
    lines = [*script("/w"), call("openat", AT_FDCWD, "/w/plain", os.O_RDONLY), call("read", Earlier(11), Out(64), 64)]
    answers = program.in_vm(vm, lines, caller=caller)
    assert results(answers[:11]) == [-EACCES] * 11
    assert answers[12] == Answer(len(PLAIN), (PLAIN,))
    assert tree_of(vm, "/w") == before


@pytest.mark.parametrize("caller", Probe.CALLERS)
def test_every_caller_is_refused_every_peer(vm_factory: Callable[..., VM], probe: Probe, caller: str) -> None:
    lines = [
        call("socket", socket.AF_INET, socket.SOCK_STREAM, 0),
        call("connect", Earlier(0), Raw(PEER), len(PEER)),
        call("socket", socket.AF_INET, socket.SOCK_DGRAM, 0),
        call("sendto", Earlier(2), Raw(b"x"), 1, 0, Raw(PEER), len(PEER)),
    ]
    answers = results(probe.in_vm(vm_factory(files=probe.files), lines, caller=caller))
    assert answers[0] >= 0
    assert (answers[1], answers[3]) == (-EACCES, -EACCES)


@pytest.mark.parametrize("caller", Probe.CALLERS)
def test_every_caller_reaches_the_loopback_where_it_is_allowed(vm_factory: Callable[..., VM], probe: Probe, caller: str) -> None:
    here = PEER[:4] + socket.inet_aton("127.0.0.1") + bytes(8)
    vm = vm_factory(permissions={"network": {"rules": [{"mode": "allow", "patterns": ["127.0.0.1"]}]}}, files=probe.files)
    lines = [
        call("socket", socket.AF_INET, socket.SOCK_STREAM, 0),
        call("connect", Earlier(0), Raw(here), len(here)),
        call("socket", socket.AF_INET, socket.SOCK_DGRAM, 0),
        call("sendto", Earlier(2), Raw(b"x"), 1, 0, Raw(here), len(here)),
    ]
    assert results(probe.in_vm(vm, lines, caller=caller))[1::2] == [-ECONNREFUSED, 1]


def test_a_refusal_names_the_process_that_asked(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=deny("/w/**"), files=probe.files)
    lines = [call("getpid"), call("open", "/w/x", os.O_RDONLY)]
    answers = probe.in_vm(vm, lines, caller="grandchild")
    assert [denial.pid for denial in vm.denials] == [answers[0].result]
