"""Connects a guest's 0, 1 and 2 to the caller's without handing it a terminal, file, folder or socket of the host.

What the caller has   -> what the guest gets
  a terminal          -> a pty of the VM's, the same one for every descriptor that is a terminal, its master relayed
  an anonymous pipe   -> that pipe
  /dev/null           -> that device
  anything else       -> a pipe, relayed (a descriptor of a host file would carry the file's mode, owner and path)
"""

import contextlib
import fcntl
import os
import select
import signal
import stat
import termios
import threading
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from callgate.guest.relay import read_some, wait_for, write_all
from callgate.guest.streams import guest_pipe
from callgate.kernel.launch import Supervisor
from callgate.kernel.protocol import FsCall
from callgate.scopes.errors import InternalError

TIOCSPTLCK: Final = 0x40045431  # ioctl_tty(2); the termios module knows neither
TIOCGPTPEER: Final = 0x5441
FOREGROUND_PAUSE_MS: Final = 200  # how often a background job looks whether it has become the terminal's foreground


def open_guest_pty(supervisor: Supervisor) -> tuple[int, int]:
    """Master and slave of a new pty in the VM's own /dev/pts, where the guest owns it and finds it by its name."""
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    master = supervisor.fs(FsCall.OPEN, b"/dev/pts/ptmx", a=flags, unchecked=True).fd
    if master is None:
        raise InternalError("the supervisor opened a pty and sent no descriptor")
    try:
        fcntl.ioctl(master, TIOCSPTLCK, (0).to_bytes(4, "little"))  # unlock
        return master, fcntl.ioctl(master, TIOCGPTPEER, flags)
    except BaseException:
        os.close(master)
        raise


def may_be_passed(fd: int) -> bool:
    """Whether a guest may hold the caller's own descriptor: nothing but /dev/null or a pipe without a name."""
    info = os.fstat(fd)
    if stat.S_ISCHR(info.st_mode):
        return info.st_rdev == os.makedev(1, 3)
    if not stat.S_ISFIFO(info.st_mode):
        return False
    reader, writer = os.pipe()
    anonymous = info.st_dev == os.fstat(reader).st_dev  # a named fifo lives on a filesystem of the host instead
    os.close(reader)
    os.close(writer)
    if anonymous:
        # Programs open /dev/stdout by name, and the guest has a user id of its own; nobody else can name the pipe.
        with contextlib.suppress(PermissionError):
            os.fchmod(fd, 0o666)
    return anonymous


def _same_file(a: int, b: int) -> bool:
    return os.path.samestat(os.fstat(a), os.fstat(b))


def _in_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True  # not our controlling terminal, so no job control stands in the way


class StdioRelay:
    """The guest's three standard descriptors and the threads that carry what cannot be passed directly.

    Use as a context manager: `guest` holds the descriptors to start the program with, `started()` is called once it
    runs, and leaving the block delivers what is left and gives the caller's terminal back as it was.
    `open_pty` returns (master, slave).
    """

    def __init__(
        self, stdin: int = 0, stdout: int = 1, stderr: int = 2, *, open_pty: Callable[[], tuple[int, int]] = os.openpty
    ) -> None:
        self._caller = (stdin, stdout, stderr)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # no more input is carried
        self._gone = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # nor output: the caller's terminal hung up
        self._lock = threading.Lock()
        self.lost: dict[str, str] = {}
        """Which of the caller's outputs did not take what the program wrote, and why; complete after `close`."""
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._guest_ends: set[int] = set()
        self._terminal: int | None = None  # the caller's terminal: where the pty's output goes
        self._master: int | None = None
        self._saved: list[int | list[bytes | int]] | None = None
        self._reads_terminal = os.isatty(stdin)
        terminals = [fd for fd in self._caller if os.isatty(fd)]
        slave = self._open_terminal(terminals, open_pty) if terminals else -1
        self.guest: tuple[int, int, int] = (self._input(stdin, slave), *self._outputs(stdout, stderr, slave))
        """What to start the program with, in the order stdin, stdout, stderr."""

    @property
    def tty(self) -> bool:
        """Whether the guest's stdin is a terminal, which is then to become its controlling one."""
        return self._reads_terminal

    # -- the three descriptors --

    def _open_terminal(self, terminals: list[int], open_pty: Callable[[], tuple[int, int]]) -> int:
        outputs = [fd for fd in terminals if fd != self._caller[0]]
        self._terminal = outputs[0] if outputs else terminals[0]
        self._master, slave = open_pty()
        self._guest_ends.add(slave)
        attributes = termios.tcgetattr(self._terminal)
        if not self._reads_terminal:
            # The caller's terminal keeps processing output; doing it twice would double the carriage returns.
            attributes[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.resize()
        self._add_output(os.dup(self._master), self._terminal, is_terminal=True)
        if self._reads_terminal:
            self._add_input(self._caller[0], os.dup(self._master), is_terminal=True)
        return slave

    def _input(self, fd: int, slave: int) -> int:
        if os.isatty(fd):
            return slave
        if may_be_passed(fd):
            return fd
        reader, writer = guest_pipe()
        self._guest_ends.add(reader)
        self._add_input(fd, writer)
        return reader

    def _outputs(self, stdout: int, stderr: int, slave: int) -> tuple[int, int]:
        relayed: dict[int, int] = {}

        def output(fd: int) -> int:
            if os.isatty(fd):
                return slave
            if may_be_passed(fd):
                return fd
            for other, writer in relayed.items():
                if _same_file(fd, other):
                    return writer  # `> log 2>&1`: one pipe keeps the order of what is written
            reader, writer = guest_pipe()
            self._guest_ends.add(writer)
            relayed[fd] = writer
            self._add_output(reader, fd)
            return writer

        return output(stdout), output(stderr)

    # -- relays; each owns its end towards the guest and closes it --

    def _add_output(self, source: int, sink: int, *, is_terminal: bool = False) -> None:
        def relay() -> None:
            try:
                while wait_for(source, select.POLLIN, self._gone) and (data := read_some(source)):
                    if not write_all(sink, data, None, None if is_terminal else lambda error: self._lost(sink, error)):
                        if is_terminal:
                            self._hang_up()
                        return  # and the guest's next write fails as it would have on the caller's descriptor
            finally:
                os.close(source)

        self._threads.append(threading.Thread(target=relay, name="callgate-output", daemon=True))

    def _add_input(self, source: int, sink: int, *, is_terminal: bool = False) -> None:
        os.set_blocking(sink, False)

        def relay() -> None:
            try:
                while wait_for(source, select.POLLIN, self._stop):
                    if is_terminal and not _in_foreground(source):
                        if _stopped_within(self._stop, FOREGROUND_PAUSE_MS):
                            return
                        continue  # reading now would take what was typed for another job
                    data = read_some(source)
                    if not data:
                        if is_terminal:
                            self._hang_up()
                        return
                    if not write_all(sink, data, self._stop):
                        return
            finally:
                os.close(sink)

        self._threads.append(threading.Thread(target=relay, name="callgate-input", daemon=True))

    def _lost(self, sink: int, error: OSError) -> None:
        name = "standard output" if sink == self._caller[1] else "standard error"
        self.lost.setdefault(name, error.strerror or str(error))

    def _hang_up(self) -> None:
        """The caller's terminal is gone: close the master and its copies, so that the guest is hung up as well."""
        os.eventfd_write(self._stop, 1)
        os.eventfd_write(self._gone, 1)
        self._close_master()

    def _close_master(self) -> None:
        with self._lock:
            if self._master is not None:
                os.close(self._master)
                self._master = None

    # -- the caller's side --

    def started(self) -> None:
        """The program holds its descriptors: closes this process's copies and starts the relays."""
        self._close_guest_ends()
        self.enter_raw_mode()
        for thread in self._threads:
            thread.start()

    def resize(self) -> None:
        """Gives the pty the size of the caller's terminal (call on SIGWINCH)."""
        with self._lock, contextlib.suppress(OSError):  # a terminal that is gone has no size
            if self._master is not None and self._terminal is not None:
                termios.tcsetwinsize(self._master, termios.tcgetwinsize(self._terminal))

    def enter_raw_mode(self) -> None:
        """Lets every key through to the guest's own line discipline. Does nothing in a background job."""
        if not self._reads_terminal or self._saved is not None or not _in_foreground(self._caller[0]):
            return
        with contextlib.suppress(termios.error):  # hung up meanwhile
            saved = termios.tcgetattr(self._caller[0])
            tty.setraw(self._caller[0], termios.TCSADRAIN)
            self._saved = saved

    def leave_raw_mode(self) -> None:
        """Gives the caller's terminal back as it was found; also before this process stops itself."""
        if self._saved is None:
            return
        saved, self._saved = self._saved, None
        # A background process may set a terminal only while it holds SIGTTOU back.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._caller[0], termios.TCSADRAIN, saved)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def _close_guest_ends(self) -> None:
        for fd in self._guest_ends:
            os.close(fd)
        self._guest_ends.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Delivers the rest of the output, which ends when the last guest process has closed its copies, and gives the
        caller's terminal back. Calling it again does nothing.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._close_guest_ends()
            os.eventfd_write(self._stop, 1)
            for thread in self._threads:
                if thread.ident is None:
                    thread.start()  # never started: let it see the end and close its descriptors
            for thread in self._threads:
                thread.join()
        finally:
            self.leave_raw_mode()
            self._close_master()
            os.close(self._stop)
            os.close(self._gone)


def _stopped_within(stop: int, milliseconds: int) -> bool:
    poll = select.poll()
    poll.register(stop, select.POLLIN)
    return bool(poll.poll(milliseconds))
