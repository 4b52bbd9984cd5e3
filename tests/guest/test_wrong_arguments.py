"""A wrong argument is an error of callgate's own that names it, before anything starts; none is taken for another."""

from __future__ import annotations

import asyncio
import io
import math
import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import callgate
from callgate import DEVNULL, PIPE, HostDir, McpTools, Timeout
from callgate.guest.arguments import seconds

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]


async def listen(_: str) -> None:
    """What nobody would await."""


class Listener:
    """The same as an object."""

    async def __call__(self, _: str) -> None: ...


RUNS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"input": 3}, TypeError, "input is int, not str or bytes"),
    ({"input": True}, TypeError, "input is bool, not str or bytes"),
    ({"input": [65, 66]}, TypeError, "input is list, not str or bytes"),
    ({"input": 0}, TypeError, "input is int, not str or bytes"),
    ({"timeout": "3"}, TypeError, "timeout is str, not a number of seconds"),
    ({"timeout": True}, TypeError, "timeout is bool, not a number of seconds"),
    ({"timeout": math.nan}, ValueError, "timeout is NaN"),
    ({"timeout": -1}, ValueError, "timeout is -1: a number of seconds is not negative"),
    ({"argv": 3}, TypeError, "argv is int, not a list of words, or one str for /bin/sh -c"),
    ({"argv": None}, TypeError, "argv is None, not a list of words"),
    ({"argv": b"true"}, TypeError, "argv is bytes, not a list of words"),
    ({"argv": {"true"}}, TypeError, "argv is set, not a list of words"),
    ({"argv": []}, ValueError, "argv must name a program"),
    ({"argv": ["cat", 5]}, TypeError, "argv[1] is int (5): every word of a program is str, bytes or a path"),
    ({"argv": [None]}, TypeError, "argv[0] is None"),
    ({"env": ["A=1"]}, TypeError, "env is list, not a mapping of names to values"),
    ({"env": []}, TypeError, "env is list, not a mapping"),
    ({"cwd": 3}, TypeError, "cwd is int, not a path of the VM"),
    ({"cwd": b"/tmp"}, TypeError, "cwd is bytes, not a path of the VM"),
    ({"cwd": ""}, ValueError, "cwd '' is empty"),
    ({"on_stdout": 3}, TypeError, "on_stdout is int, which cannot be called"),
    ({"on_stdout": listen}, TypeError, "on_stdout is an async function"),
    ({"on_stderr": Listener()}, TypeError, "on_stderr is an async function"),
]

SPAWNS: list[tuple[dict[str, Any], type[Exception], str]] = [
    *((wrong, error, words) for wrong, error, words in RUNS if not {"input", "timeout"} & wrong.keys()),
    ({"stdout": "x"}, TypeError, "stdout is str ('x'), which is no stream: PIPE"),
    ({"stdin": 1.5}, TypeError, "stdin is float (1.5), which is no stream"),
    ({"stderr": -9}, ValueError, "stderr: -9 is no stream"),
    ({"stdout": io.StringIO()}, ValueError, "has no descriptor; on_stdout= and on_stderr= need none"),
    ({"pty": True, "size": "24x80"}, TypeError, "size is '24x80': a terminal's size is a pair of numbers, (rows, columns)"),
    ({"pty": True, "size": (24,)}, TypeError, "size is (24,)"),
    ({"pty": True, "size": ("24", "80")}, ValueError, "a terminal's size is rows and columns from 1 to 65535"),
    ({"size": (24, 80)}, ValueError, "size= is that of a terminal: it goes with pty=True"),
    ({"pty": True, "stdin": PIPE}, ValueError, "with pty=True stdin, stdout and stderr are one terminal"),
    ({"pty": True, "stdout": PIPE}, ValueError, "with pty=True"),
    ({"pty": True, "stderr": PIPE}, ValueError, "with pty=True"),
    ({"pty": True, "on_stderr": print}, ValueError, "with pty=True"),
]


@pytest.mark.parametrize("method", ["run", "spawn"])
def test_programs_are_refused_before_they_start(vm_factory: Factory, method: str) -> None:
    vm = vm_factory()
    for wrong, error, words in RUNS if method == "run" else SPAWNS:
        with pytest.raises(error, match=re.escape(words)):
            getattr(vm, method)(**{"argv": "echo x > /tmp/started", **wrong})
    assert vm.status().programs_running == 0
    assert not vm.fs.exists("/tmp/started")


@pytest.mark.usefixtures("leaves_nothing")
def test_coroutines_are_told_the_same() -> None:
    async def body() -> None:
        async with callgate.aio.VM() as vm:
            for method, cases in ((vm.run, RUNS), (vm.spawn, SPAWNS)):
                for wrong, error, words in cases:
                    with pytest.raises(error, match=re.escape(words)):
                        await method(**{"argv": "echo x > /tmp/started", **wrong})
            assert not await vm.fs.exists("/tmp/started")
            async with await vm.spawn("cat") as process:
                wrong_ones: list[dict[str, Any]] = [{"timeout": "1"}, {"input": 3}]
                for given in wrong_ones:
                    with pytest.raises(TypeError, match=r"(timeout is str|input is int), not"):
                        await process.communicate(**given)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"files": ["/a"]}, TypeError, "files is list, not a mapping of paths to contents"),
        ({"env": ["A=1"]}, TypeError, "env is list, not a mapping of names to values"),
        ({"mounts": ["/tmp"]}, TypeError, "mounts is list, not a mapping of destinations to HostDir"),
        ({"mounts": {"/w": "/tmp"}}, TypeError, "mounts['/w'] is str, not a directory of the host, which is HostDir('/tmp')"),
        ({"mounts": {"/w": Path("/tmp")}}, TypeError, "HostDir('/tmp')"),
        ({"cwd": 3}, TypeError, "cwd is int, not a path of the VM"),
        ({"user": 3}, TypeError, "user is int, not the name of a user"),
    ],
)
def test_a_vm_is_refused_before_it_starts(vm_factory: Factory, wrong: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        vm_factory(**wrong)


def test_other_methods_name_what_is_wrong(vm_factory: Factory) -> None:
    vm = vm_factory(files={"/srv/f": "content"})
    uses: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: vm.fs.write_text("/srv/f", b""), TypeError, "content is bytes, not str; write_bytes takes bytes"),  # type: ignore[arg-type]
        (lambda: vm.fs.write_bytes("/srv/f", ""), TypeError, "content is str, not bytes; write_text takes str"),  # type: ignore[arg-type]
        (lambda: vm.fs.read_text("/tmp"), IsADirectoryError, "Is a directory: '/tmp'"),
        (lambda: vm.fs.read_bytes("/dev/null"), OSError, "not a regular file"),
        (lambda: vm.binding(3), TypeError, "a binding is a function; 3 is int, which cannot be called"),  # type: ignore[call-overload]
        (lambda: vm.call(3), TypeError, "the name of a binding must be str, not int"),  # type: ignore[arg-type]
        (lambda: McpTools(3), TypeError, "a list of words, the program first, not 3"),  # type: ignore[arg-type]
        (lambda: McpTools(["x", 3]), TypeError, "a list of words, the program first, not ['x', 3]"),  # type: ignore[list-item]
        (lambda: vm.fetch(8000, wait="5"), TypeError, "wait is str, not a number of seconds"),  # type: ignore[arg-type]
        (lambda: vm.fetch(8000, timeout="5"), TypeError, "timeout is str, not a number of seconds"),  # type: ignore[arg-type]
        (lambda: vm.fetch(8000, 3), TypeError, "path is int, not str"),  # type: ignore[arg-type]
        (lambda: vm.connect(8000, wait=-1), ValueError, "wait is -1"),
        (lambda: vm.connect(8000, timeout=math.nan), ValueError, "timeout is NaN"),
        (lambda: vm.connect(8000, timeout=math.inf), ConnectionRefusedError, "nobody listens on port 8000"),
        (lambda: vm.connect(8000, timeout=1e8), ConnectionRefusedError, "nobody listens on port 8000"),
    ]
    for use, error, words in uses:
        with pytest.raises(error, match=re.escape(words)):
            use()
    assert vm.fs.read_text("/srv/f") == "content"


def test_a_missing_cwd_is_told_as_such(vm_factory: Factory) -> None:
    vm = vm_factory(cwd="/srv", files={"/srv/f": ""})
    for start in (vm.run, vm.spawn):
        with pytest.raises(FileNotFoundError, match="the program's cwd cannot be entered in the VM: No such file") as absent:
            start("true", cwd="absent")
        assert absent.value.filename == "/srv/absent"
        with pytest.raises(NotADirectoryError, match="cwd"):
            start("true", cwd="f")


def test_words_of_a_program_may_be_paths(vm_factory: Factory) -> None:
    vm = vm_factory(files={"/srv/f": "content"})
    assert vm.run(["cat", Path("/srv/f")]).stdout == "content"
    assert vm.run(Path("/bin/pwd"), cwd=Path("/srv")).stdout == "/srv\n"
    assert vm.run((Path("/bin/echo"), b"x")).stdout == "x\n"


@pytest.mark.parametrize("limit", [math.inf, 1e300, 10**400, 1e8, Decimal(60), 60])
def test_time_limits_that_are_long_or_none(vm_factory: Factory, limit: Any) -> None:
    vm = vm_factory()
    assert vm.run("echo x", timeout=limit).stdout == "x\n"
    process = vm.spawn("echo x")
    assert process.communicate(timeout=limit) == ("x\n", "")
    assert process.wait(limit) == 0


def test_no_time_at_all_is_over_at_once_and_a_past_deadline_too(vm_factory: Factory) -> None:
    vm = vm_factory()
    with pytest.raises(Timeout):
        vm.run(["sleep", "98"], timeout=0)
    with vm.spawn("cat") as process:
        for limit in (0, -5):  # what is left until a deadline, as Popen has it
            with pytest.raises(Timeout):
                process.wait(limit)
        with pytest.raises(TypeError, match="timeout is str"):
            process.wait("1")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="input is int"):
            process.communicate(3)  # type: ignore[arg-type]


def test_a_number_of_seconds_stays_what_it_was() -> None:
    assert [seconds(given, "x") for given in (None, 0, 1.5, 7, math.inf)] == [None, 0, 1.5, 7, None]
    assert seconds(-2, "x", past=True) == -2


def test_plain_methods_of_async_things_may_listen(vm_factory: Factory) -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()
    vm_factory().run("echo x", on_stdout=queue.put_nowait)
    assert queue.get_nowait() == "x\n"


def test_right_ones_are_still_taken(vm_factory: Factory, tmp_path: Path) -> None:
    vm = vm_factory(files=None, mounts={"/w": HostDir(tmp_path)}, env=None, cwd=Path("/w"))
    for given in (b"x", bytearray(b"x"), memoryview(b"x"), "x"):
        assert vm.run("cat", input=given, env={}).stdout == "x"  # type: ignore[arg-type]
    reader, writer = os.pipe()
    vm.spawn("echo x", stdin=DEVNULL, stdout=writer, stderr=DEVNULL).wait()
    os.close(writer)
    assert os.read(reader, 9) == b"x\n"
    os.close(reader)
