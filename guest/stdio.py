"""What a spawned program gets for standard input, output and error, and what the host has of it.

asked for             -> what the guest holds        what the host has
  PIPE                   a pipe                       a file object on its other end
  DEVNULL                /dev/null                    nothing
  STDOUT (stderr)        the same as for stdout       nothing
  None                   a pipe                       the caller's own stream, relayed by a thread
  a file or descriptor   a pipe                       that file, relayed by a thread
  pty=True               a pty of the VM's            a file object for each direction

A guest never holds a file, socket or terminal of the host: it could ask it for its path and owner, seek in it, change its mode,
push bytes into the input of a terminal, or open it again by /proc/self/fd with rights it was not given.
"""

from __future__ import annotations

import errno
import io
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, Any, Final, Protocol

from callgate.guest.arguments import kind
from callgate.guest.interface import Listeners
from callgate.guest.relay import Relays, write_all
from callgate.guest.streams import guest_pipe


class HasFileno(Protocol):
    """An open file."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...


#: What `spawn` takes for a stream: a number of `subprocess`'s, a descriptor or file to relay, or None for the caller's own.
Stream = int | HasFileno | None

_NAMES: Final = ("stdin", "stdout", "stderr")


class _ByDefault(int):
    """PIPE where the caller said nothing: with a terminal there are no pipes to ask for."""

    def __repr__(self) -> str:
        return "PIPE"


#: What a stream is unless the caller says otherwise.
BY_DEFAULT: Final = _ByDefault(subprocess.PIPE)

_PIPE, _DEVNULL, _STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT


class _Terminal(io.FileIO):
    """The host's side of a pty: that no program holds the other any more is its end, not an error."""

    def readinto(self, buffer: Any, /) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            if error.errno == errno.EIO:
                return 0
            raise

    def readall(self) -> bytes:
        parts, buffer = [], bytearray(io.DEFAULT_BUFFER_SIZE)
        while count := self.readinto(buffer):
            parts.append(bytes(buffer[:count]))
        return b"".join(parts)


class Stdio:
    """The three streams of one program. `guest` is what to start it with; then `passed`, and in the end `close`."""

    def __init__(self) -> None:
        self.guest: tuple[int, int, int] = (-1, -1, -1)
        self.relays: Relays | None = None
        self.master: int | None = None
        self._raw: list[io.FileIO | None] = [None, None, None]
        self._given = ExitStack()  # what the guest holds: to be closed here once it does
        self._to_relay: list[tuple[Callable[[Relays], None], tuple[int, ...]]] = []  # and the descriptors each takes over

    @classmethod
    def pipes(cls, stdin: Stream, stdout: Stream, stderr: Stream, listeners: Listeners) -> Stdio:
        """Streams as asked for. `ValueError` for what cannot be."""
        if stderr == _STDOUT and listeners[1] is not None:
            raise ValueError("on_stderr has nothing to listen to with stderr=STDOUT")
        made = cls()
        try:
            first = made._input(stdin)
            second = made._output(1, stdout, listeners[0])
            third = second if stderr == _STDOUT else made._output(2, stderr, listeners[1])
        except BaseException:
            made.close()
            raise
        made.guest = (first, second, third)
        return made

    @classmethod
    def terminal(cls, master: int, slave: int, listener: Callable[[bytes], object] | None) -> Stdio:
        """A pty's master for the host and its other side for the guest; takes both."""
        made = cls()
        made.guest = (slave, slave, slave)
        made._given.callback(os.close, slave)
        made.master = master
        os.set_blocking(master, True)  # the supervisor opens without waiting
        made._raw[0] = _Terminal(os.dup(master), "wb")
        if listener is None:
            made._raw[1] = _Terminal(os.dup(master), "rb")
        else:
            made._listen(os.dup(master), listener)
        return made

    def passed(self) -> None:
        """The program holds its ends: close these, and start the relays."""
        self._given.close()
        if self._to_relay:
            self.relays = Relays()
            for start, _ in self._to_relay:
                start(self.relays)
            self._to_relay.clear()

    def files(self, *, text: bool) -> tuple[IO[Any] | None, IO[Any] | None, IO[Any] | None]:
        """The host's ends as files, as `subprocess` has them: text is UTF-8 with universal newlines, written line by line."""
        stdin, stdout, stderr = self._raw
        self._raw = [None, None, None]
        writer = None if stdin is None else io.BufferedWriter(stdin)
        readers = [None if raw is None else io.BufferedReader(raw) for raw in (stdout, stderr)]
        if not text:
            return writer, readers[0], readers[1]
        as_text = [None if reader is None else io.TextIOWrapper(reader, "utf-8", "replace") for reader in readers]
        lines = None if writer is None else io.TextIOWrapper(writer, "utf-8", newline="\n", line_buffering=True)
        return lines, as_text[0], as_text[1]

    def close(self) -> None:
        """Close everything that is still held; relays that run are ended first."""
        self._given.close()
        if self.relays is not None:
            self.relays.finish()
        for fd in [fd for _, fds in self._to_relay for fd in fds]:
            os.close(fd)
        self._to_relay.clear()
        for raw in self._raw:
            if raw is not None:
                raw.close()
        self.close_master()

    def close_master(self) -> None:
        """Give back the pty."""
        master, self.master = self.master, None
        if master is not None:
            os.close(master)

    def _input(self, asked: Stream) -> int:
        if asked == _STDOUT:
            raise ValueError("stdin cannot be STDOUT")
        if asked == _DEVNULL:
            return self._null(os.O_RDONLY)
        source = -1 if asked == _PIPE else os.dup(_descriptor(asked, 0))
        reader, writer = guest_pipe()
        self._given.callback(os.close, reader)
        if source < 0:
            self._raw[0] = io.FileIO(writer, "wb")
            return reader
        self._to_relay.append((lambda relays: relays.input(source, writer), (source, writer)))
        return reader

    def _output(self, number: int, asked: Stream, listener: Callable[[bytes], object] | None) -> int:
        if asked == _STDOUT:
            raise ValueError("only stderr can be STDOUT")
        if listener is not None and asked != _PIPE:
            raise ValueError("a stream that is listened to must be PIPE, which is the default")
        if asked == _DEVNULL:
            return self._null(os.O_WRONLY)
        sink = -1 if asked == _PIPE else os.dup(_descriptor(asked, number))
        reader, writer = guest_pipe()
        self._given.callback(os.close, writer)
        if listener is not None:
            self._listen(reader, listener)
        elif sink < 0:
            self._raw[number] = io.FileIO(reader, "rb")
        else:

            def start(relays: Relays) -> None:
                relays.output(reader, lambda data: write_all(sink, data, None), lambda: os.close(sink))

            self._to_relay.append((start, (reader, sink)))
        return writer

    def _listen(self, source: int, listener: Callable[[bytes], object]) -> None:
        def sink(data: bytes) -> bool:
            listener(data)
            return True

        self._to_relay.append((lambda relays: relays.output(source, sink, lambda: listener(b"")), (source,)))

    def _null(self, flags: int) -> int:
        fd = os.open(os.devnull, flags | os.O_CLOEXEC)
        self._given.callback(os.close, fd)
        return fd


def _descriptor(asked: Stream, number: int) -> int:
    if asked is None:
        return number
    fd: Any = asked
    if not isinstance(asked, int):
        if not callable(getattr(asked, "fileno", None)):
            raise TypeError(f"{_NAMES[number]} is {kind(asked)} ({asked!r:.80}), which is {_NO_STREAM}")
        try:
            fd = asked.fileno()
        except OSError as error:  # a file in memory
            raise ValueError(f"{_NAMES[number]}: {asked!r} has no descriptor; on_stdout= and on_stderr= need none") from error
    if not isinstance(fd, int) or isinstance(fd, bool) or fd < 0:
        raise ValueError(f"{_NAMES[number]}: {asked!r} is {_NO_STREAM}")
    return fd


_NO_STREAM: Final = "no stream: PIPE, DEVNULL, STDOUT, None, an open file or its descriptor"
