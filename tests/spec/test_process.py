"""process: acting on another process is judged by action and number; acting on oneself never is (SPEC 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import messages

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

#: Acts on its child in every way and prints an errno for each.
ACTS = """
import os, resource, signal, time
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
def attempt(act):
    try: act()
    except OSError as error: return error.errno
    return 0
acts = {
    "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, child, 19),
    "setaffinity": lambda: os.sched_setaffinity(child, os.sched_getaffinity(0)),
    "setscheduler": lambda: os.sched_setscheduler(child, os.SCHED_BATCH, os.sched_param(0)),
    "prlimit": lambda: resource.prlimit(child, resource.RLIMIT_NOFILE, (50, 50)),
    "setpgid": lambda: os.setpgid(child, child),
    "pidfd_open": lambda: os.close(os.pidfd_open(child)),
    "inspect": lambda: open(f"/proc/{child}/environ").close(),
    "kill": lambda: os.kill(child, signal.SIGKILL),
}
print(*(f"{name}={attempt(act)}" for name, act in acts.items()))
"""
ACTIONS = ("setpriority", "setaffinity", "setscheduler", "prlimit", "setpgid", "pidfd_open", "inspect", "kill")


def act(vm: VM) -> dict[str, int]:
    result = vm.run(["python3", "-c", ACTS], timeout=30)
    assert result.stderr == ""
    return {name: int(number) for name, number in (word.split("=") for word in result.stdout.split())}


def test_every_action_works_by_default(vm_factory: Callable[..., VM]) -> None:
    assert act(vm_factory()) == dict.fromkeys(ACTIONS, 0)


def test_every_action_is_refused_where_the_scope_is_denied(vm_factory: Callable[..., VM]) -> None:
    assert act(vm_factory(permissions={"process": "deny"})) == dict.fromkeys(ACTIONS, 13)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_rule_refuses_its_own_action_and_no_other(vm_factory: Callable[..., VM], action: str) -> None:
    rules = [{"mode": "deny", "patterns": [action]}]
    vm = vm_factory(permissions={"process": {"default": "allow", "rules": rules}})
    assert act(vm) == dict.fromkeys(ACTIONS, 0) | {action: 13}
    (denial,) = vm.denials
    assert denial.subject.split(":")[0] == action


def test_a_rule_can_name_one_process(vm_factory: Callable[..., VM]) -> None:
    rules = [{"mode": "deny", "patterns": ["kill:1", "setpriority:1"]}]
    vm = vm_factory(permissions={"process": {"default": "allow", "rules": rules}})
    assert act(vm) == dict.fromkeys(ACTIONS, 0)
    result = vm.run("kill -0 1")
    assert result.returncode != 0
    assert messages(result) == ["EACCES: permission denied, process://kill:1: blocked by process.kill policy"]


#: What a process does to itself, and waiting for children.
OWN = """
import os, resource, signal
os.setpriority(os.PRIO_PROCESS, 0, 18)
os.setpriority(os.PRIO_PROCESS, os.getpid(), 19)
os.sched_setaffinity(0, os.sched_getaffinity(0))
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60))
resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, (40, 50))
signal.signal(signal.SIGUSR1, lambda *_: print("signalled"))
signal.raise_signal(signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR1)
child = os.fork()
if child == 0: os.kill(os.getpid(), signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
open("/proc/self/environ").close()
open(f"/proc/{os.getpid()}/status").close()
os.abort()
"""


def test_what_a_process_does_to_itself_is_never_judged(vm_factory: Callable[..., VM]) -> None:
    for permissions in (None, {"process": "deny"}, {"process": {"rules": [{"mode": "allow", "patterns": ["setsid"]}]}}):
        result = vm_factory(permissions=permissions).run(["python3", "-u", "-c", OWN])
        assert (result.returncode, result.stdout, result.stderr, result.denials) == (-6, "signalled\nsignalled\n-15\n", "", ())


def test_shells_pipelines_and_python_work_without_the_scope(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions={"process": "deny"})
    assert vm.run("seq 3 | (cat; echo x) | wc -l; (exit 4); echo $?").stdout == "4\n4\n"
    program = "import subprocess, threading; print(subprocess.run(['echo', 'x'], capture_output=True).stdout)"
    assert vm.run(["python3", "-c", program]).stdout == "b'x\\n'\n"
