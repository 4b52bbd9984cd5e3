"""Acting on other processes: those of the host do not exist, and guests do not trace each other (catalogue 91 to 94)."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from errno import EACCES, EBADF, EINVAL, EPERM, ESRCH
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import Earlier, Out, Probe, Raw, Words, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

TERM = signal.SIGTERM
POLICIES = {"default": None, "judged": judged_but_allowed(), "no-process": {"process": "deny"}}
PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_TRACEME = 16, 0x4206, 0


@pytest.fixture(params=POLICIES)
def vm(request: pytest.FixtureRequest, vm_factory: Callable[..., VM], probe: Probe) -> VM:
    return vm_factory(permissions=POLICIES[request.param], files=probe.files)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the host that ends by any of the signals that are tried."""
    with subprocess.Popen(["sleep", "999"]) as process:
        yield process
        process.kill()


def signals(pid: int) -> list[str]:
    """Every call that sends a signal to a process by its number."""
    info = Raw(struct.pack("<iii", TERM, 0, -1) + bytes(116))
    return [
        call("kill", pid, TERM),
        call("tkill", pid, TERM),
        call("tgkill", pid, pid, TERM),
        call("rt_sigqueueinfo", pid, TERM, info),
        call("rt_tgsigqueueinfo", pid, pid, TERM, info),
    ]


def test_processes_of_the_host_are_not_there_to_be_signalled(vm: VM, probe: Probe, bystander: subprocess.Popen[bytes]) -> None:
    targets = [vm.status().supervisor_pid, os.getpid(), bystander.pid]
    answers = [results(probe.in_vm(vm, signals(pid))) for pid in targets]
    assert answers == [[-ESRCH] * 5] * 3  # whatever the policy says: they do not exist
    assert bystander.poll() is None
    assert vm.run(["echo", "alive"]).stdout == "alive\n"


def test_the_same_calls_do_signal_on_the_bare_host(probe: Probe, host_dir: Path) -> None:
    """The control, with signal 0 to itself by every call."""
    lines = [call("getpid"), call("kill", Earlier(0), 0), call("tkill", Earlier(0), 0), call("tgkill", Earlier(0), Earlier(0), 0)]
    assert results(probe.on_host(lines, cwd=host_dir))[1:] == [0, 0, 0]


def test_a_process_may_always_signal_itself_and_wait(vm: VM) -> None:
    program = (
        "import os, signal\ngot = []\nsignal.signal(signal.SIGUSR1, lambda *_: got.append(1))\n"
        "os.kill(os.getpid(), signal.SIGUSR1); signal.raise_signal(signal.SIGUSR1)\n"
        "pid = os.fork()\nif pid == 0: os.abort()\n"
        "print(got, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert vm.run(["python3", "-c", program]).stdout == "[1, 1] -6\n"


def test_a_child_is_signalled_unless_the_policy_refuses(vm: VM) -> None:
    program = (
        "import os, signal, time\npid = os.fork()\nif pid == 0: time.sleep(60)\n"
        "try: os.kill(pid, signal.SIGKILL)\nexcept OSError as error: print(error.errno)\n"
        "else: print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    allowed = vm.policy.decide("process", "*", "kill").allowed
    assert vm.run(["python3", "-c", program]).stdout == ("-9\n" if allowed else "13\n")


def test_a_rule_on_a_process_action_decides_by_its_name(vm_factory: Callable[..., VM]) -> None:
    rules = [{"mode": "deny", "patterns": ["kill"]}]
    vm = vm_factory(permissions={"process": {"default": "allow", "rules": rules}})
    program = (
        "import os, signal, time\npid = os.fork()\nif pid == 0: time.sleep(60)\n"
        "def attempt(f):\n    try: f()\n    except OSError as error: return error.errno\n    return 0\n"
        "print(attempt(lambda: os.kill(pid, 9)), attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)))\n"
    )
    result = vm.run(["python3", "-c", program], timeout=60)
    assert result.stdout == "13 0\n"
    (denial,) = result.denials
    assert denial.message.startswith("EACCES: permission denied, process://kill:")


def test_nobody_is_traced_or_looked_into(vm: VM, probe: Probe) -> None:
    one = Words((Out(8), 8))
    there = Words((0x400000, 8))
    lines = [
        call("getppid"),
        call("ptrace", PTRACE_TRACEME, 0, 0, 0),
        call("ptrace", PTRACE_ATTACH, Earlier(0), 0, 0),
        call("ptrace", PTRACE_SEIZE, 1, 0, 0),
        call("process_vm_readv", Earlier(0), one, 1, there, 1, 0),
        call("process_vm_writev", Earlier(0), one, 1, there, 1, 0),
        call("kcmp", Earlier(0), 1, 2, 0, 0),
        call("pidfd_getfd", 99, 0, 0),
        call("process_madvise", 99, there, 1, 21, 0),
    ]
    answers = results(probe.in_vm(vm, lines))[1:]
    assert set(answers) <= {-EPERM, -EACCES, -EBADF}  # there is no descriptor 99


def test_tracing_works_on_the_bare_host(probe: Probe, host_dir: Path) -> None:
    assert results(probe.on_host([call("ptrace", PTRACE_TRACEME, 0, 0, 0)], cwd=host_dir)) == [0]


def test_no_descriptor_of_another_process_is_taken(vm: VM, probe: Probe) -> None:
    """Neither the listener of the filter nor anything of init or the leader."""
    lines = [call("getppid"), call("pidfd_open", Earlier(0), 0), call("pidfd_open", 1, 0)]
    lines += [call("pidfd_getfd", Earlier(source), number, 0) for source in (1, 2) for number in range(32)]
    answers = results(probe.in_vm(vm, lines))[3:]
    assert set(answers) <= {-EPERM, -EACCES, -EBADF}


def test_asynchronous_signals_are_aimed_at_nobody_where_signals_are_denied(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions={"process": "deny"}, files=probe.files)
    f_setown, f_setown_ex = 8, 15
    lines = [
        call("pipe", Out(8)),
        call("fcntl", 3, f_setown, 1),
        call("fcntl", 3, f_setown, -1),
        call("fcntl", 3, f_setown_ex, Raw(struct.pack("<ii", 1, 1))),
        call("fcntl", 3, f_setown, 0),
        call("ioctl", 3, 0x8901, Raw(struct.pack("<i", 1))),  # FIOSETOWN
    ]
    assert results(probe.in_vm(vm, lines))[1:5] == [-EACCES, -EACCES, -EACCES, 0]
    assert results(probe.in_vm(vm, lines))[5] < 0


def test_a_timer_signals_only_threads_of_its_own_process(vm: VM, probe: Probe) -> None:
    sigev_thread_id = 4
    event = Raw(struct.pack("<QiiI", 0, TERM, sigev_thread_id, 1) + bytes(44))
    assert results(probe.in_vm(vm, [call("timer_create", 1, event, Out(4))])) == [-EINVAL]


def test_limits_and_priorities_of_others_are_refused_where_process_is_denied(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions={"process": "deny"}, files=probe.files)
    lines = [
        call("getppid"),
        call("prlimit64", Earlier(0), 7, Raw(struct.pack("<QQ", 10, 10)), 0),
        call("setpriority", 0, Earlier(0), 19),
        call("sched_setaffinity", Earlier(0), 8, Raw(struct.pack("<Q", 1))),
        call("sched_setscheduler", Earlier(0), 0, Raw(bytes(4))),
        call("setpgid", Earlier(0), Earlier(0)),
        call("pidfd_open", Earlier(0), 0),
        call("ioprio_set", 1, Earlier(0), 0),
    ]
    assert results(probe.in_vm(vm, lines))[1:] == [-EACCES] * 7
    own = [
        call("prlimit64", 0, 7, Raw(struct.pack("<QQ", 10, 10)), 0),
        call("setpriority", 0, 0, 19),
        call("sched_setaffinity", 0, 8, Raw(struct.pack("<Q", 1))),
        call("getpid"),
    ]
    assert results(probe.in_vm(vm, own))[:3] == [0, 0, 0]


def test_other_entries_of_proc_are_refused_where_fs_denies_them(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=deny("/proc/1/**", operations=["read", "readdir"]), files=probe.files)
    lines = [
        call("open", "/proc/1/status", os.O_RDONLY),
        call("open", "/proc/1", os.O_RDONLY),
        call("open", "/proc/self/status", os.O_RDONLY),
    ]
    assert results(probe.in_vm(vm, lines)) == [-EACCES, -EACCES, 3]
