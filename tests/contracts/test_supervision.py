"""The supervisor under signals, without anybody who listens to it, stopped, and after hundreds of runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from errno import EAGAIN
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate.scopes.operations import SCOPES
from tests.contracts.host_processes import alive, descendants, until
from tests.vm_fixtures import PROGRAMS, deny, judged_but_allowed

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]
OPENS = "import os\nfor _ in range({count}): os.close(os.open('/etc/passwd', os.O_RDONLY))\nprint('opened')"


def test_a_policy_of_no_rights_at_all_still_starts_programs(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=dict.fromkeys(SCOPES, "deny"), cwd="/")
    assert vm.run(["/bin/echo", "started"], timeout=30).stdout == "started\n"
    assert vm.run(["/bin/sh", "-c", "/bin/true"], timeout=30).returncode == 126


def test_signals_to_the_supervisor_disturb_no_answer(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=judged_but_allowed())
    supervisor, done = vm.status().supervisor_pid, threading.Event()

    def storm() -> None:
        while not done.is_set():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM, signal.SIGCHLD):
                os.kill(supervisor, number)
            time.sleep(0.001)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        result = vm.run(["python3", "-c", OPENS.format(count=2000)], timeout=120)
    finally:
        done.set()
        thread.join()
    assert (result.returncode, result.stdout, result.stderr) == (0, "opened\n", "")


def test_a_supervisor_that_is_stopped_lets_nothing_through_and_goes_on(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    supervisor = vm.status().supervisor_pid
    process = vm.spawn("read x; cat /w/secret; echo tried")
    assert process.stdin is not None
    os.kill(supervisor, signal.SIGSTOP)
    try:
        process.stdin.write("\n")
        time.sleep(0.3)
        assert process.poll() is None
    finally:
        os.kill(supervisor, signal.SIGCONT)
    out, err = process.communicate(timeout=30)
    assert (out, "Permission denied" in err) == ("tried\n", True)


def test_closing_ends_a_vm_whose_supervisor_is_stopped(vm_factory: Factory) -> None:
    vm = vm_factory()
    process = vm.spawn("setsid sleep 999 & sleep 999")
    supervisor = vm.status().supervisor_pid
    assert until(lambda: len(descendants(supervisor)) >= 4)
    processes = descendants(supervisor)
    os.kill(supervisor, signal.SIGSTOP)
    vm.close()
    assert until(lambda: not alive(processes), 5)
    process.close()


def test_refusals_that_nobody_hears_of_hold_up_nobody(vm_factory: Factory) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    flood = "import os\nfor _ in range(20000): os.path.exists('/w/' + 'x' * 200)\nos.write(1, b'done')"
    process = vm.spawn(["python3", "-c", flood])
    assert process.stdout is not None
    assert process.stdout.read(4) == "done"  # with not one of its events read
    assert vm.run("echo beside").stdout == "beside\n"
    assert process.wait(60) == 0
    assert vm.status().denials == 20000
    process.close()


def test_a_second_process_may_not_hold_up_the_end_of_a_run(vm_factory: Factory) -> None:
    """What escaped from its run by a descriptor passed to another run keeps only the pipe."""
    vm = vm_factory()
    keeper = vm.spawn("mkfifo /tmp/f; echo ready; exec 3< /tmp/f; read x <&3; sleep 999")
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == "ready\n"
    assert vm.run("echo word > /tmp/f; echo out", timeout=30).stdout == "out\n"
    keeper.close()


@pytest.mark.parametrize("argv", [["no-such-program"], ["/etc/passwd"], ["./garbage"]])
def test_programs_that_cannot_start_leave_nothing(vm_factory: Factory, argv: list[str]) -> None:
    vm = vm_factory(files={"/home/agentos/garbage": b"\x7fELF and no more"})
    vm.run(["true"])
    supervisor = vm.status().supervisor_pid
    before = os.stat(f"/proc/{supervisor}/fd").st_size
    for _ in range(100):
        assert vm.run(argv).returncode in (126, 127)
    assert until(lambda: len(descendants(supervisor)) == 1)
    assert until(lambda: os.stat(f"/proc/{supervisor}/fd").st_size <= before)


def test_a_hundred_thousand_forks_are_gone_soon_after_their_run(vm_factory: Factory, compile_c: Callable[..., Path]) -> None:
    vm = vm_factory(files={"/opt/bomb": compile_c(PROGRAMS / "forkbomb.c").read_bytes()}, limits={"processes": 300})
    made, error = map(int, vm.run(["/opt/bomb", "100000", "1"], timeout=300).stdout.split())
    assert (0 < made <= 300, error) == (True, EAGAIN)
    assert until(lambda: len(descendants(vm.status().supervisor_pid)) == 1, 2)


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.parametrize(
    ("runs", "calls"), [(150, 20_000), pytest.param(3000, 1_000_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_runs_and_judged_calls_leave_descriptors_threads_and_memory_flat(vm_factory: Factory, runs: int, calls: int) -> None:
    vm = vm_factory(permissions=judged_but_allowed())
    supervisor = vm.status().supervisor_pid
    program = "import os\nfor _ in range({0}): os.stat('/etc/passwd')"

    def work(some_runs: int, some_calls: int) -> tuple[int, int, int]:
        for number in range(some_runs):
            assert vm.run(["sh", "-c", f"exit {number % 100}"]).returncode == number % 100
        assert vm.run(["python3", "-c", program.format(some_calls)], timeout=600).returncode == 0
        return os.stat(f"/proc/{supervisor}/fd").st_size, _threads(supervisor), _resident(supervisor)

    before = work(50, 5000)
    after = work(runs, calls)
    assert until(lambda: os.stat(f"/proc/{supervisor}/fd").st_size <= before[0])
    assert after[1] <= before[1] + 4  # workers come and go with how many calls were waiting
    assert after[2] <= before[2] + (2 << 20)
    assert vm.status().programs_running == 0
