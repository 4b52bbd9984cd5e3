"""A program that runs beside its caller: `Process`, which is to a VM what `subprocess.Popen` is to the host."""

from __future__ import annotations

import os
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Generic, Self, TypeAlias, TypeVar

from callgate.guest.arguments import seconds, stdin_bytes
from callgate.guest.interface import Program
from callgate.guest.process import NativeGuest, NativeProcess, Outcome
from callgate.guest.result import Command, Timeout, Usage
from callgate.guest.stdio import Stdio
from callgate.guest.streams import LONG_WAIT, Capture, Pump
from callgate.kernel.audit import Denial
from callgate.kernel.supervisor_process import readable
from callgate.scopes.errors import InternalError

_Output = TypeVar("_Output", str, bytes)

# Whether a stream is a file or None follows from what `spawn` was given. A type checker does not see that, and would have every
# use of a pipe asserted; it still checks uses against the file's type.
MaybeNone: TypeAlias = Any

_LARGEST_WINDOW = 0xFFFF
_VM_GONE = (InternalError, ValueError)  # its supervisor has died, or it was closed: every program has ended with it


class Process(Generic[_Output]):
    """A program in the VM, with everything it starts; made by `VM.spawn`.

    `stdin`, `stdout` and `stderr` are files on the host's ends of its pipes, or None. When the program itself has ended, all
    that it started is killed. Its refusals are in `denials` as far as `poll`, `wait` and `communicate` have heard of them.
    As a context manager it is waited for at the end of the block, and killed if the block is left by an exception. When its VM
    is closed, or ends by itself, a program that still ran is killed: its return code is -9, and its streams are at their end.
    """

    def __init__(
        self, guest: NativeGuest, program: Program, shown: Command, stdio: Stdio, decode: Callable[[bytes], _Output], *, tty: bool
    ) -> None:
        """Start the program. `FileNotFoundError` or `PermissionError` if there is none, as `subprocess.Popen` has it."""
        self.args = shown
        self._guest = guest
        self._decode: Callable[[bytes], _Output] = decode
        self._stdio = stdio
        self._lock = threading.Lock()
        self._waiting = 0
        self._over = False
        self._talk: _Talk | None = None
        try:
            self._process = guest.start(program, stdio.guest, tty=tty)
            stdio.passed()
            self._outcome = guest.outcome(self._process)
            self._await_start(program)
        except BaseException:
            stdio.close()
            if hasattr(self, "_process"):
                self._abandon(self._process)
            raise
        files = stdio.files(text=decode is not bytes)
        self.stdin: IO[_Output] | MaybeNone = files[0]
        self.stdout: IO[_Output] | MaybeNone = files[1]
        self.stderr: IO[_Output] | MaybeNone = files[2]

    def _await_start(self, program: Program) -> None:
        outcome: Outcome = self._outcome
        while not outcome.pid:
            if not outcome.take():
                continue
            if outcome.failure is None:
                raise self._process.gone()
            name = os.fsdecode(program.argv[0])
            raise OSError(outcome.failure.errno, os.strerror(outcome.failure.errno), name)

    @staticmethod
    def _abandon(process: NativeProcess) -> None:
        with suppress(*_VM_GONE):
            process.kill_tree()
        process.close()

    # -- what is known of it -----------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Its process id in the VM."""
        return self._outcome.pid

    @property
    def returncode(self) -> int | None:
        """None while it is not known to have ended; negative for a signal."""
        return self._outcome.returncode

    @property
    def denials(self) -> tuple[Denial, ...]:
        """What the program, or what it started, was refused so far."""
        return tuple(self._outcome.denials)

    @property
    def usage(self) -> Usage:
        """What it used; zeros until it has ended."""
        return self._outcome.usage

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Names of the VM's limits for which it was ended."""
        return self._outcome.exceeded

    @property
    def failure(self) -> str:
        """Why the program could not be executed after all (return code 126 or 127), as one line; empty if it could."""
        return self._outcome.failure_line.decode("utf-8", "replace").strip()

    @property
    def over(self) -> bool:
        """Whether it is known that nothing more will be told: it has ended, or its VM has."""
        return self._over

    @property
    def relayed(self) -> bool:
        """Whether threads carry some of its streams, which `wait` waits for as well."""
        return self._stdio.relays is not None

    @property
    def output_limit(self) -> int:
        """How much of each output `communicate` keeps, in bytes."""
        return self._guest.output_limit

    def fileno(self) -> int:
        """Readable when `poll` has something to hear; for selectors, between `hold` and `release`."""
        return self._process.fileno()

    def hold(self) -> None:
        """Keep `fileno` open when it is over, until `release`."""
        with self._lock:
            self._waiting += 1

    def release(self) -> None:
        """The end of a `hold`."""
        with self._lock:
            self._waiting -= 1
            self._close_if_over()

    # -- waiting -------------------------------------------------------------------------------------------------------------

    def poll(self) -> int | None:
        """The return code, or None if the program still runs."""
        with self._lock:
            while not self._over and self._process.ready():
                self._take()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program, and everything it started, has ended; its return code.

        `Timeout` after *timeout* seconds, and the program runs on.
        """
        timeout = seconds(timeout, "timeout", past=True)
        deadline = None if timeout is None else time.monotonic() + timeout
        self.hold()
        try:
            while not self._over:
                left = LONG_WAIT if deadline is None else min(max(0.0, deadline - time.monotonic()), LONG_WAIT)
                if readable(self._process.fileno(), left):
                    self.poll()
                elif deadline is not None and time.monotonic() >= deadline:
                    raise Timeout(self.args, timeout or 0.0)
        finally:
            self.release()
        if self._stdio.relays is not None:
            self._stdio.relays.finish()
        assert self.returncode is not None  # known with the end
        return self.returncode

    def communicate(self, input: _Output | None = None, timeout: float | None = None) -> tuple[_Output, _Output]:  # noqa: A002
        """Feed *input*, read both outputs to their end and wait; what is not a pipe gives an empty output.

        As much of each output is kept as the VM's limit says. After `Timeout` it may be called again, and loses nothing.
        """
        timeout, data = seconds(timeout, "timeout", past=True), stdin_bytes(input)
        self.hold()
        try:
            if self._talk is None:
                self._talk = _Talk(self._guest.output_limit, self._process.fileno() if not self._over else None, self._taken)
                self._talk.begin(self, data)
            if not self._over and not self._talk.pump.run(None if timeout is None else time.monotonic() + timeout):
                out, err = map(self._decode, self._talk.contents())
                raise Timeout(self.args, timeout or 0.0, out, err)
            self._talk.pump.drain()
            self._talk.pump.close()
        finally:
            self.release()
        self.wait()
        out, err = map(self._decode, self._talk.contents())
        return out, err

    @property
    def truncated(self) -> bool:
        """Whether `communicate` kept less than the program wrote."""
        return self._talk is not None and self._talk.truncated

    def _taken(self) -> bool:
        self.poll()
        return self._over

    def _take(self) -> None:
        if self._outcome.take():
            self._outcome.end_with_vm()
            self._over = True
            self._close_if_over()

    def _close_if_over(self) -> None:
        if self._over and not self._waiting:
            self._process.close()
            self._stdio.close_master()

    # -- acting on it --------------------------------------------------------------------------------------------------------

    def send_signal(self, signum: int, *, group: bool = False) -> None:
        """Send a signal to the program, or with *group* to its whole process group. Nothing happens if it has ended."""
        self.poll()
        if not self._over:
            with suppress(ProcessLookupError, *_VM_GONE):
                self._process.send_signal(signum, group=group)

    def terminate(self) -> None:
        """Send SIGTERM to the program."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the program and everything it started, wherever that detached itself to."""
        self.poll()
        if not self._over:
            with suppress(*_VM_GONE):
                self._process.kill_tree()

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size; the programs in the foreground get SIGWINCH. `ValueError` without a terminal."""
        master = self._stdio.master
        if master is None:
            raise ValueError("the program has ended" if self._over else "the program was not started with pty=True")
        termios.tcsetwinsize(master, window_size((rows, columns)))

    def hang_up(self) -> None:
        """Close its terminal, if it has one, which sends SIGHUP to the programs in the foreground."""
        if self._stdio.master is not None:
            self.send_signal(signal.SIGHUP, group=True)  # listeners may hold copies of the master
            self._stdio.close_master()

    def close(self) -> None:
        """Close the files, kill the program if it still runs, and wait until it is gone."""
        self.kill()
        self._close_files()
        self.wait()
        self._stdio.close()

    def _close_files(self) -> None:
        for file in (self.stdout, self.stderr, self.stdin):
            if file is not None:
                with suppress(BrokenPipeError, OSError):  # what was not written yet has no reader any more
                    file.close()
        if self._talk is not None:
            self._talk.pump.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.close()
            return
        self._close_files()
        self.hang_up()
        self.wait()

    def __del__(self) -> None:
        if hasattr(self, "stderr"):
            self._process.close()  # it goes on, unheard, until it ends or its VM does
            self._stdio.close_master()
            if self._guest.closed:
                self._close_files()  # not before: who closes a VM with programs in it may still read what they wrote

    def __repr__(self) -> str:
        state = "running" if self.returncode is None else f"returncode {self.returncode}"
        return f"<Process {self.pid} {state} {self.args!r}>"


class _Talk:
    """`communicate`, under way."""

    def __init__(self, limit: int, events: int | None, taken: Callable[[], bool]) -> None:
        self.pump = Pump()
        self._captures = (Capture(limit), Capture(limit))
        if events is not None:
            self.pump.watch(events, taken)

    def begin(self, process: Process[Any], data: bytes) -> None:
        """Take the files over from *process*."""
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.flush()
            self.pump.feed(os.dup(process.stdin.fileno()), data)
            with suppress(BrokenPipeError):
                process.stdin.close()
        elif data:
            raise ValueError("input was given, and stdin is not PIPE")
        for file, capture in zip((process.stdout, process.stderr), self._captures, strict=True):
            if file is not None and not file.closed:
                self.pump.collect(os.dup(file.fileno()), capture)
                file.close()

    def contents(self) -> tuple[bytes, bytes]:
        """What was kept so far."""
        return self._captures[0].content(), self._captures[1].content()

    @property
    def truncated(self) -> bool:
        """Whether that is not all."""
        return any(capture.truncated for capture in self._captures)


def window_size(size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of a terminal; `TypeError` for what is no pair, `ValueError` for what is no size."""
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise TypeError(f"size is {size!r}: a terminal's size is a pair of numbers, (rows, columns)")
    rows, columns = size
    for number in (rows, columns):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= _LARGEST_WINDOW:
            raise ValueError(f"a terminal's size is rows and columns from 1 to {_LARGEST_WINDOW}, not {size!r}")
    return rows, columns


PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
