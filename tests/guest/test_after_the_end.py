"""What is left of a VM when it is closed, or has died: its programs are dead, and nothing of it answers any more."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import callgate
from tests.contracts.host_processes import until

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]


def close(vm: VM) -> None:
    vm.close()


def kill_supervisor(vm: VM) -> None:
    os.kill(vm.status().supervisor_pid, signal.SIGKILL)


@pytest.mark.parametrize("end", [close, kill_supervisor])
def test_a_program_is_killed_with_its_vm(vm_factory: Factory, end: Callable[[VM], None]) -> None:
    vm = vm_factory()
    with closing(vm.spawn("echo early; exec sleep 98")) as process, closing(vm.spawn("echo early; exec sleep 98")) as asked:
        assert (process.stdout.readline(), process.poll()) == ("early\n", None)
        assert until(lambda: vm.run(["cat", f"/proc/{asked.pid}/comm"]).stdout == "sleep\n")
        end(vm)
        assert process.wait(30) == process.poll() == process.returncode == -signal.SIGKILL
        assert asked.communicate("never read", timeout=30) == ("early\n", "")
        assert asked.returncode == -signal.SIGKILL
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
        process.kill()
        process.send_signal(signal.SIGTERM)


def test_closing_a_vm_tells_the_return_codes_without_being_asked(vm_factory: Factory) -> None:
    vm = vm_factory()
    with closing(vm.spawn(["sleep", "98"])) as running, closing(vm.spawn("exit 7")) as ended:
        assert ended.wait() == 7
        with closing(vm.spawn("exit 8")) as unheard:
            assert until(lambda: vm.status().programs_running == 1)
            vm.close()
            assert (running.returncode, ended.returncode, unheard.returncode) == (-signal.SIGKILL, 7, 8)
            assert unheard.wait() == 8


def test_a_block_whose_vm_was_closed_inside_ends_without_an_error() -> None:
    with callgate.VM() as vm, vm.spawn(["sleep", "98"]) as process:
        vm.close()
    assert process.returncode == -signal.SIGKILL


def test_a_terminal_and_relayed_streams_end_with_the_vm_too(vm_factory: Factory) -> None:
    vm = vm_factory()
    with closing(vm.spawn(["sleep", "98"], pty=True)) as terminal:
        heard: list[str] = []
        with closing(vm.spawn("echo early; exec sleep 98", on_stdout=heard.append)) as relayed:
            assert until(lambda: heard == ["early\n"])
            vm.close()
            assert relayed.wait(30) == terminal.wait(30) == -signal.SIGKILL
            assert terminal.stdout.read() == ""


def test_a_closed_vm_calls_no_host_function(vm_factory: Factory) -> None:
    called: list[int] = []
    vm = vm_factory(bindings={"note": called.append})
    vm.close()
    for use in (lambda: vm.call("note", 1), vm.__enter__, lambda: vm.binding(close), lambda: vm.run("true")):
        with pytest.raises(ValueError, match=r"^the VM is closed$"):
            use()
    assert not called


def test_a_fork_takes_nothing_from_the_processes_of_its_parent(vm_factory: Factory) -> None:
    vm = vm_factory()
    with closing(vm.spawn("exit 5")) as process:
        assert select.select([process], [], [], 30)[0]  # told, and not heard yet
        child = os.fork()
        if not child:
            vm.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert process.wait(30) == 5


def test_no_stream_is_left_open_with_its_vm() -> None:
    program = "from callgate import VM\nwith VM() as vm: process = vm.spawn('sleep 98')\n"
    command = [sys.executable, "-X", "dev", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_a_run_is_over_when_a_listener_has_ended_it(vm_factory: Factory) -> None:
    vm = vm_factory()
    heard: list[str] = []

    def refuse(text: str) -> None:
        heard.append(text)
        raise ZeroDivisionError

    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            vm.run("(trap '' TERM; setsid sleep 998) & echo x; while echo more; do :; done", on_stdout=refuse)
        assert vm.status().programs_running == 0
    assert len(heard) == 10


async def _aio(test: Callable[[Any], Any], **arguments: Any) -> None:
    async with callgate.aio.VM(**arguments) as vm:
        await test(vm)


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("how", ["close", "kill"])
def test_a_process_of_coroutines_is_killed_with_its_vm(how: str) -> None:
    import asyncio

    async def body(vm: Any) -> None:
        process, asked = await vm.spawn("echo early; exec sleep 98"), await vm.spawn(["sleep", "98"])
        assert await process.stdout.readline() == b"early\n"
        if how == "close":
            await vm.close()
            assert process.returncode == -signal.SIGKILL
        else:
            kill_supervisor(vm.sync)
        assert await process.wait(30) == process.returncode == -signal.SIGKILL
        assert await asked.communicate(timeout=30) == ("", "")
        assert asked.returncode == -signal.SIGKILL
        assert await process.stdout.read() == b""
        await process.close()
        await asked.close()

    asyncio.run(_aio(body))


@pytest.mark.usefixtures("leaves_nothing")
def test_a_closed_vm_of_coroutines_answers_nothing() -> None:
    import asyncio

    async def body(vm: Any) -> None:
        await vm.close()
        for use in (lambda: vm.call("note", 1), vm.open, vm.__aenter__, lambda: vm.run("true")):
            with pytest.raises(ValueError, match=r"^the VM is closed$"):
                await use()

    asyncio.run(_aio(body, bindings={"note": lambda number: number}))


@pytest.mark.usefixtures("leaves_nothing")
def test_a_listener_of_coroutines_is_told_no_more_once_it_raised() -> None:
    import asyncio

    heard: list[str] = []

    def refuse(text: str) -> None:
        heard.append(text)
        raise ZeroDivisionError

    async def body(vm: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            await vm.run("while echo more; do :; done", on_stdout=refuse)
        assert (await vm.status()).programs_running == 0

    asyncio.run(_aio(body))
    assert len(heard) == 1


def test_closing_from_a_listener_ends_the_run_with_the_vms_error(vm_factory: Factory) -> None:
    vm = vm_factory()
    with pytest.raises(ValueError, match="closed"):
        vm.run("echo x; exec sleep 98", on_stdout=lambda _: threading.Thread(target=vm.close).start())
