"""A VM used from coroutines: the names of `callgate.VM`, to be awaited, and a cancelled task takes its programs with it.

Programs are waited for by the event loop itself, without threads. What may take a moment (starting or closing a VM, `fs`, `call`)
happens in the loop's default executor.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from callgate.aio.process import Process
from callgate.guest.captured import KILL_GRACE, CapturedRun
from callgate.guest.streams import text_output
from callgate.programs import Directory, checked_result
from callgate.scopes.policy import Policy
from callgate.vm import VM as SyncVM

if TYPE_CHECKING:
    import socket

    from callgate.guest.environment import GuestEnvironment
    from callgate.guest.ports import Response
    from callgate.guest.result import Command, Result
    from callgate.kernel.audit import Denial
    from callgate.scopes.request import Verdict
    from callgate.status import Status


class VM:
    """A VM used from coroutines; takes what `callgate.VM` takes, and starts when its block is entered or `open` is awaited."""

    def __init__(self, permissions: Mapping[str, object] | Policy | None = None, **arguments: Any) -> None:
        """Check the policy; nothing is started yet. `PolicyError` for a wrong one."""
        given = bool(arguments.get("bindings"))
        self._policy = permissions if isinstance(permissions, Policy) else Policy.parse(permissions, has_bindings=given)
        self._arguments = arguments
        self._vm: SyncVM | None = None

    @classmethod
    def of(cls, vm: SyncVM) -> Self:
        """The twin of a VM that was started already; closing either closes both."""
        twin = cls(vm.policy)
        twin._vm = vm
        return twin

    async def open(self) -> Self:
        """Start the VM, with the errors of `callgate.VM`. Calling it again does nothing."""
        if self._vm is None:
            starting = asyncio.get_running_loop().run_in_executor(None, self._start)
            try:
                self._vm = await asyncio.shield(starting)
            except asyncio.CancelledError:
                starting.add_done_callback(_close_started)
                raise
        return self

    def _start(self) -> SyncVM:
        return SyncVM(self._policy, **self._arguments)

    async def close(self) -> None:
        """End every program and the VM itself, and wait until nothing of it is left. Calling it again does nothing."""
        if self._vm is not None:
            # A cancelled close goes on all the same.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._vm.close))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    @property
    def sync(self) -> SyncVM:
        """The VM itself, for what has no twin: programs on descriptors of the caller's. `ValueError` before it was started."""
        if self._vm is None:
            raise ValueError("the VM was not started: use `async with`, or await `open()`")
        return self._vm

    # -- programs ----------------------------------------------------------------------------------------------------------

    @overload
    async def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: Literal[True] = True,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
    ) -> Result[str]: ...

    @overload
    async def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: Literal[False],
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> Result[bytes]: ...

    async def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,  # noqa: A002 - the name subprocess.run has
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: bool = True,
        on_stdout: Callable[[Any], object] | None = None,
        on_stderr: Callable[[Any], object] | None = None,
    ) -> Result[str] | Result[bytes]:
        """As `callgate.VM.run`. A cancelled call kills everything it started, and is over when that is gone."""
        vm = self.sync
        program, stdin, listeners = vm._prepared(argv, env, cwd, input, text, on_stdout, on_stderr)
        decode: Callable[[bytes], Any] = text_output if text else bytes
        run = CapturedRun(
            vm._guest, program, argv, stdin=stdin, decode=decode, listeners=listeners, selector=selectors.EpollSelector()
        )
        try:
            return checked_result(await _to_the_end(run, timeout), check)
        finally:
            run.close()

    async def spawn(self, argv: Command, *, text: bool = True, **arguments: Any) -> Process:
        """As `callgate.VM.spawn`; what `Process` there gives as files, this one gives as asyncio streams of bytes."""
        return await Process.of(self.sync.spawn(argv, text=False, **arguments), text=text)

    # -- the rest, by its name ---------------------------------------------------------------------------------------------

    @property
    def fs(self) -> Threaded:
        """The VM's filesystem: the methods of `callgate.VM.fs`, to be awaited; `fs.unchecked` is the same without the policy."""
        return Threaded(self.sync.fs)

    @property
    def env(self) -> GuestEnvironment:
        """The environment of programs started from now on."""
        return self.sync.env

    async def call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        """Call a binding as the guest would, in a thread."""
        return await asyncio.to_thread(self.sync.call, name, *args, **kwargs)

    async def connect(self, port: int, *, timeout: float | None = None, wait: float = 0.0, udp: bool = False) -> socket.socket:
        """As `callgate.VM.connect`, in a thread: a blocking socket, which `asyncio.open_connection(sock=...)` takes."""
        return await asyncio.to_thread(self.sync.connect, port, timeout=timeout, wait=wait, udp=udp)

    async def fetch(
        self,
        port: int,
        path: str = "/",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
        *,
        timeout: float = 30.0,
        wait: float = 0.0,
    ) -> Response:
        """As `callgate.VM.fetch`, in a thread; a cancelled task leaves it to end by itself."""
        return await asyncio.to_thread(self.sync.fetch, port, path, method, headers, body, timeout=timeout, wait=wait)

    def binding(self, *arguments: Any, **named: Any) -> Any:
        """Register a function as a binding, as `callgate.VM.binding` does."""
        return self.sync.binding(*arguments, **named)

    @property
    def bindings(self) -> list[dict[str, Any]]:
        """Every binding in the form of MCP tools."""
        return self.sync.bindings

    @property
    def policy(self) -> Policy:
        """The effective policy."""
        return self._policy if self._vm is None else self._vm.policy

    def explain(self, scope: str, operation: str, subject: str) -> Verdict:
        """The verdict on an operation, without doing anything."""
        return self.sync.explain(scope, operation, subject)

    @property
    def runtime_image(self) -> tuple[str, ...]:
        """Globs over the paths that programs may read in order to start."""
        return self.sync.runtime_image

    @property
    def denials(self) -> tuple[Denial, ...]:
        """The latest refusals, oldest first."""
        return self.sync.denials

    async def status(self) -> Status:
        """What enforces the policy, the limits in force, and the VM's counters."""
        return await asyncio.to_thread(self.sync.status)

    @property
    def closed(self) -> bool:
        """Whether the VM was closed."""
        return self._vm is not None and self._vm.closed


class Threaded:
    """The methods of another object as coroutine functions, each call made in a thread."""

    def __init__(self, of: Any) -> None:
        self._of = of

    @property
    def unchecked(self) -> Threaded:
        """The same for the other's `unchecked`."""
        return Threaded(self._of.unchecked)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._of, name)

        async def call(*given: Any, **given_by_name: Any) -> Any:
            return await asyncio.to_thread(lambda: _all(method(*given, **given_by_name)))

        return call


def _all(result: Any) -> Any:
    """A result made piece by piece, whole."""
    return list(result) if isinstance(result, Generator) else result


async def _to_the_end(run: CapturedRun[Any], timeout: float | None) -> Result[Any]:
    """The result of *run*; if this is cancelled, or a listener raises, what it started is killed and gone first."""
    over, limit = False, asyncio.timeout(timeout)
    try:
        async with limit:
            await _until_over(run)
        over = True
    except TimeoutError:
        if not limit.expired():
            raise  # a listener's own
    finally:
        if not over:
            run.kill()
            async with asyncio.timeout(KILL_GRACE):
                await _until_over(run)
    return run.result(None if over else timeout)


async def _until_over(run: CapturedRun[Any]) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(run.fileno(), ready.set)
    try:
        while not run.step():
            ready.clear()
            await ready.wait()
    finally:
        loop.remove_reader(run.fileno())


def _close_started(starting: asyncio.Future[SyncVM]) -> None:
    """A VM whose starter did not wait for it."""
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()
