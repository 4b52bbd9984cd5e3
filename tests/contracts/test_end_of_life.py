"""A VM ends with its supervisor, with its host process and with `close`, whatever its guests are doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import VM, InternalError
from tests.contracts.host_processes import PROMPT, HostProcess, alive, descendants, until
from tests.vm_fixtures import deny

if TYPE_CHECKING:
    from callgate.guest.process import NativeProcess

pytestmark = pytest.mark.vm

DETACHED = "import os, signal, time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(999)"
GUESTS = {
    "sleeps": ["sleep", "999"],
    "busy": ["sh", "-c", "while :; do :; done"],
    "asks-all-the-time": ["python3", "-c", "import os\nwhile True: os.path.exists('/w/x')"],
    "detached": ["python3", "-c", f"import os\nif os.fork() == 0:\n    {DETACHED}\nos.wait()"],
    "stopped": ["sh", "-c", "kill -STOP $$"],
    "blocks-in-a-judged-call": ["sh", "-c", "mkfifo /tmp/fifo; cat /tmp/fifo"],
    "many": ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 999 & done; wait"],
}


@pytest.fixture(params=GUESTS)
def guest(request: pytest.FixtureRequest) -> list[str]:
    name: str = request.param
    return GUESTS[name]


def start(vm: VM, command: list[str]) -> NativeProcess:
    """Start a program whose output nobody reads."""
    reader, writer = os.pipe()
    try:
        return vm.start(command, (reader, writer, writer))
    finally:
        os.close(reader)
        os.close(writer)


def settled(supervisor: int) -> set[HostProcess]:
    """The VM's processes once the guest is under way: init, a leader and at least one guest."""
    assert until(lambda: len(descendants(supervisor)) >= 3)
    return descendants(supervisor)


def test_no_guest_outlives_its_supervisor(vm_factory: Callable[..., VM], guest: list[str]) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    process = start(vm, guest)
    processes = settled(vm.status().supervisor_pid)
    assert alive(processes) == processes
    os.kill(vm.status().supervisor_pid, signal.SIGKILL)
    assert until(lambda: not alive(processes), PROMPT), f"still alive: {alive(processes)}"
    process.close()


def test_a_run_whose_supervisor_is_killed_ends_with_an_error(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory()
    supervisor = vm.status().supervisor_pid
    errors: list[BaseException] = []

    def run() -> None:
        try:
            vm.run(["sleep", "999"])
        except InternalError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    settled(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [InternalError]
    assert "supervisor ended" in str(errors[0])
    with pytest.raises(InternalError):
        vm.run(["true"])


HOST = """
import json, os, sys, time
from callgate import VM
vm = VM(permissions=json.loads(sys.argv[1]))
reader, writer = os.pipe()
process = vm.start(json.loads(sys.argv[2]), (reader, writer, writer))
print(vm.status().supervisor_pid, flush=True)
time.sleep(999)
"""


def host_process(guest: list[str]) -> subprocess.Popen[str]:
    import json

    command = [sys.executable, "-c", HOST, json.dumps(deny("/w/**")), json.dumps(guest)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_no_guest_outlives_the_host_process(guest: list[str], how: signal.Signals) -> None:
    with host_process(guest) as host:
        assert host.stdout is not None
        supervisor = int(host.stdout.readline())
        processes = settled(supervisor) | {one for one in descendants(host.pid) if one.pid == supervisor}
        assert len(processes) >= 4
        host.send_signal(how)
        host.wait()
        assert until(lambda: not alive(processes), PROMPT), f"still alive: {alive(processes)}"


def test_close_waits_until_no_guest_is_left(vm_factory: Callable[..., VM], guest: list[str]) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    process = start(vm, guest)
    processes = settled(vm.status().supervisor_pid)
    vm.close()
    assert alive(processes) == set()
    process.close()


def test_close_may_be_called_twice_and_ends_a_with_block() -> None:
    with VM() as vm:
        supervisor = vm.status().supervisor_pid
    assert vm.closed
    vm.close()
    assert not Path(f"/proc/{supervisor}").exists()
    with pytest.raises(ValueError, match="closed"):
        vm.run(["true"])


def test_a_vm_that_is_forgotten_ends() -> None:
    vm = VM()
    processes = descendants(vm.status().supervisor_pid)
    assert processes
    del vm
    import gc

    gc.collect()
    assert until(lambda: not alive(processes))
