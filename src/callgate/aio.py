"""The asynchronous twin of `callgate.VM`: the same names, to be awaited, and a cancelled task takes its programs with it.

    async with callgate.aio.VM(permissions=...) as vm:
        result = await vm.run(["make"], timeout=60)

Programs are waited for by the event loop itself, without threads. What may take the VM's supervisor a moment (starting and closing a
VM, `fs`, `call`) runs in the loop's default executor.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from callgate.guest.captured import KILL_GRACE, CapturedRun
from callgate.guest.popen import DEVNULL, PIPE, STDOUT
from callgate.guest.popen import Process as _Process
from callgate.guest.result import Timeout
from callgate.guest.streams import text_output
from callgate.programs import Directory, checked_result
from callgate.scopes.errors import InternalError
from callgate.scopes.policy import Policy
from callgate.vm import VM as _VM

if TYPE_CHECKING:
    from callgate.guest.environment import GuestEnvironment
    from callgate.guest.result import Command, Result, Usage
    from callgate.kernel.audit import Denial
    from callgate.scopes.request import Verdict
    from callgate.status import Status

__all__ = ["DEVNULL", "PIPE", "STDOUT", "VM", "Process"]

_Output = TypeVar("_Output", str, bytes)
_T = TypeVar("_T")


class VM:
    """A VM used from coroutines; takes what `callgate.VM` takes, and starts when its block is entered or `start` is awaited."""

    def __init__(self, permissions: Mapping[str, object] | Policy | None = None, **arguments: Any) -> None:
        """Check the policy; nothing is started yet. `PolicyError` for a wrong one."""
        given = bool(arguments.get("bindings"))
        self._policy = permissions if isinstance(permissions, Policy) else Policy.parse(permissions, has_bindings=given)
        self._arguments = arguments
        self._vm: _VM | None = None

    async def start(self) -> Self:
        """Start the VM, with the errors of `callgate.VM`. Calling it again does nothing."""
        if self._vm is None:
            starting = asyncio.get_running_loop().run_in_executor(None, self._start)
            try:
                self._vm = await asyncio.shield(starting)
            except asyncio.CancelledError:
                starting.add_done_callback(_close_started)
                raise
        return self

    def _start(self) -> _VM:
        return _VM(self._policy, **self._arguments)

    async def close(self) -> None:
        """End every program and the VM itself, and wait until nothing of it is left. Calling it again does nothing."""
        if self._vm is not None:
            await asyncio.shield(asyncio.to_thread(self._vm.close))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def sync(self) -> _VM:
        """The VM itself. `ValueError` before it was started."""
        if self._vm is None:
            raise ValueError("the VM was not started: use `async with`, or await `start()`")
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
        timeout: float | None = None,  # noqa: ASYNC109 - it kills, which asyncio.timeout around this call does as well
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

    async def spawn(self, argv: Command, *, text: bool = True, pty: bool = False, **arguments: Any) -> Process:
        """As `callgate.VM.spawn`; what `Process` there gives as files, this one gives as asyncio streams of bytes."""
        process = self.sync.spawn(argv, text=False, pty=pty, **arguments)  # type: ignore[call-overload]
        return await Process._of(process, text=text)

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

    @property
    def policy(self) -> Policy:
        """The effective policy."""
        return self._policy

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


class Process(Generic[_Output]):
    """A program in the VM, as `callgate.Process`; `stdin` is a `StreamWriter`, `stdout` and `stderr` are `StreamReader`s of bytes.

    As an asynchronous context manager it is waited for at the end of the block, and killed if the block is left by an exception,
    a cancellation too.
    """
