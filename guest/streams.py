"""Moves bytes between the host and a running program's pipes without threads, and without either side waiting for the other.

A guest only ever holds pipes: a descriptor of a host file, directory, terminal or socket would be a way out of the VM.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import selectors
import time
from collections.abc import Callable
from typing import Final

from callgate.guest.relay import CHUNK, PIPE_MAX


class Capture:
    """The first *limit* bytes of a program's output; all of it is told to *listener* as it arrives, and b"" at the end."""

    def __init__(self, limit: int, listener: Callable[[bytes], object] | None = None) -> None:
        self._limit = limit
        self._listener = listener
        self._parts: list[bytes] = []
        self._length = 0
        self.truncated = False

    def add(self, data: bytes) -> None:
        """Keep *data*, or as much of it as fits."""
        if self._listener is not None:
            self._listener(data)
        room = self._limit - self._length
        if len(data) > room:
            self.truncated = True
            data = data[:room]
        self._length += len(data)
        self._parts.append(data)

    def tell_nobody(self) -> None:
        """The listener is told nothing more."""
        self._listener = None

    def content(self) -> bytes:
        """What was kept."""
        return b"".join(self._parts)

    def end(self) -> None:
        """There is no more."""
        if self._listener is not None:
            self._listener(b"")


#: One wait of many, in seconds: poll(2) takes no more than 24 days.
LONG_WAIT: Final = 3600.0

_LINE_ENDS = re.compile("\r\n?")


def text_output(output: bytes) -> str:
    """Output as text, as `subprocess` has it with universal newlines, except that bytes that are not UTF-8 are replaced."""
    return _LINE_ENDS.sub("\n", output.decode("utf-8", "replace"))


def text_listener(listener: Callable[[str], object]) -> Callable[[bytes], object]:
    """A listener for bytes that tells *listener* the same as `text_output` would give, no character cut in two."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)

    def told(data: bytes) -> None:
        if text := decoder.decode(data, final=not data):
            listener(text)

    return told


def bytes_listener(listener: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """A listener that is told nothing of the end."""
    return lambda data: listener(data) if data else None


def guest_pipe() -> tuple[int, int]:
    """Read and write end of a pipe that a guest may hold an end of.

    A guest has a user id of its own, and programs open their descriptors again by name (/dev/stderr): the mode lets them.
    Nobody else can name the pipe.
    """
    reader, writer = os.pipe()
    os.fchmod(writer, 0o666)
    return reader, writer


class Pump:
    """Feeds input, collects output and hands on events until told to stop. Takes over the descriptors it is given.

    With an epoll selector it can itself be waited for, by `fileno`, and moved on by `step`.
    """

    def __init__(self, selector: selectors.PollSelector | selectors.EpollSelector | None = None) -> None:
        self._selector = selectors.PollSelector() if selector is None else selector
        self._input: memoryview = memoryview(b"")
        self._captures: dict[int, Capture] = {}
        self._stop = False

    def feed(self, fd: int, data: bytes) -> None:
        """Write *data* to *fd* as it takes it, then close it."""
        self._input = memoryview(data)
        if not data:
            os.close(fd)
            return
        os.set_blocking(fd, False)
        self._selector.register(fd, selectors.EVENT_WRITE, self._write)

    def collect(self, fd: int, capture: Capture) -> None:
        """Read *fd* into *capture* until its end."""
        os.set_blocking(fd, False)
        self._captures[fd] = capture
        self._selector.register(fd, selectors.EVENT_READ, self._read)

    def watch(self, fd: int, callback: Callable[[], bool]) -> None:
        """Call *callback* whenever *fd* is readable; the pump stops once it returns True."""

        def told(_: int) -> None:
            self._stop = callback()

        self._selector.register(fd, selectors.EVENT_READ, told)

    def notice(self, fd: int, callback: Callable[[], None]) -> None:
        """Call *callback* the first time that *fd* is readable, and not again. The descriptor stays the caller's."""

        def told(_: int) -> None:
            self._selector.unregister(fd)
            callback()

        self._selector.register(fd, selectors.EVENT_READ, told)

    def run(self, deadline: float | None) -> bool:
        """Move bytes until a watch says stop (True) or the monotonic clock reaches *deadline* (False)."""
        while not self._stop:
            wait = None if deadline is None else deadline - time.monotonic()
            if wait is not None and wait <= 0:
                return False
            self.step(None if wait is None else min(wait, LONG_WAIT))
        return True

    def step(self, wait: float | None = 0) -> bool:
        """Move what can be moved, after waiting *wait* seconds at most (None: for ever); True once a watch said stop."""
        for key, _ in self._selector.select(wait):
            key.data(key.fd)
        return self._stop

    def fileno(self) -> int:
        """Readable when `step` has something to do. Of epoll selectors alone."""
        assert isinstance(self._selector, selectors.EpollSelector)
        return self._selector.fileno()

    def drain(self) -> None:
        """Take what the ended program left in its pipes; a pipe that somebody else still holds is not waited for."""
        for fd in list(self._captures):
            taken = 0
            while fd in self._captures and taken < PIPE_MAX:
                before = taken
                taken += self._read(fd)
                if taken == before:
                    break

    def close(self) -> None:
        """Close every descriptor that the pump still has. Calling it again does nothing."""
        for key in list((self._selector.get_map() or {}).values()):
            if key.data in (self._read, self._write):
                self._drop(key.fd)
        self._selector.close()

    def _read(self, fd: int) -> int:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # a pty that no program holds any more
        if data:
            self._captures[fd].add(data)
        else:
            self._captures.pop(fd)
            self._drop(fd)
        return len(data)

    def _write(self, fd: int) -> None:
        try:
            self._input = self._input[os.write(fd, self._input[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = memoryview(b"")  # the program does not want the rest
        if not self._input:
            self._drop(fd)

    def _drop(self, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)
