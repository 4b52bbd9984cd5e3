"""Native guests: unmodified programs in the VM's process tree, and what is told of each until it has ended."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from callgate.guest.arguments import words
from callgate.guest.interface import Listeners, Program, Recorder, Service
from callgate.guest.result import Command, Result, Usage
from callgate.kernel.audit import Denial
from callgate.kernel.launch import Run, Supervisor
from callgate.kernel.launch_blob import Watch
from callgate.kernel.protocol import DenialEvent, ExecFailed, Exited, Started
from callgate.kernel.supervisor_process import readable
from callgate.scopes.errors import InternalError, escaped

if TYPE_CHECKING:
    from callgate.guest.run_denials import RunDenials
    from callgate.guest.streams import Pump

_Output = TypeVar("_Output")

#: Output kept of each stream, in bytes; a guest that writes more is not stopped, the rest is thrown away.
CAPTURE_LIMIT = 64 << 20

#: Denials listed in one result; the supervisor sends no more than this of its own accord.
_DENIALS_KEPT = 10_000

NOT_FOUND, NOT_EXECUTABLE = 127, 126

_WATCHED = {Watch.WALL: "wall_seconds", Watch.CPU: "cpu_seconds", Watch.MEMORY: "memory"}


def prepare(argv: Command, env: dict[str, str], cwd: str) -> Program:
    """*argv* as execve(2) wants it; a string is a command line for /bin/sh. `ValueError` or `TypeError` for what cannot be."""
    encoded = tuple(os.fsencode(word) for word in words(argv))
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


def exceeded_limits(ended: Exited) -> tuple[str, ...]:
    """Names of the limits that ended a run, as far as its end tells: those the supervisor watches, and the kernel's signals."""
    names = [name for watch, name in _WATCHED.items() if ended.exceeded >> (watch - Watch.WALL) & 1]
    code = exit_code(ended)
    if code == -signal.SIGXCPU and "cpu_seconds" not in names:
        names.append("cpu_seconds")  # the kernel's own clock of one process was first
    if code == -signal.SIGXFSZ:
        names.append("file_size")
    return tuple(names)


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
        self.began = time.monotonic()
        self.oom_kills_before = 0  # in the VM, when it was started

    def fileno(self) -> int:
        """Readable when `next_event` would not block; for selectors."""
        return self._run.fileno()

    def ready(self) -> bool:
        """Whether `next_event` would not block."""
        return readable(self._run.fileno(), 0)

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
            reason = f"the program's cwd cannot be entered in the VM: {os.strerror(event.errno)}"
            raise OSError(event.errno, reason, os.fsdecode(self._program.cwd))
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

    def send_signal(self, signum: int, *, group: bool = False) -> None:
        """Send a signal to the program, or to its process group as a terminal does. `ProcessLookupError` if it is gone."""
        self._supervisor.signal(self._run, signum, group=group)

    def kill_tree(self) -> None:
        """Kill the program and everything it started, wherever that detached itself to."""
        self._supervisor.kill_tree(self._run)

    def close(self) -> None:
        """Stop listening; the program goes on, unheard."""
        if self._first and self._by_host is not None:
            self._by_host.end(self._first)
        self._run.close()


class NativeGuest:
    """The native programs of one VM, and what bounds them on the host's side."""

    def __init__(
        self,
        supervisor: Supervisor,
        record: Recorder,
        record_unsent: Callable[[int], None],
        *,
        output_limit: int | None = None,
        wall_seconds: float | None = None,
        by_host: RunDenials | None = None,
        services: Sequence[Service] = (),
    ) -> None:
        self._supervisor = supervisor
        self._record = record
        self._record_unsent = record_unsent
        self.output_limit = CAPTURE_LIMIT if output_limit is None else output_limit
        self.wall_seconds = wall_seconds
        self._pty_device: int | None = None
        self._by_host = by_host
        self._services = services

    def start(self, program: Program, stdio: tuple[int, int, int], *, tty: bool = False, watched: bool = False) -> NativeProcess:
        """Start *program* with three descriptors, which the caller should close when this returns.

        They must be pipes, or the far side of a pseudo-terminal made for this run (*tty*: it becomes the controlling
        terminal): the guest can reopen, inspect and outlive whatever it is given. *watched*: the caller goes on with
        `notice_callers`, so that the host's services need not be started before somebody calls them.
        """
        if not watched:
            for service in self._services:
                service.activate()
        oom_kills, began = self._supervisor.oom_kills(), time.monotonic()  # the program may be killed before this goes on
        run = self._supervisor.run(list(program.argv), dict(program.env), program.cwd, *stdio, tty=tty)
        process = NativeProcess(self._supervisor, run, program, self._record, self._by_host)
        process.oom_kills_before, process.began = oom_kills, began
        return process

    def notice_callers(self, pump: Pump) -> None:
        """Have the host's services started when somebody calls: most programs never do, and a thread costs more than all else."""
        for service in self._services:
            if not service.active:
                for fd in service.filenos():
                    pump.notice(fd, service.activate)

    @property
    def closed(self) -> bool:
        """Whether the VM was closed."""
        return self._supervisor.closed

    def outcome(self, process: NativeProcess) -> Outcome:
        """What becomes of *process*, to be told event by event."""
        return Outcome(process, self._record_unsent, self._supervisor.oom_kills)

    def open_pty(self) -> tuple[int, int]:
        """Master and slave of a new pseudo-terminal of the VM's."""
        from callgate.guest.terminal import open_guest_pty

        master, slave = open_guest_pty(self._supervisor)
        self._pty_device = os.fstat(slave).st_dev
        return master, slave

    def may_hold(self, fd: int) -> bool:
        """Whether a guest may be given the descriptor: a pipe without a name, /dev/null, or the far side of a pty of the VM's."""
        from callgate.guest.terminal import may_be_passed

        return may_be_passed(fd) or (self._pty_device is not None and os.fstat(fd).st_dev == self._pty_device)

    def run(
        self,
        program: Program,
        shown: Command,
        *,
        stdin: bytes,
        timeout: float | None,
        decode: Callable[[bytes], _Output],
        listeners: Listeners = (None, None),
    ) -> Result[_Output]:
        """Run *program* to its end.

        Raises `Timeout` when *timeout* seconds are over and everything the program started has been killed, and `OSError`
        naming the working directory if that cannot be entered.
        """
        from callgate.guest.captured import CapturedRun

        with closing(CapturedRun(self, program, shown, stdin=stdin, decode=decode, listeners=listeners)) as run:
            return run.to_the_end(timeout)

    def close(self) -> None:
        """End the VM."""
        for service in self._services:
            service.close()
        self._supervisor.close()


class Outcome:
    """What was told of one run."""

    def __init__(self, process: NativeProcess, record_unsent: Callable[[int], None], oom_kills: Callable[[], int]) -> None:
        self._process = process
        self._record_unsent = record_unsent
        self._oom_kills = oom_kills
        self._not_kept = 0
        self._not_sent = 0
        self._denials: list[Denial] = []
        self.pid = 0  # in the VM; 0 until it is known
        self.returncode: int | None = None
        self.failure: ExecFailed | None = None
        self.failure_line = b""
        self.usage = Usage()
        self.exceeded: tuple[str, ...] = ()

    @property
    def denials(self) -> list[Denial]:
        """The refusals until now, those of the host's services among them, oldest first."""
        if not self._process.host_denials:
            return self._denials
        return sorted([*self._denials, *self._process.host_denials], key=lambda denial: denial.time)

    @property
    def denials_dropped(self) -> int:
        """How many refusals there were beside those listed."""
        return self._not_sent + self._not_kept

    def take(self) -> bool:
        """Take one event; True when there will be no more."""
        event = self._process.next_event()
        if isinstance(event, Denial):
            if len(self._denials) < _DENIALS_KEPT:
                self._denials.append(event)
            else:
                self._not_kept += 1
        elif isinstance(event, Started):
            self.pid = event.pid
        elif isinstance(event, Exited):
            self._ended(event)
        elif isinstance(event, ExecFailed):
            self.returncode, message = self._process.exec_failure(event)
            self.failure, self.failure_line = event, f"callgate: {message}\n".encode()
        return event is None or isinstance(event, Exited | ExecFailed)

    def end_with_vm(self) -> None:
        """Nothing more will be told. A program whose own end was not told was killed with everything else in its VM."""
        if self.returncode is None:
            self.returncode = -signal.SIGKILL
            self.usage = Usage(wall_seconds=time.monotonic() - self._process.began)

    def _ended(self, event: Exited) -> None:
        self.returncode = exit_code(event)
        self._not_sent = event.denials_dropped
        self._record_unsent(event.denials_dropped)
        self.usage = Usage(
            event.user_us / 1e6,
            event.system_us / 1e6,
            event.max_rss_kib * 1024,
            time.monotonic() - self._process.began,
            event.notified,
        )
        exceeded = exceeded_limits(event)
        if self._oom_kills() > self._process.oom_kills_before and "memory" not in exceeded:
            exceeded = (*exceeded, "memory")
        self.exceeded = exceeded
