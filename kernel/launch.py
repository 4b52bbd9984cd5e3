"""Starts the supervisor of one VM and talks to it: the host's end of the control socket.

The supervisor is a process of its own. It ends when the control socket is closed, when this process ends, or when it is
killed, and every guest of its VM ends with it.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from callgate.kernel.launch_failure import launch_error
from callgate.kernel.protocol import (
    MESSAGE_MAX,
    PROTOCOL_VERSION,
    CpuClockRequest,
    DenialRecord,
    Event,
    Feature,
    FsCall,
    FsFlag,
    FsRequest,
    LaunchFailed,
    LookupDenied,
    NameRequest,
    Ready,
    Reply,
    Request,
    RunFlag,
    RunRequest,
    SignalRequest,
    SignalWhom,
    SocketRequest,
    Stats,
    StatsRequest,
    decode_answer,
    decode_event,
    encode,
    encode_run_in_memfd,
)
from callgate.kernel.supervisor_process import CLOSE_SECONDS, end, exit_description, readable, sealed_memfd, spawn
from callgate.kernel.supervisor_process import EXECUTABLE as EXECUTABLE
from callgate.kernel.wire import ProtocolError
from callgate.scopes.errors import InternalError

if TYPE_CHECKING:
    from callgate.kernel.confinement.cgroup import Cgroup
    from callgate.kernel.plan import Plan

_START_SECONDS = 60  # a healthy launch takes milliseconds; this only ends a hang
_EVENT_MAX = 65536  # a denial holds two paths and two short texts
_RUN_NUMBERS = 1 << 32


class FsReply(NamedTuple):
    """The result of one `vm.fs` operation; the caller owns the descriptor."""

    value: int
    data: bytes
    fd: int | None


class Refused(Exception):
    """The supervisor refused a `vm.fs` operation by policy; carries the record of the refusal."""

    def __init__(self, record: DenialRecord) -> None:
        super().__init__(record)
        self.record = record


class Run:
    """One program started in the VM: its number, and the socket on which the supervisor tells what becomes of it."""

    def __init__(self, number: int, events: socket.socket) -> None:
        self.number = number
        self._events = events

    def fileno(self) -> int:
        """The events socket: readable when `next_event` would not block."""
        return self._events.fileno()

    def next_event(self) -> Event | None:
        """Wait for the next event; None once the run is over and everything was told, or if the supervisor is gone."""
        try:
            packet = self._events.recv(_EVENT_MAX)
        except ConnectionResetError:
            return None
        if not packet:
            return None
        try:
            number, event = decode_event(packet)
        except ProtocolError as error:
            raise InternalError(f"the supervisor sent an event that cannot be read: {error}") from error
        if number != self.number:
            raise InternalError(f"an event of run {number} arrived on the socket of run {self.number}")
        return event

    def close(self) -> None:
        """Close the events socket; the program goes on, unheard."""
        self._events.close()


class Supervisor:
    """A started VM, seen from the host. Every method may be called from any thread."""

    def __init__(self, control: socket.socket, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.init_pid = 0
        self.features = Feature(0)
        self.listeners: list[socket.socket] = []  # in the order of the plan's; closed with the VM
        self._cgroups: list[Cgroup] = []  # at most one; removed with the VM
        self._control = control
        self._pidfd = pidfd
        self._lock = threading.Lock()
        self._buffer = bytearray(MESSAGE_MAX)
        self._last_request = 0
        self._abandoned_runs: set[int] = set()
        self._owner = os.getpid()
        self._end = weakref.finalize(self, end, control, self.listeners, self._cgroups, pid, pidfd, self._owner, self._lock)

    @classmethod
    def start(cls, plan: Plan, *, executable: Path = EXECUTABLE, cgroup: Cgroup | None = None) -> Self:
        """Start the supervisor and wait until the VM stands.

        Raises `Unsupported` if this host cannot enforce what the plan needs, saying what is missing, and `InternalError`
        for anything else; in both cases nothing is left running. *cgroup* is the VM's from then on, and removed at its end.
        """
        control, pid = spawn(executable, plan.blob)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            control.close()  # which ends it
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            raise InternalError(f"the supervisor cannot be watched: {error}") from error
        supervisor = cls(control, pid, pidfd)
        if cgroup is not None:
            supervisor._cgroups.append(cgroup)
        try:
            supervisor._await_ready(plan)
            supervisor._enter_cgroup()
        except BaseException:
            supervisor.close()
            raise
        return supervisor

    def run(
        self,
        argv: list[bytes],
        env: dict[bytes, bytes],
        cwd: bytes,
        stdin: int,
        stdout: int,
        stderr: int,
        *,
        tty: bool = False,
    ) -> Run:
        """Start a program with three descriptors that stay the caller's; it should close its own copies when this returns.

        That the program does not exist or cannot be executed is told as an event of the run. `BlockingIOError` if the VM cannot
        run one more at once.
        """
        flags = RunFlag.TTY if tty else RunFlag(0)
        message = RunRequest(flags, cwd, tuple(argv), tuple(name + b"=" + value for name, value in env.items()))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        with ExitStack() as stack:
            stack.enter_context(theirs)
            closing = stack.enter_context(ExitStack())
            closing.enter_context(ours)
            reply, fd = self._request(message, [stdin, stdout, stderr, theirs.fileno()])
            _refuse_descriptor(fd)
            if reply.errno == errno.EAGAIN:
                raise BlockingIOError(reply.errno, "this VM runs as many programs at once as it can")
            if reply.errno:
                raise InternalError(f"the supervisor could not start a program: {os.strerror(reply.errno)}")
            if reply.value >= _RUN_NUMBERS:
                raise InternalError(f"the supervisor gave a run the number {reply.value}")
            closing.pop_all()
        return Run(reply.value, ours)

    def signal(self, run: Run, signum: int, *, group: bool = False) -> None:
        """Send *signum* to the run's first program, or to its whole process group. `ProcessLookupError` if it is gone."""
        self._signal(run.number, signum, SignalWhom.GROUP if group else SignalWhom.FIRST)

    def kill_tree(self, run: Run) -> None:
        """Kill everything the run started; a run that is over is no error."""
        with suppress(ProcessLookupError):
            self._signal(run.number, signal.SIGKILL, SignalWhom.TREE)

    def fs(
        self, operation: FsCall, path: bytes, second: bytes = b"", *, a: int = 0, b: int = 0, unchecked: bool = False
    ) -> FsReply:
        """One operation on the VM's filesystem, done by the supervisor with the guest's rights.

        Raises `OSError` with the guest's path, or `Refused` where the policy refuses.
        """
        flags = FsFlag.UNCHECKED if unchecked else FsFlag(0)
        reply, fd = self._request(FsRequest(operation, flags, a, b, path, second), [])
        if reply.errno:
            _refuse_descriptor(fd)
            if reply.denial is not None:
                raise Refused(reply.denial)
            names = (os.fsdecode(path), None, os.fsdecode(second)) if second else (os.fsdecode(path),)
            raise OSError(reply.errno, os.strerror(reply.errno), *names)
        return FsReply(reply.value, reply.data, fd)

    def oom_kills(self) -> int:
        """How many processes of the VM its cgroup's memory limit has killed."""
        return sum(cgroup.oom_kills() for cgroup in self._cgroups)

    def stats(self) -> Stats:
        """The supervisor's counters."""
        reply, fd = self._request(StatsRequest(), [])
        _refuse_descriptor(fd)
        try:
            return Stats.decode(reply.data)
        except ProtocolError as error:
            raise InternalError(f"the supervisor's counters cannot be read: {error}") from error

    def set_name(self, name: NameRequest) -> bool:
        """Tell what a name and its addresses mean; False if the supervisor has no room for one more."""
        reply, fd = self._request(name, [])
        _refuse_descriptor(fd)
        if reply.errno not in (0, errno.ENOSPC):
            raise InternalError(f"the supervisor did not take a name: {os.strerror(reply.errno)}")
        return not reply.errno

    def lookup_denied(self, lookup: LookupDenied) -> bool:
        """Have the run that asked hear of a refused look-up; False if it is not known which that was."""
        reply, fd = self._request(lookup, [])
        _refuse_descriptor(fd)
        if reply.errno not in (0, errno.ENOENT):
            raise InternalError(f"the supervisor did not record a denial: {os.strerror(reply.errno)}")
        return not reply.errno

    def socket(self, domain: int, kind: int) -> socket.socket:
        """A new socket in the VM's network, where nothing but the VM's own loopback is. Nobody judges what is done with it."""
        reply, fd = self._request(SocketRequest(domain, kind), [])
        if reply.errno:
            _refuse_descriptor(fd)
            raise OSError(reply.errno, os.strerror(reply.errno))
        if fd is None:
            raise InternalError("the supervisor sent no descriptor with the socket that was asked for")
        return socket.socket(fileno=fd)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._end.alive

    def close(self) -> None:
        """End the VM and wait until nothing of it is left. Calling it again does nothing."""
        self._end()

    # -- one request, one reply --------------------------------------------------------------------------------------

    def _signal(self, number: int, signum: int, whom: SignalWhom) -> None:
        reply, fd = self._request(SignalRequest(number, signum, whom), [])
        _refuse_descriptor(fd)
        if reply.errno:
            raise OSError(reply.errno, os.strerror(reply.errno))

    def _request(self, message: Request, fds: list[int]) -> tuple[Reply, int | None]:
        with self._lock, ExitStack() as stack:
            if self.closed:
                raise ValueError("the VM is closed")
            if os.getpid() != self._owner:
                # Two processes on one socket would read each other's answers.
                raise ValueError("the VM belongs to the process that started it, of which this one is a fork")
            self._last_request += 1
            number = self._last_request
            packet = encode(message, number)
            if len(packet) > MESSAGE_MAX and isinstance(message, RunRequest):
                packet, payload = encode_run_in_memfd(message, number)
                memfd = sealed_memfd("callgate-run", payload)
                stack.callback(os.close, memfd)
                fds = [*fds, memfd]
            try:
                _send(self._control, packet, fds)
                reply, fd = self._await_reply(number)
            except BaseException:
                # Interrupted between question and answer: a program that starts all the same has nobody who knows of it.
                if isinstance(message, RunRequest):
                    self._abandoned_runs.add(number)
                raise
            return reply, fd

    def _await_reply(self, number: int) -> tuple[Reply, int | None]:
        while True:
            request, answer, fd = self._receive()
            if not isinstance(answer, Reply) or request > number:
                _close_received(fd)
                raise InternalError(f"the supervisor answered {type(answer).__name__} {request} to request {number}")
            if request == number:
                return answer, fd
            # The answer to a question whose asker was interrupted.
            _close_received(fd)
            if request in self._abandoned_runs:
                self._abandoned_runs.remove(request)
                if not answer.errno and answer.value < _RUN_NUMBERS:
                    self._end_abandoned(answer.value)

    def _end_abandoned(self, run: int) -> None:
        self._control.sendall(encode(SignalRequest(run, signal.SIGKILL, SignalWhom.TREE), 0))

    def _receive(self) -> tuple[int, Ready | LaunchFailed | Reply, int | None]:
        request, answer, fds = self._receive_with(1)
        return request, answer, fds[0] if fds else None

    def _receive_with(self, room: int) -> tuple[int, Ready | LaunchFailed | Reply, list[int]]:
        """The next message and at most *room* descriptors beside it; the kernel closes any other."""
        try:
            length, ancillary, _, _ = self._control.recvmsg_into(
                [self._buffer], socket.CMSG_SPACE(_INT * room), socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise self.gone() from error
        fds = _descriptors(ancillary)[:room]
        if length == 0:
            raise self.gone()
        try:
            request, answer = decode_answer(bytes(memoryview(self._buffer)[:length]))
        except ProtocolError as error:
            _close_all(fds)
            raise InternalError(f"the supervisor sent a message that cannot be read: {error}") from error
        return request, answer, fds

    def _await_ready(self, plan: Plan) -> None:
        if not readable(self._control.fileno(), _START_SECONDS):
            raise InternalError(f"the supervisor did not get ready within {_START_SECONDS} seconds")
        _, answer, fds = self._receive_with(max(len(plan.listeners), 1))
        self.listeners += [socket.socket(fileno=fd) for fd in fds]
        if isinstance(answer, LaunchFailed):
            raise launch_error(answer, plan.operator_sources)
        if not isinstance(answer, Ready):
            raise InternalError("the supervisor answered before it was asked")
        if answer.version != PROTOCOL_VERSION:
            raise InternalError(
                f"the supervisor speaks version {answer.version} of the protocol and this package version {PROTOCOL_VERSION}: "
                "its C part is not of this installation; reinstall callgate"
            )
        if len(self.listeners) != len(plan.listeners):
            raise InternalError(f"the supervisor made {len(self.listeners)} of {len(plan.listeners)} listeners")
        self.init_pid, self.features = answer.init_pid, answer.features

    def _enter_cgroup(self) -> None:
        """Put init into the cgroup, before it has started anything, and let the supervisor read the cgroup's clock."""
        for cgroup in self._cgroups:
            cgroup.add(self.init_pid)
            if (clock := cgroup.open_clock()) is None:
                continue
            try:
                reply, received = self._request(CpuClockRequest(), [clock])
            finally:
                os.close(clock)
            _refuse_descriptor(received)
            if reply.errno:
                raise InternalError(f"the supervisor did not take the cgroup's clock: {os.strerror(reply.errno)}")

    def gone(self) -> Exception:
        """The error that says why there is nobody to answer any more."""
        if self.closed:
            return ValueError("the VM is closed")
        how = exit_description(self.pid) if readable(self._pidfd, CLOSE_SECONDS) else "though its process still runs"
        if kills := self.oom_kills():
            how += f", after the VM's memory limit had killed {kills} of its processes"
        return InternalError(f"the supervisor ended ({how}); every program of the VM ended with it")


def _send(control: socket.socket, packet: bytes, fds: list[int]) -> None:
    try:
        if fds:
            socket.send_fds(control, [packet], fds)
        else:
            control.sendall(packet)
    except (BrokenPipeError, ConnectionResetError):
        # The answer that is not going to come says why.
        return


_INT = 4


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that came beside a message."""
    return [
        int.from_bytes(data[at : at + _INT], "little")
        for level, kind, data in ancillary
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        for at in range(0, len(data) - _INT + 1, _INT)
    ]


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _close_received(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _refuse_descriptor(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
        raise InternalError("the supervisor passed a descriptor where none belongs")
