"""The supervisor's process on the host: started with two descriptors and nothing else, watched through a pidfd, and ended."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from callgate.kernel.protocol import FD_CONTROL, FD_LAUNCH
from callgate.scopes.errors import InternalError

if TYPE_CHECKING:
    from callgate.kernel.confinement.cgroup import Cgroup

EXECUTABLE = Path(__file__).with_name("native") / "callgate-supervisor"

CLOSE_SECONDS = 5.0  # how long an ending supervisor is waited for before it is killed

_ABOVE_FIXED = 10  # descriptors are first moved clear of the fixed numbers they get in the supervisor


def spawn(executable: Path, blob: bytes) -> tuple[socket.socket, int]:
    """The supervisor's process, with its end of the control socket and the blob at the numbers it expects and nothing else.

    posix_spawn is vfork and exec in one: no Python runs in the child.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    with ExitStack() as stack:
        stack.enter_context(theirs)
        failed = stack.enter_context(ExitStack())
        failed.enter_context(ours)
        memfd = sealed_memfd("callgate-launch", blob)
        stack.callback(os.close, memfd)
        moves = []
        for source, number in ((theirs.fileno(), FD_CONTROL), (memfd, FD_LAUNCH)):
            clear = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _ABOVE_FIXED)
            stack.callback(os.close, clear)
            moves.append((os.POSIX_SPAWN_DUP2, clear, number))
        try:
            pid = os.posix_spawn(
                executable,
                ["callgate"],  # what guests see of it as /proc/1/cmdline
                {},
                file_actions=moves,
                setsid=True,  # a terminal's Ctrl-C is for the host program; signals the program resets itself
            )
        except (FileNotFoundError, PermissionError) as error:
            raise InternalError(
                f"{executable} is missing or cannot be executed ({error.strerror}): the C part of callgate was not built; "
                "reinstall callgate on a machine with gcc"
            ) from error
        failed.pop_all()
        return ours, pid


def end(
    control: socket.socket,
    listeners: list[socket.socket],
    cgroups: list[Cgroup],
    pid: int,
    pidfd: int,
    owner: int,
    lock: threading.Lock,
) -> None:
    """Close the control socket, which ends the supervisor, and wait for it; kill it if it does not go."""
    if os.getpid() == owner:
        with suppress(OSError):
            control.shutdown(socket.SHUT_RDWR)  # also wakes a thread that waits for an answer
        if not readable(pidfd, CLOSE_SECONDS):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            readable(pidfd, CLOSE_SECONDS)
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        for cgroup in cgroups:
            cgroup.remove()
    # In a forked copy of the owner the VM is not ours to end: only the copies of the descriptors go.
    held = lock.acquire(timeout=CLOSE_SECONDS)
    control.close()
    for listener in listeners:
        listener.close()
    os.close(pidfd)
    if held:
        lock.release()


def sealed_memfd(name: str, content: bytes) -> int:
    """A descriptor of a file in memory that nobody can change any more."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def readable(fd: int, seconds: float) -> bool:
    """Wait until *fd* is readable (a pidfd: until its process ended); False when the time is up."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def exit_description(pid: int) -> str:
    """How the supervisor ended, without reaping it."""
    with suppress(ChildProcessError):
        result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if result is not None:
            if result.si_code == os.CLD_EXITED:
                return f"exit status {result.si_status}"
            return f"killed by {signal.Signals(result.si_status).name}"
    return "exit status unknown"
