"""`callgate.aio`: the same promises for coroutines, and cancellation ends the process tree."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import callgate
from callgate import PermissionDenied, PolicyError, PolicyWarning, Timeout
from tests.contracts.host_processes import descendants, until
from tests.vm_fixtures import deny

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("leaves_nothing")]


def in_vm(test: Callable[[Any], Awaitable[None]], **arguments: Any) -> None:
    """Run a coroutine function with a VM of its own."""

    async def body() -> None:
        async with callgate.aio.VM(**arguments) as vm:
            await asyncio.wait_for(test(vm), 120)

    asyncio.run(body())


def test_importing_callgate_does_not_load_it() -> None:
    program = "import sys, callgate; print('asyncio' in sys.modules); callgate.aio.VM; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue\n"


def test_runs_go_side_by_side_without_threads() -> None:
    async def body(vm: Any) -> None:
        results = await asyncio.gather(*(vm.run(["sh", "-c", f"read x; echo {n}$x"], input=f"{n}\n") for n in range(200)))
        assert [result.stdout for result in results] == [f"{n}{n}\n" for n in range(200)]

    in_vm(body)


def test_a_run_has_the_result_of_the_synchronous_one() -> None:
    async def body(vm: Any) -> None:
        result = await vm.run("echo out; cat /w/x; exit 3")
        assert (result.returncode, result.stdout, result.denials[0].subject) == (3, "out\n", "/w/x")
        assert (await vm.run(["cat"], input=b"\xff", text=False)).stdout == b"\xff"
        assert (await vm.run(["no-such-program"])).returncode == 127
        with pytest.raises(subprocess.CalledProcessError):
            await vm.run("exit 1", check=True)
        with pytest.raises(FileNotFoundError):
            await vm.run("true", cwd="/no/such/place")
        heard: list[str] = []
        await vm.run("echo a; sleep 0.1; echo b", on_stdout=heard.append)
        assert "".join(heard) == "a\nb\n"

    in_vm(body, permissions=deny("/w/**"))


def test_a_timeout_kills_and_keeps_the_output() -> None:
    async def body(vm: Any) -> None:
        with pytest.raises(Timeout) as caught:
            await vm.run("echo early; setsid sleep 999 & sleep 999", timeout=0.4)
        assert (caught.value.output, caught.value.timeout) == ("early\n", 0.4)
        assert len(descendants(vm.sync.status().supervisor_pid)) == 1

    in_vm(body)


DETACHED = "(trap '' TERM HUP INT; setsid sleep 998) & (sleep 997 &) & sleep 999"


@pytest.mark.parametrize("how", ["cancel", "wait_for", "timeout", "TaskGroup", "listener"])
def test_a_cancelled_run_is_gone_before_the_cancellation_arrives(how: str) -> None:
    async def body(vm: Any) -> None:
        supervisor = (await vm.status()).supervisor_pid

        def refuse(_: str) -> None:
            raise ZeroDivisionError

        if how == "cancel":
            task = asyncio.create_task(vm.run(DETACHED))
            await asyncio.to_thread(until, lambda: len(descendants(supervisor)) >= 5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "wait_for":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(vm.run(DETACHED), 0.5)
        elif how == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await vm.run(DETACHED)
        elif how == "TaskGroup":

            async def fail() -> None:
                await asyncio.sleep(0.5)
                raise ZeroDivisionError

            async def in_group() -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(vm.run(DETACHED))
                    group.create_task(fail())

            with pytest.raises(ExceptionGroup):
                await in_group()
        else:
            with pytest.raises(ZeroDivisionError):
                await vm.run(f"echo x; {DETACHED}", on_stdout=refuse)
        assert len(descendants(supervisor)) == 1
        assert (await vm.run(["echo", "still here"])).stdout == "still here\n"

    in_vm(body)


def test_spawned_programs_talk_by_asyncio_streams() -> None:
    async def body(vm: Any) -> None:
        async with await vm.spawn(["cat"]) as process:
            process.stdin.write(b"one\n")
            await process.stdin.drain()
            assert await process.stdout.readline() == b"one\n"
        assert process.returncode == 0
        talking = await vm.spawn("cat; echo e >&2; exit 4")
        assert await talking.communicate("word", timeout=60) == ("word", "e\n")
        assert (talking.returncode, talking.truncated) == (4, False)
        await talking.close()
        with pytest.raises(FileNotFoundError):
            await vm.spawn(["no-such-program"])

    in_vm(body)


def test_a_block_left_by_an_exception_or_a_cancellation_kills() -> None:
    async def body(vm: Any) -> None:
        process = await vm.spawn(DETACHED)
        with pytest.raises(ZeroDivisionError):
            async with process:
                raise ZeroDivisionError
        assert process.returncode == -signal.SIGKILL

        async def hold() -> None:
            async with await vm.spawn(DETACHED) as held:
                await held.wait()

        task = asyncio.create_task(hold())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(descendants((await vm.status()).supervisor_pid)) == 1

    in_vm(body)


def test_what_waits_survives_that_somebody_else_hears_of_the_end_first() -> None:
    async def body(vm: Any) -> None:
        process = await vm.spawn("cat /w/x; true")
        while process.returncode is None:
            assert len(vm.denials) <= 1  # looking at the refusals hears the process's news
        assert await process.wait(30) == 0
        assert [denial.subject for denial in vm.denials] == ["/w/x"]
        await process.close()

    in_vm(body, permissions=deny("/w/**"))


def test_terminals_end_instead_of_failing() -> None:
    async def body(vm: Any) -> None:
        async with await vm.spawn("stty size; tty", pty=True, size=(10, 20)) as process:
            assert await process.stdout.read() == b"10 20\r\n/dev/pts/0\r\n"
        async with await vm.spawn(["sh", "-i"], pty=True) as shell:
            await shell.stdout.read(1)
        assert shell.returncode is not None

    in_vm(body)


def test_files_bindings_and_explanations_have_the_same_names(tmp_path: Path) -> None:
    async def body(vm: Any) -> None:
        await vm.fs.write_text("a", "text")
        assert await vm.fs.read_text("a") == "text"
        assert [names for _, _, names in await vm.fs.walk("/home/agentos")] == [["a"]]
        with pytest.raises(PermissionDenied):
            await vm.fs.write_text("/w/x", "y")
        await vm.fs.unchecked.mkdir("/w")
        assert await vm.call("add", 2, 3) == 5
        assert not vm.explain("fs", "read", "/w/x").allowed
        assert "A" not in vm.env
        await vm.fs.download("a", tmp_path / "copy")
        assert (tmp_path / "copy").read_text() == "text"

    in_vm(body, permissions=deny("/w/**"), bindings={"add": lambda a, b: a + b})


def test_every_name_of_the_synchronous_vm_has_a_twin() -> None:
    on_descriptors = {"start", "open_pty"}
    theirs = {name for name in dir(callgate.VM) if not name.startswith("_")}
    assert theirs - on_descriptors <= set(dir(callgate.aio.VM))
    for_the_loop = {"poll", "fileno", "hold", "release", "over", "relayed", "output_limit", "hang_up"}
    of_a_process = {name for name in dir(callgate.Process) if not name.startswith("_")} - for_the_loop
    assert of_a_process <= {*dir(callgate.aio.Process), "args", "pid", "truncated"}


def test_servers_in_the_vm_are_reached_and_bindings_may_come_later() -> None:
    async def body(vm: Any) -> None:
        def double(number: int) -> int:
            return 2 * number

        vm.binding(double)
        assert [tool["name"] for tool in vm.bindings] == ["double"]
        assert await vm.call("double", 21) == 42
        server = await vm.spawn(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"])
        await vm.fs.write_text("page", "text")
        assert (await vm.fetch(8000, "/page", wait=20)).body == b"text"
        reader, writer = await asyncio.open_connection(sock=await vm.connect(8000))
        writer.write(b"GET /page HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"text")
        writer.close()
        await server.close()

    in_vm(body, permissions={"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": ["127.0.0.1"]}]}})


def test_mistakes_are_told_by_the_constructor_at_the_users_line() -> None:
    with pytest.raises(PolicyError):
        callgate.aio.VM(permissions={"child_process": "deny"})
    with pytest.raises(ValueError, match="was not started"):
        _ = callgate.aio.VM().env
    policy = {"fs": {"default": "allow", "rules": [{"mode": "allow", "paths": ["/a"]}]}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        in_vm(_nothing, permissions=policy)
    assert [(warning.category, warning.filename) for warning in caught] == [(PolicyWarning, __file__)]


async def _nothing(_: Any) -> None:
    return None


def test_a_start_that_is_cancelled_leaves_no_vm() -> None:
    async def body() -> None:
        for delay in (0, 0.001, 0.003, 0.01):
            task = asyncio.create_task(callgate.aio.VM().open())
            await asyncio.sleep(delay)
            task.cancel()
            try:
                await (await task).close()
            except asyncio.CancelledError:
                continue

    asyncio.run(body())  # what is left is looked for after this test
