"""Calls that would go past the filter: another ABI kills, unknown numbers do not exist, and threads still start."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from errno import EBUSY, EINVAL, ENOSYS, EPERM
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate.kernel.syscalls.decision import Outcome
from callgate.kernel.syscalls.table import SYSCALLS
from tests.vm_fixtures import AT_FDCWD, Answer, Earlier, Out, Probe, Raw, Words, call, deny, judged_but_allowed, results, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

POLICIES = {
    "default": None,
    "judged": judged_but_allowed(),
    "vault": deny("/w/**"),
    "all-deny": {"fs": "deny", "process": "deny"},
}
X32 = 0x4000_0000
GETPPID_I386, OPEN_I386 = 64, 5


@pytest.fixture(params=POLICIES)
def vm(request: pytest.FixtureRequest, vm_factory: Callable[..., VM], probe: Probe) -> VM:
    return vm_factory(permissions=POLICIES[request.param], files=probe.files | {"/w/secret": b"secret"})


def test_int_0x80_kills_the_process(vm: VM, probe: Probe) -> None:
    result = vm.run([probe.PATH, "main"], input=call(GETPPID_I386, i386=True) + "\n")
    assert (result.returncode, result.stdout) == (-signal.SIGSYS, "")


def test_int_0x80_works_on_the_bare_host(probe: Probe, host_dir: Path) -> None:
    (answer,) = probe.on_host([call(GETPPID_I386, i386=True)], cwd=host_dir)
    assert answer.result > 0


def test_int_0x80_in_a_child_leaves_the_parent_alive_and_judged(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=deny("/w/**"), files=probe.files | {"/w/secret": b"secret"})
    script = f"echo '{call(GETPPID_I386, i386=True)}' | {probe.PATH} main; echo $?; cat /w/secret || echo refused"
    assert vm.run(script).stdout == f"{128 + signal.SIGSYS}\nrefused\n"


@pytest.mark.parametrize("name", ["read", "open", "openat", "execve", "clone", "connect", "getpid"])
def test_x32_numbers_do_not_exist(vm: VM, probe: Probe, name: str) -> None:
    number = next(row.number for row in SYSCALLS if row.name == name)
    lines = [call(X32 | number, "/w/secret", os.O_RDONLY), call(X32 | number, AT_FDCWD, "/w/secret", os.O_RDONLY)]
    assert results(probe.in_vm(vm, lines)) == [-ENOSYS, -ENOSYS]


def test_the_numbers_of_x32_s_own_do_not_exist(vm: VM, probe: Probe) -> None:
    lines = [call(X32 | number, 0, 0, 0) for number in range(512, 548)]
    assert set(results(probe.in_vm(vm, lines))) == {-ENOSYS}


def test_unknown_numbers_do_not_exist(vm: VM, probe: Probe) -> None:
    numbers = [*range(337, 424), *range(472, 601), 1000, 9999, 0x3FFF_FFFF, -1, 0xFFFF_FFFF, 0x7FFF_FFFF, 0x8000_0000]
    answers = results(probe.in_vm(vm, [call(number, 0, 0, 0, 0, 0, 0) for number in numbers]))
    assert {number: answer for number, answer in zip(numbers, answers, strict=True) if answer != -ENOSYS} == {}


def test_every_number_the_running_kernel_has_is_in_the_table(probe: Probe, host_dir: Path) -> None:
    """A newer kernel than the table knows would show here as a number that is not ENOSYS."""
    newest = max(row.number for row in SYSCALLS)
    numbers = range(newest + 1, 601)
    answers = results(probe.on_host([call(number, -1, -1, -1, -1, -1, -1) for number in numbers], cwd=host_dir))
    assert {number for number, answer in zip(numbers, answers, strict=True) if answer != -ENOSYS} == set()


def test_the_high_half_of_a_number_does_not_matter(vm: VM, probe: Probe) -> None:
    """The kernel takes the number from the low half; so must the filter."""
    answers = results(probe.in_vm(vm, [call("getpid"), call(0x1_0000_0000 | 39), call("io_uring_setup", 8, Raw(bytes(120)))]))
    assert answers[0] == answers[1] > 0
    assert answers[2] == -ENOSYS


def test_clone3_and_io_uring_do_not_exist(vm: VM, probe: Probe) -> None:
    lines = [
        call("clone3", Raw(bytes(88)), 88),
        call("io_uring_setup", 8, Raw(bytes(120))),
        call("io_uring_enter", 0, 0, 0, 0, 0, 0),
        call("io_uring_register", 0, 0, 0, 0),
    ]
    assert results(probe.in_vm(vm, lines)) == [-ENOSYS] * 4


def test_threads_and_processes_still_start(vm: VM) -> None:
    program = (
        "import os, subprocess, threading\n"
        "seen = []\n"
        "threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(20)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(sorted(seen) == list(range(20)))\n"
        "print(subprocess.run(['true']).returncode)\n"
    )
    result = vm.run(["python3", "-c", program], cwd="/")
    assert (result.stdout, result.stderr) == ("True\n0\n", "")


def test_calls_that_are_never_allowed_answer_what_the_table_says(vm: VM, probe: Probe) -> None:
    """With arguments that no kernel would get far with."""
    expected = {
        row.name: -row.otherwise.errno
        for row in SYSCALLS
        if row.handler is None and isinstance(row.otherwise, Outcome) and row.otherwise.errno
    }
    answers = results(probe.in_vm(vm, [call(name, -1, -1, -1, -1, -1, -1) for name in expected]))
    assert dict(zip(expected, answers, strict=True)) == expected


NAMESPACES = {
    "user": 0x1000_0000,
    "mount": 0x2_0000,
    "pid": 0x2000_0000,
    "net": 0x4000_0000,
    "ipc": 0x800_0000,
    "uts": 0x400_0000,
}


@pytest.mark.parametrize("flag", NAMESPACES.values(), ids=NAMESPACES.keys())
def test_new_namespaces_are_refused(vm: VM, probe: Probe, flag: int) -> None:
    lines = [
        call("unshare", flag),
        call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0),
        call("clone", 0xF_0000_0000 | flag, 0, 0, 0, 0),
    ]
    assert results(probe.in_vm(vm, lines)) == [-EPERM] * 3


def test_new_user_namespaces_work_on_the_bare_host(probe: Probe, host_dir: Path) -> None:
    assert results(probe.on_host([call("unshare", NAMESPACES["user"])], cwd=host_dir)) == [0]


ALLOW_ALL = Raw(bytes.fromhex("06000000 0000ff7f".replace(" ", "")))  # BPF_RET | BPF_K, SECCOMP_RET_ALLOW
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_DUMPABLE, PR_SET_MM, PR_SET_PTRACER = 38, 22, 4, 35, 0x5961_6D61


def test_a_filter_of_the_guest_s_own_allows_nothing_more(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=deny("/w/**"), files=probe.files | {"/w/secret": b"secret"})
    before = tree_of(vm, "/w")
    program = Words((1, ALLOW_ALL))
    lines = [
        call("seccomp", 1, 8, program),  # with a listener of its own
        call("seccomp", 1, 0, program),
        call("prctl", PR_SET_SECCOMP, 2, program),
        call("open", "/w/secret", os.O_RDONLY),
        call("io_uring_setup", 8, Raw(bytes(120))),
        call("open", probe.PATH, os.O_RDONLY),
        call("read", Earlier(5), Out(4), 4),
    ]
    answers = probe.in_vm(vm, lines)
    assert results(answers[:5]) == [-EBUSY, 0, 0, -13, -ENOSYS]
    assert answers[6] == Answer(4, (b"\x7fELF",))
    assert tree_of(vm, "/w") == before


def test_options_that_would_blind_the_supervisor_are_refused(vm: VM, probe: Probe) -> None:
    lines = [
        call("prctl", PR_SET_DUMPABLE, 0),
        call("prctl", PR_SET_DUMPABLE, 2),
        call("prctl", 0xFFFF_0000_0000 | PR_SET_DUMPABLE, 0),
        call("prctl", PR_SET_MM, 1, 0x1000, 0, 0),
        call("prctl", PR_SET_PTRACER, -1),
        call("prctl", PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0),
    ]
    assert results(probe.in_vm(vm, lines)) == [-EPERM, -EPERM, -EPERM, -EPERM, -EINVAL, -EINVAL]
