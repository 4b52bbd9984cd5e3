"""Carries bytes between descriptors of the host and pipes of a guest, a thread each: the guest never holds the host's own."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable
from typing import Final

CHUNK: Final = 65536

#: What can still be in a pipe when its writers are gone: F_SETPIPE_SZ lets a guest have at most this without privilege.
PIPE_MAX: Final = 1 << 20


#: What read(2) says of a source that gives nothing (any more): a terminal hung up, a folder, a connection broken or never made.
_ENDS: Final = frozenset(
    (errno.EIO, errno.EISDIR, errno.EBADF, errno.EINVAL, errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTUNREACH)
)


def wait_for(fd: int, events: int, stop: int) -> bool:
    """Waits for `events` on `fd`; False when `stop` came first."""
    poll = select.poll()
    poll.register(fd, events)
    poll.register(stop, select.POLLIN)
    return stop not in dict(poll.poll())


def write_all(fd: int, data: bytes, stop: int | None, failed: Callable[[OSError], object] | None = None) -> bool:
    """Writes all of `data`, also to a descriptor in non-blocking mode; False when `stop` came first or nobody reads.

    `failed` is told of what the descriptor does not take.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            if stop is None:
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
            elif not wait_for(fd, select.POLLOUT, stop):
                return False
        except OSError as error:
            if failed is not None:
                failed(error)
            return False
    return True


def read_some(fd: int) -> bytes:
    """The next bytes; empty at the end, and where a terminal has no other side any more."""
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll()
        except OSError as error:
            if error.errno not in _ENDS:
                raise
            return b""


class Relays:
    """The threads that carry one program's streams. Each owns its end towards the guest and closes it."""

    def __init__(self) -> None:
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._threads: list[threading.Thread] = []
        self._ended = False

    def output(self, source: int, sink: Callable[[bytes], bool], ended: Callable[[], object]) -> None:
        """Hand what comes out of the pipe *source* to *sink*, until that returns False or nothing more can come; then *ended*."""

        def relay() -> None:
            try:
                while wait_for(source, select.POLLIN, self._stop) and (data := read_some(source)):
                    if not sink(data):
                        return  # the program's next write fails, as on a pipe that nobody reads
                os.set_blocking(source, False)
                self._rest(source, sink)
            finally:
                os.close(source)
                ended()

        self._start(relay, "callgate-output")

    def input(self, source: int, sink: int) -> None:
        """Write what *source* gives into the pipe *sink* until the end of either, or of the program; closes both."""
        os.set_blocking(sink, False)

        def relay() -> None:
            try:
                while wait_for(source, select.POLLIN, self._stop) and (data := read_some(source)):
                    if not write_all(sink, data, self._stop):
                        return
            finally:
                os.close(sink)
                os.close(source)

        self._start(relay, "callgate-input")

    def finish(self) -> None:
        """The program has ended: deliver what is left in its pipes and end the threads. Calling it again does nothing."""
        if self._ended:
            return
        self._ended = True
        os.eventfd_write(self._stop, 1)
        for thread in self._threads:
            if thread is not threading.current_thread():  # a callback that waits for its own program
                thread.join()
        os.close(self._stop)

    def _start(self, relay: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=relay, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    @staticmethod
    def _rest(source: int, sink: Callable[[bytes], bool]) -> None:
        """What the ended program left in its pipe; one that somebody else still writes to is not waited for."""
        taken = 0
        while taken < PIPE_MAX:
            try:
                data = os.read(source, CHUNK)
            except OSError:
                return
            if not data or not sink(data):
                return
            taken += len(data)
