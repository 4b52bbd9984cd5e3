"""A process is looked at by the number of any of its threads too, in several ways: all are `inspect` of that process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

#: A child with a second thread, and every way to its entries: by its number, by its thread's, and by the thread below it.
PROGRAM = """
import os, threading, time
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    def work():
        os.write(writer, b"%d\\n" % threading.get_native_id())
        time.sleep(60)
    threading.Thread(target=work, daemon=True).start()
    time.sleep(60)
thread = int(os.read(reader, 20))
numbers = (child, thread, f"{child}/task/{thread}", f"{thread}/task/{child}", f"{child}/../{thread}")
ways = [f"/proc/{number}" for number in numbers]
def attempt(act, path):
    try: act(path)
    except OSError as error: return error.errno
    return 0
acts = {
    "environ": lambda path: open(f"{path}/environ").close(),
    "status": lambda path: open(f"{path}/status").close(),
    "stat": lambda path: os.stat(f"{path}/maps"),
    "list": lambda path: os.listdir(f"{path}/fd"),
    "link": lambda path: os.readlink(f"{path}/cwd"),
    "enter": lambda path: os.chdir(path),
}
for name, act in acts.items():
    print(name, *(attempt(act, way) for way in ways), attempt(act, "/proc/self"), attempt(act, "/proc/thread-self"))
os.kill(child, 9)
"""
ALLOWED, REFUSED = "0 0 0 0 0 0 0", "13 13 13 13 13 0 0"
NAMES = ("environ", "status", "stat", "list", "link", "enter")


def look(vm: VM) -> list[str]:
    result = vm.run(["python3", "-c", PROGRAM], timeout=30)
    assert result.stderr == ""
    return result.stdout.splitlines()


def test_one_of_ones_own_may_be_looked_at(vm_factory: Callable[..., VM]) -> None:
    """The control: in a VM that judges inspecting, but refuses it for no process there is."""
    for permissions in (None, {"process": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["inspect:4000000"]}]}}):
        assert look(vm_factory(permissions=permissions)) == [f"{name} {ALLOWED}" for name in NAMES]


@pytest.mark.parametrize("process", ["deny", {"default": "allow", "rules": [{"mode": "deny", "patterns": ["inspect"]}]}])
def test_where_inspecting_is_refused_no_thread_is_looked_at(vm_factory: Callable[..., VM], process: object) -> None:
    vm = vm_factory(permissions={"process": process})
    result = vm.run(["python3", "-c", PROGRAM.replace("os.kill(child, 9)", "")], timeout=30)
    assert (result.stdout.splitlines(), result.stderr) == ([f"{name} {REFUSED}" for name in NAMES], "")
    child = {denial.subject for denial in vm.denials}
    assert len(child) == 1  # whichever thread was named, it is the process that is judged
