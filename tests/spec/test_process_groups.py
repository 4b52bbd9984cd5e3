"""process: calls that are about several processes act on exactly those that the policy allows (SPEC 3.4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


def rules(*given: tuple[str, str], default: str = "allow") -> dict[str, object]:
    return {"process": {"default": default, "rules": [{"mode": mode, "patterns": [pattern]} for mode, pattern in given]}}


#: Three children in a group of their own and one beside it, then what is asked of them. The children have the next free numbers.
PROGRAM = """
import ctypes, json, os, resource, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
ready, told = os.pipe()
def child(group):
    pid = os.fork()
    if pid == 0:
        if group is not None: os.setpgid(0, group)
        os.write(told, b"x")
        while True: time.sleep(60)
    os.read(ready, 1)
    return pid
first = child(0)
group = [first, child(first), child(first)]
alone = child(None)
everybody = [*group, alone]
def attempt(act, *arguments):
    try: act(*arguments)
    except OSError as error: return error.errno
    return 0
def raw(*arguments):
    return -ctypes.get_errno() if libc.syscall(*map(ctypes.c_long, arguments)) < 0 else 0
def left():
    quiet = 0
    while quiet < 20:  # until nobody has ended for a while
        time.sleep(0.02)
        ended = [pid for pid in everybody if os.waitpid(pid, os.WNOHANG)[0]]
        for pid in ended: everybody.remove(pid)
        quiet = 0 if ended else quiet + 1
    return [pid - first for pid in everybody]
def say(**found): print(json.dumps(found))
"""


def ask(vm: VM, question: str) -> dict[str, Any]:
    result = vm.run(["python3", "-c", PROGRAM + question], timeout=30)
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


KILL_GROUP = "got = attempt(os.killpg, first, signal.SIGKILL); say(got=got, left=left(), first=first)"


def test_a_signal_to_a_group_reaches_all_of_it_where_it_may(vm_factory: Callable[..., VM]) -> None:
    for permissions in (None, rules(("deny", "setsid")), rules(("allow", "kill"), ("allow", "setpgid"), default="deny")):
        found = ask(vm_factory(permissions=permissions), KILL_GROUP)
        assert (found["got"], found["left"]) == (0, [3])


def test_a_signal_to_a_group_reaches_exactly_the_allowed_members(vm_factory: Callable[..., VM]) -> None:
    first = ask(vm_factory(), KILL_GROUP)["first"]
    vm = vm_factory(permissions=rules(("deny", f"kill:{first + 1}")))
    assert ask(vm, KILL_GROUP) == {"got": 0, "left": [1, 3], "first": first}
    assert [denial.subject for denial in vm.denials] == [f"kill:{first + 1}"]


def test_a_signal_to_a_group_of_which_nobody_may_be_reached_is_refused(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=rules(("deny", "kill")))
    found = ask(vm, KILL_GROUP)
    assert (found["got"], found["left"]) == (13, [0, 1, 2, 3])
    assert [denial.subject for denial in vm.denials] == [f"kill:{found['first'] + number}" for number in range(3)]


def test_who_is_not_there_is_esrch_whatever_the_policy_says(vm_factory: Callable[..., VM]) -> None:
    question = """
number = 4000000
say(group=attempt(os.killpg, number, 0), worst=raw(62, -2147483648, 0), one=attempt(os.kill, number, 0),
    priority=[attempt(os.setpriority, kind, number, 1) for kind in (os.PRIO_PROCESS, os.PRIO_PGRP)],
    others=[attempt(os.sched_setaffinity, number, {0}), attempt(resource.prlimit, number, resource.RLIMIT_CORE, (0, 0)),
            attempt(os.setpgid, number, 0), attempt(os.pidfd_open, number)], negative=[raw(144, -5, 0, 0), raw(434, -5, 0)])
"""
    nobody = {"group": 3, "worst": -3, "one": 3, "priority": [3, 3], "others": [3] * 4, "negative": [-22, -22]}
    assert ask(vm_factory(), question) == nobody
    for pattern in ("kill:1", "kill", "set*"):
        assert ask(vm_factory(permissions=rules(("deny", pattern), ("allow", "setpgid"))), question) == nobody


def test_the_callers_own_group_holds_the_caller_which_is_never_refused(vm_factory: Callable[..., VM]) -> None:
    question = """
got = []
signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
say(answer=attempt(os.kill, 0, signal.SIGUSR1), got=got, left=left())
"""
    assert ask(vm_factory(), question) == {"answer": 0, "got": [10], "left": [0, 1, 2]}
    assert ask(vm_factory(permissions=rules(("deny", "kill"))), question) == {"answer": 0, "got": [10], "left": [0, 1, 2, 3]}


def test_a_signal_to_everybody_spares_the_caller_and_whom_the_policy_spares(vm_factory: Callable[..., VM]) -> None:
    first = ask(vm_factory(), KILL_GROUP)["first"]
    vm = vm_factory(permissions=rules(("deny", f"kill:{first}"), ("deny", f"kill:{first + 3}")))
    assert ask(vm, "say(got=attempt(os.kill, -1, signal.SIGKILL), left=left())") == {"got": 0, "left": [0, 3]}
    vm = vm_factory(permissions=rules(("deny", "kill")))
    assert ask(vm, "say(got=attempt(os.kill, -1, signal.SIGKILL), left=left())") == {"got": 13, "left": [0, 1, 2, 3]}


def test_who_forks_while_everybody_is_signalled_is_signalled_too(vm_factory: Callable[..., VM]) -> None:
    """Where the kernel would hold all of them at once, the supervisor looks again until nobody new is there."""
    question = """
runners = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.write(told, b"x")
        while True:
            if os.fork(): time.sleep(60)
            time.sleep(0.002)
    os.read(ready, 1)
    runners.append(pid)
answers = [attempt(os.killpg, pid, signal.SIGKILL) for pid in runners]
for pid in runners: os.waitpid(pid, 0)
deadline = time.monotonic() + 10
while time.monotonic() < deadline and any(attempt(os.killpg, pid, 0) == 0 for pid in runners): time.sleep(0.02)
say(answers=answers, after=[attempt(os.killpg, pid, 0) for pid in runners])
"""
    for permissions in (None, rules(("deny", "kill:1"))):
        assert ask(vm_factory(permissions=permissions), question) == {"answers": [0, 0, 0], "after": [3, 3, 3]}


SIGNAL_BY_DESCRIPTOR = """
descriptors = [os.pidfd_open(pid) for pid in everybody]
say(got=[attempt(signal.pidfd_send_signal, fd, signal.SIGKILL) for fd in descriptors], left=left(),
    none=attempt(signal.pidfd_send_signal, 0, 0), closed=attempt(signal.pidfd_send_signal, 99, 0), first=first)
"""


def test_a_signal_by_descriptor_is_judged_as_the_process_it_means(vm_factory: Callable[..., VM]) -> None:
    free = ask(vm_factory(), SIGNAL_BY_DESCRIPTOR)
    assert (free["got"], free["left"], free["none"], free["closed"]) == ([0] * 4, [], 9, 9)
    first = free["first"]
    vm = vm_factory(permissions=rules(("deny", f"kill:{first + 2}")))
    assert ask(vm, SIGNAL_BY_DESCRIPTOR) == {**free, "got": [0, 0, 13, 0], "left": [2]}
    assert [denial.subject for denial in vm.denials] == [f"kill:{first + 2}"]
    assert ask(vm_factory(permissions=rules(("deny", "kill"))), SIGNAL_BY_DESCRIPTOR)["got"] == [13] * 4


def test_a_descriptor_of_itself_is_never_judged_and_init_stays_deaf(vm_factory: Callable[..., VM]) -> None:
    question = """
got = []
signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
say(itself=attempt(signal.pidfd_send_signal, os.pidfd_open(os.getpid()), signal.SIGUSR1), got=got,
    init=attempt(signal.pidfd_send_signal, os.pidfd_open(1), signal.SIGKILL),
    other=attempt(signal.pidfd_send_signal, os.pidfd_open(alone), 0))
"""
    assert ask(vm_factory(), question) == {"itself": 0, "got": [10], "init": 0, "other": 0}
    assert ask(vm_factory(permissions=rules(("deny", "kill:999"))), question) == {"itself": 0, "got": [10], "init": 0, "other": 0}
    assert ask(vm_factory(permissions=rules(("deny", "kill"))), question) == {"itself": 0, "got": [10], "init": 13, "other": 13}


def test_what_the_receiver_is_told_of_the_sender(vm_factory: Callable[..., VM]) -> None:
    """One process by its number: as ever. Several, under a rule on some of them: sent on behalf, by a pid 0 from outside."""
    question = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
back = os.fork()
if back == 0:
    os.kill(os.getppid(), signal.SIGUSR1); time.sleep(60)
one = signal.sigwaitinfo([signal.SIGUSR1])
sender = os.fork()
if sender == 0:
    os.killpg(0, signal.SIGUSR1); time.sleep(60)
many = signal.sigwaitinfo([signal.SIGUSR1])
said = [many.si_pid - sender if many.si_pid else "outside", many.si_uid, many.si_code]
say(one=[one.si_pid == back, one.si_uid, one.si_code], many=said)
for pid in (back, sender): os.kill(pid, signal.SIGKILL)
"""
    by_number = [True, 1000, 0]
    assert ask(vm_factory(), question) == {"one": by_number, "many": [0, 1000, 0]}
    assert ask(vm_factory(permissions=rules(("deny", "kill:999"))), question) == {"one": by_number, "many": ["outside", 1000, 0]}


PRIORITIES = """
PGRP, USER = os.PRIO_PGRP, os.PRIO_USER
def nice(): return [os.getpriority(os.PRIO_PROCESS, pid) for pid in everybody]
group_answer = attempt(os.setpriority, PGRP, first, 3)
after_group = nice()
say(group=group_answer, after_group=after_group, user=attempt(os.setpriority, USER, os.getuid(), 5), after=nice(),
    own=os.getpriority(os.PRIO_PROCESS, 0), io=raw(251, 2, first, (2 << 13) | 6),
    nobody=attempt(os.setpriority, PGRP, 4000000, 5), other_user=attempt(os.setpriority, USER, 4242, 5),
    kind=raw(141, 9, 0, 5), io_kind=raw(251, 9, 0, 0), first=first)
"""


def test_the_priorities_of_several_are_set_for_exactly_the_allowed(vm_factory: Callable[..., VM]) -> None:
    free = ask(vm_factory(), PRIORITIES)
    expected = {
        "group": 0,
        "after_group": [3, 3, 3, 0],
        "user": 0,
        "after": [5] * 4,
        "own": 5,
        "io": 0,
        "nobody": 3,
        "other_user": 3,
    }
    assert free == expected | {"kind": -22, "io_kind": -22, "first": free["first"]}
    assert ask(vm_factory(permissions=rules(("deny", "kill:999"))), PRIORITIES) == free
    vm = vm_factory(permissions=rules(("deny", f"setpriority:{free['first'] + 1}")))
    found = ask(vm, PRIORITIES)
    assert found == free | {"group": 13, "after_group": [3, 0, 3, 0], "user": 13, "after": [5, 0, 5, 5], "io": -13}
    assert {denial.subject for denial in vm.denials} == {f"setpriority:{free['first'] + 1}"}


def test_neither_init_nor_a_leader_is_limited_or_slowed_down(vm_factory: Callable[..., VM]) -> None:
    question = """
import subprocess
limits = lambda pid: attempt(resource.prlimit, pid, resource.RLIMIT_CPU, (1, 1))
def everything(pid):
    scheduler = attempt(os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
    priority = attempt(os.setpriority, os.PRIO_PROCESS, pid, 9)
    return [limits(pid), priority, attempt(os.sched_setaffinity, pid, {0}), scheduler, -raw(251, 1, pid, 0)]
say(init=everything(1), leader=everything(os.getppid()))
"""
    assert ask(vm_factory(), question)["init"] == [1] * 5
    vm = vm_factory(permissions=rules(("deny", "kill:999")))
    assert ask(vm, question) == {"init": [1] * 5, "leader": [1] * 5}
    assert vm.run(["echo", "alive"]).stdout == "alive\n"


def test_a_processor_limit_on_init_would_be_set_without_that(vm_factory: Callable[..., VM]) -> None:
    """The control: what the kernel allows on another process of the same user."""
    assert ask(vm_factory(), "say(got=attempt(resource.prlimit, first, resource.RLIMIT_CPU, (1, 1)))") == {"got": 0}


def test_a_thread_counts_as_its_process(vm_factory: Callable[..., VM]) -> None:
    question = """
import threading
numbers, stop = [], threading.Event()
thread = threading.Thread(target=lambda: (numbers.append(threading.get_native_id()), stop.wait()))
thread.start()
while not numbers: pass
own = [attempt(os.sched_setaffinity, numbers[0], os.sched_getaffinity(0)), raw(141, 0, numbers[0], 1), raw(200, numbers[0], 0)]
stop.set(); thread.join()
say(own=own)
"""
    for permissions in (None, {"process": "deny"}, rules(("deny", "kill"), ("deny", "set*"))):
        vm = vm_factory(permissions=permissions)
        result = vm.run(["python3", "-c", "import os\nos.setpgid = lambda *given: None\n" + PROGRAM + question], timeout=30)
        assert (result.stdout, result.stderr) == ('{"own": [0, 0, 0]}\n', "")
