"""A supervisor without a VM: it speaks the protocol and runs programs on the bare host, so that the host's end is tested alone.

`executable` makes a program of it that `Supervisor.start` can be given. What it does is one of the functions at the end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from callgate.kernel import protocol
from callgate.kernel.launch_blob import Launch
from callgate.kernel.protocol import (
    DenialEvent,
    DenialRecord,
    ExecFailed,
    Exited,
    Feature,
    FsCall,
    FsFlag,
    FsRequest,
    LaunchFailed,
    Ready,
    Reply,
    RunFlag,
    RunRequest,
    SignalRequest,
    SignalWhom,
    Started,
    Stats,
    decode_request,
    encode,
)

READY = Ready(protocol.PROTOCOL_VERSION, 4242, Feature.WAIT_KILLABLE)

_PROGRAM = """#!{python} -B
import sys
sys.path[:0] = {paths!r}
from fake_supervisor import {behaviour}
{behaviour}()
"""


def executable(folder: Path, behaviour: Callable[[], None]) -> Path:
    """A program that behaves like a supervisor of the given kind."""
    program = folder / f"supervisor-{behaviour.__name__}"
    package = Path(protocol.__file__).parents[2]
    program.write_text(
        _PROGRAM.format(python=sys.executable, paths=[str(package), str(Path(__file__).parent)], behaviour=behaviour.__name__)
    )
    program.chmod(0o755)
    return program


def control_socket() -> socket.socket:
    """The supervisor's end of the control socket."""
    return socket.socket(fileno=protocol.FD_CONTROL)


def denial(subject: bytes, requested: bytes | None = None) -> DenialRecord:
    """A refusal to read *subject* by the user's rule 0."""
    return DenialRecord(0, 0, 0, 7, 1_700_000_000_000_000_000, subject, requested or subject, b"/bin/program")


def _tell(events: socket.socket, event: protocol.Event, number: int) -> None:
    with contextlib.suppress(ConnectionError):  # whoever asked for the run does not listen any more
        events.sendall(encode(event, number))


class Host:
    """Programs run on the bare host under the names and numbers of the protocol."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._alive: dict[int, subprocess.Popen[bytes]] = {}
        self._last = 0

    def serve(self) -> None:
        """Answer requests until the host closes the socket."""
        while True:
            packet, fds, _, _ = socket.recv_fds(self._control, protocol.MESSAGE_MAX, 5)
            if not packet:
                return
            if packet[0] == protocol.MessageType.RUN and packet[8] & RunFlag.IN_MEMFD:
                packet += os.pread(fds[4], os.fstat(fds[4]).st_size, 0)
                os.close(fds.pop())
            number, message = decode_request(packet)
            answer, fd = self._answer(message, fds)
            payload = [encode(answer, number)]
            if fd is None:
                self._control.sendmsg(payload)
            else:
                socket.send_fds(self._control, payload, [fd])
                os.close(fd)

    def _answer(self, message: protocol.Request, fds: list[int]) -> tuple[Reply, int | None]:
        if isinstance(message, RunRequest):
            return Reply(0, self._run(message, fds)), None
        if isinstance(message, SignalRequest):
            return self._signal(message), None
        if isinstance(message, FsRequest):
            return self._fs(message)
        return Reply(0, data=Stats(1, 2, 3, 4, len(self._alive)).encode()), None

    def _run(self, message: RunRequest, fds: list[int]) -> int:
        self._last += 1
        number = self._last
        stdin, stdout, stderr, events_fd = fds
        events = socket.socket(fileno=events_fd)
        environment = dict(variable.split(b"=", 1) for variable in message.envp)
        try:
            if not os.path.isdir(message.cwd):  # noqa: PTH112 - bytes
                self._failed(events, number, errno.ENOENT, b"chdir")
            elif b"denied" in message.argv:
                _tell(events, DenialEvent(denial(b"/denied", b"/by/way/of/denied")), number)
            self._start(number, message, environment, (stdin, stdout, stderr), events)
        except OSError as error:
            self._failed(events, number, error.errno or 0, b"lookup")
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        return number

    def _failed(self, events: socket.socket, number: int, code: int, stage: bytes) -> None:
        _tell(events, ExecFailed(code, stage), number)
        events.close()

    def _start(
        self, number: int, message: RunRequest, environment: dict[bytes, bytes], fds: tuple[int, int, int], events: socket.socket
    ) -> None:
        if events.fileno() < 0:
            return
        process = subprocess.Popen(
            message.argv, env=environment, cwd=message.cwd, stdin=fds[0], stdout=fds[1], stderr=fds[2], start_new_session=True
        )
        self._alive[number] = process
        _tell(events, Started(process.pid), number)
        threading.Thread(target=self._wait, args=(number, process, events)).start()

    def _wait(self, number: int, process: subprocess.Popen[bytes], events: socket.socket) -> None:
        code = process.wait()
        status = -code if code < 0 else code << 8
        del self._alive[number]
        _tell(events, Exited(status, 1_500_000, 250_000, 2048, 9, 3), number)
        events.close()

    def _signal(self, message: SignalRequest) -> Reply:
        process = self._alive.get(message.run)
        if process is None:
            return Reply(errno.ESRCH)
        if message.whom is SignalWhom.TREE:
            os.killpg(process.pid, signal.SIGKILL)
        elif message.whom is SignalWhom.GROUP:
            os.killpg(process.pid, message.signal)
        else:
            process.send_signal(message.signal)
        return Reply(0)

    def _fs(self, message: FsRequest) -> tuple[Reply, int | None]:
        path = message.path
        if b"denied" in path and not message.flags & FsFlag.UNCHECKED:
            return Reply(errno.EACCES, denial=denial(b"/resolved" + path, path)), None
        try:
            if message.operation is FsCall.OPEN:
                return Reply(0), os.open(path, message.a, message.b)
            return Reply(0, data=self._named(message)), None
        except OSError as error:
            return Reply(error.errno or errno.EIO), None

    def _named(self, message: FsRequest) -> bytes:
        path, second = message.path, message.second
        if message.operation is FsCall.STAT:
            found = os.stat(path, follow_symlinks=bool(message.a))
            times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
            return b"".join(value.to_bytes(8, "little") for value in (*found[:7], *times))
        if message.operation is FsCall.MKDIR:
            os.mkdir(path, message.b)
        elif message.operation is FsCall.UNLINK:
            (os.rmdir if message.a else os.unlink)(path)
        elif message.operation is FsCall.RENAME:
            os.rename(path, second)  # noqa: PTH104
        elif message.operation is FsCall.SYMLINK:
            os.symlink(second, path)
        elif message.operation is FsCall.READLINK:
            return os.readlink(path)
        elif message.operation is FsCall.CHMOD:
            os.chmod(path, message.b)
        else:
            raise OSError(errno.ENOSYS, "not faked")
        return b""


# -- behaviours ------------------------------------------------------------------------------------------------------


def proper() -> None:
    """Gets ready and serves until the host is gone."""
    control = control_socket()
    blob = os.pread(protocol.FD_LAUNCH, os.fstat(protocol.FD_LAUNCH).st_size, 0)
    os.close(protocol.FD_LAUNCH)
    Launch.decode(blob)
    control.sendall(encode(READY, 0))
    Host(control).serve()


def describes_itself() -> None:
    """Fails to launch, with what it was started with as the detail."""
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    detail = repr({
        "environ": dict(os.environ), "sid": os.getsid(0) == os.getpid(), "fds": [fd for fd in descriptors if fd > 2][:2],
    })  # fmt: skip
    control_socket().sendall(encode(LaunchFailed(b"description", errno.EPROTO, detail.encode()), 0))


def cannot_make_namespaces() -> None:
    """Fails as on a host without user namespaces."""
    control_socket().sendall(encode(LaunchFailed(b"namespaces", errno.EPERM, b"clone"), 0))


def ends_at_once() -> None:
    """Exits without a word."""
    sys.exit(3)


def speaks_another_version() -> None:
    """Is ready, in a protocol of the future."""
    control_socket().sendall(encode(Ready(protocol.PROTOCOL_VERSION + 1, 1, Feature(0)), 0))


def talks_nonsense() -> None:
    """Sends bytes that are no message."""
    control_socket().sendall(b"\xff" * 40)


def dies_when_asked() -> None:
    """Is ready, then is killed by the first request."""
    control = control_socket()
    control.sendall(encode(READY, 0))
    control.recv(protocol.MESSAGE_MAX)
    os.kill(os.getpid(), signal.SIGKILL)


def will_not_go() -> None:
    """Is ready, and stays when the host closes the socket."""
    control_socket().sendall(encode(READY, 0))
    while True:
        signal.pause()
