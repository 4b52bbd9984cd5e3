"""Callers that are killed in the very moment in which their exec is proved: whoever executes next is served all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.contracts.host_processes import descendants, until
from tests.escapes.held import gives_back, open_descriptors

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

#: Kills children at every moment around an exec: before it is taken, while it is judged, in the stop, and after.
PROGRAM = """
import os, random, signal, sys, time
random.seed(7)
rounds = int(sys.argv[1])
for number in range(rounds):
    pid = os.fork()
    if pid == 0:
        if number % 3: os.execv("/bin/sh", ["sh", "-c", "exec /bin/sleep 9"])
        while True: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    time.sleep(random.random() * 0.004)
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    if number % 10 == 0:
        assert os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)[1]) == 0
print("served")
"""
JUDGED = {"childProcess": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["/bin/nothing"]}]}}


@pytest.mark.parametrize("rounds", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_later_programs_start(vm_factory: Callable[..., VM], rounds: int) -> None:
    vm = vm_factory(permissions=JUDGED)
    vm.run(["true"])
    supervisor = vm.status().supervisor_pid
    before = open_descriptors(vm)
    result = vm.run(["python3", "-c", PROGRAM, str(rounds)], timeout=60 + rounds / 10)
    assert (result.returncode, result.stdout, result.stderr) == (0, "served\n", "")
    assert vm.run(["/bin/true"], timeout=30).returncode == 0
    assert vm.run(["sh", "-c", "/bin/true && echo alive"], timeout=30).stdout == "alive\n"
    assert until(lambda: len(descendants(supervisor)) == 1)  # init: no program is left, no zombie either
    assert gives_back(vm, before)
