"""The resolver of one VM: answers what arrives on the sockets that the launch made at 127.0.0.53, port 53, in its network."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from callgate.kernel.egress import packet
from callgate.kernel.egress.loop import Call, Loop
from callgate.kernel.egress.packet import Malformed
from callgate.kernel.egress.zone import Asker, Zone

#: TCP connections of one VM; the oldest goes when there is one more.
STREAMS_MAX: Final = 32
#: Seconds without a whole query after which a connection is closed, and queries of one connection that wait for their answers.
STREAM_IDLE_SECONDS: Final = 10.0
STREAM_WAITING_MAX: Final = 64

#: How much of the thread's processor time one VM may take on average, and how many seconds of it in a row: a guest that floods,
#: or asks what takes long to judge, waits, and nobody else does.
_SHARE: Final = 0.25
_BURST_SECONDS: Final = 0.05
#: Packets of one VM, and bytes of one connection, after which the others have their turn.
_IN_A_ROW: Final = 8
_STREAM_CHUNK: Final = 512

_DATAGRAM_MAX: Final = 4096  # more than any query; the rest of a larger one is cut off, which makes it malformed
_STREAM_BUFFER: Final = 16384  # bytes that the kernel keeps for a connection, either way


class Resolver:
    """Serves the names of one VM until it is closed."""

    def __init__(self, loop: Loop, datagrams: socket.socket, streams: socket.socket, make_zone: Callable[[Loop], Zone]) -> None:
        """Start to answer; the sockets stay the caller's, who may close them at any time."""
        self._loop = loop
        self._zone = make_zone(loop)
        self._datagrams, self._listener = datagrams.dup(), streams.dup()
        for sock in (self._datagrams, self._listener):
            sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # passed on to the connections
            self._listener.setsockopt(socket.SOL_SOCKET, option, _STREAM_BUFFER)
        self._streams: dict[_Stream, None] = {}
        self._looks_for_idle = False  # a timer runs: one, because those of streams that are gone would add up
        self._allowance = _BURST_SECONDS
        self._counted = time.monotonic()
        self._paid = 0.0
        self._paused = self._closed = False
        loop.enter(self._open)

    def close(self, *, wait: bool = True) -> None:
        """Stop, and with *wait* do not return before the sockets are closed. Calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._loop.leave(self._end, wait=wait)

    # -- in the loop's thread ----------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._watch(self._datagrams, self._take_datagrams)
        self._watch(self._listener, self._accept)

    def _end(self) -> None:
        self._zone.close()
        for stream in list(self._streams):
            stream.close()
        for sock in (self._datagrams, self._listener):
            if not self._paused:
                self._loop.unwatch(sock)
            sock.close()

    def _watch(self, sock: socket.socket, readable: Call) -> None:
        self._loop.watch(sock, partial(self._at_its_cost, readable))

    def _at_its_cost(self, call: Call) -> None:
        """Do what this VM's guests have caused, and take the time that it takes off their allowance."""
        self._paid = time.thread_time()
        call()
        self._pay()

    def _pay(self) -> None:
        used = time.thread_time()
        self._allowance -= used - self._paid
        self._paid = used

    def _may_go_on(self) -> bool:
        """Whether there is processor time left for a packet; if not, a pause until there is."""
        self._pay()
        now = time.monotonic()
        self._allowance = min(_BURST_SECONDS, self._allowance + (now - self._counted) * _SHARE)
        self._counted = now
        if self._allowance > 0:
            return True
        if not self._paused:
            self._paused = True
            for sock in (self._datagrams, self._listener):
                self._loop.unwatch(sock)
            for stream in self._streams:
                stream.pause()
            self._loop.at(now + (_BURST_SECONDS - self._allowance) / _SHARE, partial(self._at_its_cost, self._resume))
        return False

    def _resume(self) -> None:
        if self._datagrams.fileno() < 0:
            return
        self._paused = False
        self._open()
        for stream in list(self._streams):
            stream.resume()

    def _take_datagrams(self) -> None:
        for _ in range(_IN_A_ROW):
            if not self._may_go_on():
                return
            try:
                data, sender = self._datagrams.recvfrom(_DATAGRAM_MAX)
            except OSError:  # nothing more, or the guest closed the socket that an earlier answer went to
                return
            self._answer(data, Asker("udp", sender[1]), partial(self._send, sender))

    def _send(self, to: tuple[str, int], answer: bytes) -> None:
        # A guest that does not read what it asked for does not get it.
        with suppress(OSError):
            self._datagrams.sendto(answer, to)

    def _accept(self) -> None:
        for _ in range(_IN_A_ROW):
            if not self._may_go_on():
                return
            try:
                sock, sender = self._listener.accept()
            except OSError:
                return
            if len(self._streams) >= STREAMS_MAX:
                next(iter(self._streams)).close()
            self._streams[_Stream(self, sock, Asker("tcp", sender[1]))] = None
            if not self._looks_for_idle:
                self._close_idle()

    def _close_idle(self) -> None:
        now = time.monotonic()
        for stream in [each for each in self._streams if each.idle_at <= now]:
            stream.close()
        self._looks_for_idle = bool(self._streams)
        if self._looks_for_idle:
            self._loop.at(min(stream.idle_at for stream in self._streams), self._close_idle)

    def _answer(self, data: bytes, asker: Asker, reply: Callable[[bytes], None]) -> None:
        try:
            query = packet.parse(data)
        except Malformed as error:
            if error.answer is not None:
                reply(error.answer)
            return
        self._zone.ask(query, asker, reply)


class _Stream:
    """One TCP connection: queries with their length before them, answered in the order in which the answers are found."""

    def __init__(self, resolver: Resolver, sock: socket.socket, asker: Asker) -> None:
        self._resolver = resolver
        self._sock = sock
        self._asker = asker
        self._buffer = bytearray()
        self._unanswered = 0
        self.idle_at = time.monotonic() + STREAM_IDLE_SECONDS
        sock.setblocking(False)
        self._watched = True
        resolver._watch(sock, self._readable)

    def pause(self) -> None:
        if self._watched:
            self._watched = False
            self._resolver._loop.unwatch(self._sock)

    def resume(self) -> None:
        # First what was read already; more is read only when that is answered, so that a flood fills no memory.
        if self._sock.fileno() >= 0 and not self._resolver._paused:
            self._take_queries()
        if self._sock.fileno() >= 0 and not self._resolver._paused and not self._watched:
            self._watched = True
            self._resolver._watch(self._sock, self._readable)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self.pause()
            self._sock.close()
            self._resolver._streams.pop(self, None)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_STREAM_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._buffer += data
        self._take_queries()

    def _take_queries(self) -> None:
        while len(self._buffer) >= 2 and len(self._buffer) >= (end := 2 + int.from_bytes(self._buffer[:2], "big")):
            if not self._resolver._may_go_on():
                return
            if self._unanswered >= STREAM_WAITING_MAX:
                self.close()
                return
            query = bytes(self._buffer[2:end])
            del self._buffer[:end]
            self.idle_at = time.monotonic() + STREAM_IDLE_SECONDS
            self._unanswered += 1
            self._resolver._answer(query, self._asker, self._reply)
            if self._sock.fileno() < 0:
                return

    def _reply(self, answer: bytes) -> None:
        self._unanswered -= 1
        if self._sock.fileno() < 0:
            return
        framed = len(answer).to_bytes(2, "big") + answer
        try:
            sent = self._sock.send(framed)
        except OSError:
            sent = 0
        if sent < len(framed):
            self.close()  # its other end does not read
