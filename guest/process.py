"""Native guests: unmodified programs in the VM's process tree, run to their end with captured output."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, TypeVar

from callgate.guest.interface import Program, Recorder
from callgate.guest.result import Command, Result, Timeout, Usage
from callgate.guest.streams import Capture, Pump, guest_pipe
from callgate.kernel.audit import Denial
from callgate.kernel.launch import Run, Supervisor
from callgate.kernel.protocol import DenialEvent, ExecFailed, Exited, Started
from callgate.scopes.errors import InternalError, escaped

if TYPE_CHECKING:
    from callgate.guest.host_service import HostServiceHandle
    from callgate.guest.run_denials import RunDenials

_Output = TypeVar("_Output")

#: Output kept of each stream, in bytes; a guest that writes more is not stopped, the rest is thrown away.
CAPTURE_LIMIT = 64 << 20

#: How long a killed run may take to be gone before its `Timeout` is raised all the same, in seconds.
_KILL_GRACE = 60.0

#: Denials listed in one result; the supervisor sends no more than this of its own accord.
_DENIALS_KEPT = 10_000

NOT_FOUND, NOT_EXECUTABLE = 127, 126


def prepare(argv: Command, env: dict[str, str], cwd: str) -> Program:
    """*argv* as execve(2) wants it; a string is a command line for /bin/sh. `ValueError` or `TypeError` for what cannot be."""
    words: Sequence[str | bytes] = ["/bin/sh", "-c", argv] if isinstance(argv, str) else argv
    if not all(isinstance(word, str | bytes) for word in words):
        raise TypeError("argv must be a list of words, or one str for /bin/sh -c")
    encoded = tuple(os.fsencode(word) for word in words)
    if not encoded or not encoded[0]:
        raise ValueError("argv must name a program")
    if any(b"\0" in word for word in encoded):
        raise ValueError("argv holds a NUL character")
    environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    return Program(encoded, environment, os.fsencode(cwd))


def exit_code(ended: Exited) -> int:
    """The return code as `subprocess` has it: negative for a signal."""
    if not (os.WIFEXITED(ended.status) or os.WIFSIGNALED(ended.status)):
        raise InternalError(f"the supervisor reported the wait status {ended.status:#x}, which is not the end of a program")
    return os.waitstatus_to_exitcode(ended.status)


class NativeProcess:
    """A program started in the VM, with everything it starts; its events must be read until None."""

    def __init__(self, supervisor: Supervisor, run: Run, program: Program, record: Recorder, by_host: RunDenials | None) -> None:
        self._supervisor = supervisor
        self._run = run
        self._program = program
        self._record = record
        self._by_host = by_host
        self._first = 0
        self.host_denials: list[Denial] = []  # what the host's services refused it; on record already

    def fileno(self) -> int:
        """Readable when `next_event` would not block; for selectors."""
        return self._run.fileno()

    def next_event(self) -> Started | ExecFailed | Denial | Exited | None:
        """Wait for the next event. `Exited` and `ExecFailed` are the last; None means that the supervisor is gone.

        Denials have been recorded when they are returned. Raises `OSError` naming the working directory if the program
        could not be started in it.
        """
        event = self._run.next_event()
        if isinstance(event, DenialEvent):
            denial = Denial.from_record(event.denial)
            self._record(denial)
            return denial
        if self._by_host is None:
            pass
        elif isinstance(event, Started):
            self._first = event.pid
            self.host_denials = self._by_host.begin(event.pid)
        elif self._first and (event is None or isinstance(event, Exited)):
            self._by_host.end(self._first)
            self._first = 0
        if isinstance(event, ExecFailed) and event.stage == b"chdir":
            raise OSError(event.errno, os.strerror(event.errno), os.fsdecode(self._program.cwd))
        return event

    def exec_failure(self, failure: ExecFailed) -> tuple[int, str]:
        """Exit code and one-line message, as shells have them: 127 for a program not found, 126 for one that cannot run."""
        program = self._program.argv[0]
        name = escaped(program.decode("utf-8", "surrogateescape"), quoted=False)
        if failure.errno in (errno.ENOENT, errno.ENOTDIR):
            return NOT_FOUND, f"{name}: {'command not found' if b'/' not in program else os.strerror(failure.errno)}"
        if failure.errno == errno.EACCES:
            return NOT_EXECUTABLE, f"{name}: permission denied"
        if failure.errno == errno.ENOEXEC:
            return NOT_EXECUTABLE, f"{name}: exec format error"
        return NOT_EXECUTABLE, f"{name}: {os.strerror(failure.errno)}"

    def gone(self) -> Exception:
        """The error for events that end before the program did."""
        return self._supervisor.gone()

    def send_signal(self, signum: int) -> None:
        """Send a signal to the program. `ProcessLookupError` if it is gone."""
        self._supervisor.signal(self._run, signum)

    def kill_tree(self) -> None:
        """Kill the program and everything it started, wherever that detached itself to."""
        self._supervisor.kill_tree(self._run)

    def close(self) -> None:
        """Stop listening; the program goes on, unheard."""
        if self._first and self._by_host is not None:
            self._by_host.end(self._first)
        self._run.close()


class NativeGuest:
    """The native programs of one VM."""

    def __init__(
        self,
        supervisor: Supervisor,
        record: Recorder,
        record_unsent: Callable[[int], None],
        *,
        by_host: RunDenials | None = None,
        service: HostServiceHandle | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._record = record
        self._record_unsent = record_unsent
        self._by_host = by_host
        self._service = service

    def start(self, program: Program, stdio: tuple[int, int, int], *, tty: bool = False) -> NativeProcess:
        """Start *program* with three descriptors, which the caller should close when this returns.

        They must be pipes, or the far side of a pseudo-terminal made for this run (*tty*: it becomes the controlling
        terminal): the guest can reopen, inspect and outlive whatever it is given.
        """
        return self._start(program, stdio, tty=tty, serve=True)

    def _start(self, program: Program, stdio: tuple[int, int, int], *, tty: bool, serve: bool) -> NativeProcess:
        if serve and self._service is not None:  # nobody is sure to look at the socket as `run` does
            self._service.activate()
        run = self._supervisor.run(list(program.argv), dict(program.env), program.cwd, *stdio, tty=tty)
        return NativeProcess(self._supervisor, run, program, self._record, self._by_host)

    def run(
        self, program: Program, shown: Command, *, stdin: bytes, timeout: float | None, decode: Callable[[bytes], _Output]
    ) -> Result[_Output]:
        """Run *program* to its end.

        Raises `Timeout` when *timeout* seconds are over and everything the program started has been killed, and `OSError`
        naming the working directory if that cannot be entered.
        """
        started = time.monotonic()
        deadline = None if timeout is None else started + timeout
        out, err = Capture(CAPTURE_LIMIT), Capture(CAPTURE_LIMIT)
        with closing(Pump()) as pump:
            with ExitStack() as theirs:
                stdin_reader, writer = guest_pipe()
                theirs.callback(os.close, stdin_reader)
                pump.feed(writer, stdin)
                writers = []
                for capture in (out, err):
                    reader, writer = guest_pipe()
                    theirs.callback(os.close, writer)
                    writers.append(writer)
                    pump.collect(reader, capture)
                process = self._start(program, (stdin_reader, writers[0], writers[1]), tty=False, serve=False)
            with closing(process):
                watch = _Watch(process)
                pump.watch(process.fileno(), watch.take)
                if self._service is not None and not self._service.active:
                    # Only when somebody calls: most programs never do, and a thread costs more than all else here.
                    pump.notice(self._service.fileno(), self._service.activate)
                timed_out = _pump_to_the_end(pump, process, deadline)
            pump.drain()
        self._record_unsent(watch.denials_unsent)
        err.add(watch.failure_line)
        denials = watch.denials
        if process.host_denials:
            denials = sorted([*denials, *process.host_denials], key=lambda denial: denial.time)
        if timed_out and timeout is not None:
            raise Timeout(shown, timeout, decode(out.content()), decode(err.content()), denials)
        if watch.returncode is None:
            raise process.gone()
        return Result(
            shown,
            watch.returncode,
            decode(out.content()),
            decode(err.content()),
            denials=denials,
            denials_dropped=watch.denials_dropped,
            duration=time.monotonic() - started,
            usage=watch.usage,
            truncated=out.truncated or err.truncated,
        )

    def close(self) -> None:
        """End the VM."""
        if self._service is not None:
            self._service.close()
        self._supervisor.close()


class _Watch:
    """What was told of one run."""

    def __init__(self, process: NativeProcess) -> None:
        self._process = process
        self.denials: list[Denial] = []
        self.denials_unsent = 0
        self._not_kept = 0
        self.returncode: int | None = None
        self.failure_line = b""
        self.usage = Usage()

    @property
    def denials_dropped(self) -> int:
        """How many refusals there were beside those listed."""
        return self.denials_unsent + self._not_kept

    def take(self) -> bool:
        """Take one event; True when there will be no more."""
        event = self._process.next_event()
        if isinstance(event, Denial):
            if len(self.denials) < _DENIALS_KEPT:
                self.denials.append(event)
            else:
                self._not_kept += 1
        elif isinstance(event, Exited):
            self.returncode = exit_code(event)
            self.denials_unsent = event.denials_dropped
            self.usage = Usage(event.user_us / 1e6, event.system_us / 1e6, event.max_rss_kib * 1024, event.notified)
        elif isinstance(event, ExecFailed):
            self.returncode, message = self._process.exec_failure(event)
            self.failure_line = f"callgate: {message}\n".encode()
        return event is None or isinstance(event, Exited | ExecFailed)


def _pump_to_the_end(pump: Pump, process: NativeProcess, deadline: float | None) -> bool:
    """True if the run had to be killed because its time was up."""
    try:
        if pump.run(deadline):
            return False
        process.kill_tree()
        pump.run(time.monotonic() + _KILL_GRACE)
    except BaseException:
        # Ctrl-C in the host program, say: whoever started the run is not going to hear of its end.
        with suppress(InternalError, ValueError):  # gone already
            process.kill_tree()
        raise
    return True
