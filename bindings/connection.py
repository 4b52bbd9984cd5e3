"""One guest's connection to the host service: whole messages in, replies out, and never more of either than is kept on purpose.

The loop's thread alone reads. Any thread may send. What sending and reading share is guarded by the connection's lock.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from callgate.bindings.frames import MESSAGE_MAX, FrameDecoder, FrameError, frame

if TYPE_CHECKING:
    from callgate.bindings.call import Call
    from callgate.bindings.loop import Loop
    from callgate.bindings.service import HostService

#: Bytes read at once: little for the requests that most are, because the buffer is made anew each time; much in long ones.
_CHUNK, _LONG_CHUNK = 1 << 13, 1 << 18
_INT: Final = struct.calcsize("i")
_ANCILLARY: Final = socket.CMSG_SPACE(3 * _INT)  # struct ucred: pid, uid, gid
_READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP
_GONE: Final = select.EPOLLHUP | select.EPOLLERR

#: Replies kept for a slow reader before its further requests, and further items of its streams, have to wait; in bytes.
FULL: Final = 1 << 18
#: Calls of one connection that run or wait; more are not read.
CALLS_MOST: Final = 16
#: Messages up to this many bytes are read without asking for an allowance.
SMALL: Final = 1 << 15
#: Messages of one connection that are dealt with in a row, and the seconds after which there is no next one: then it is the turn
#: of others. One read may bring a thousand.
IN_A_ROW: Final = 16
_ROW_SECONDS: Final = 0.001


class Connection:
    """Made, read and closed on the loop's thread."""

    def __init__(self, service: HostService, loop: Loop, sock: socket.socket) -> None:
        self._service = service
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._lock = threading.Lock()
        self._decoder = FrameDecoder()
        self._ended = False  # the guest sends no more
        self._waits = False  # for an allowance
        self._sender = 0  # of what the decoder holds
        self.closed = False
        self.reserved = 0  # bytes of the service's allowance, for the message that is being read
        self.calls: dict[int, Call] = {}  # guarded by the service
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._drained: list[Callable[[], object]] = []
        self._mask = _READABLE  # what epoll waits for; hang-ups are always told
        sock.setblocking(False)
        loop.watch(service.party, self._fd, _READABLE, self._on_event)

    # -- sending -----------------------------------------------------------------------------------------------------------

    def send(self, body: bytes) -> None:
        """Send one message, or keep what the socket does not take yet. Nothing happens on a closed connection."""
        data = frame(body)
        with self._lock:
            if self.closed:
                return
            sent = 0
            if not self._out:
                try:
                    sent = self._socket.send(data, socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    pass
                except OSError:
                    self._loop.run_soon(self.close)
                    return
                if sent == len(data):
                    return
            self._out.append(memoryview(data)[sent:])
            self._out_bytes += len(data) - sent
            self._service.add_unsent(len(data) - sent)
            self._arm()

    def is_full(self) -> bool:
        """Whether the reader is behind by more than is kept for it."""
        return self._out_bytes > FULL

    def when_drained(self, callback: Callable[[], object]) -> None:
        """Call *callback* once the reader has caught up; at once if it has, or if it is gone."""
        with self._lock:
            if not self.closed and self.is_full():
                self._drained.append(callback)
                return
        callback()

    def _flush(self) -> None:
        flushed = 0
        try:
            while self._out:
                sent = self._socket.send(self._out[0], socket.MSG_NOSIGNAL)
                flushed += sent
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                else:
                    self._out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._loop.run_soon(self.close)
        self._out_bytes -= flushed
        self._service.add_unsent(-flushed)

    # -- waiting -----------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Have epoll wait for what can be dealt with now."""
        while (mask := self._awaited()) != self._mask:
            # Before it is looked once more: a call that ends meanwhile sees that reading waits for it, or is seen itself.
            self._mask = mask
            self._loop.rearm(self._fd, mask)

    def _awaited(self) -> int:
        mask = select.EPOLLOUT if self._out else 0
        if not (self._ended or self._waits or self._out_bytes > FULL or len(self.calls) >= CALLS_MOST):
            mask |= _READABLE
        return mask

    def look_again(self) -> None:
        """A call is over: read on, if that is what reading had to wait for, or hang up after the last."""
        with self._lock:
            if self.closed:
                return
            if self._ended and not self.calls and not self._out:
                self._loop.run_soon(self.close)
            else:
                self._arm()

    def allow(self) -> None:
        """There is an allowance for the message that has begun."""
        with self._lock:
            self._waits = False
        self.look_again()

    @property
    def waits_for_calls(self) -> bool:
        """Whether `look_again` may change something now that a call is over."""
        return self._ended or not self._mask & _READABLE

    def _on_event(self, mask: int) -> None:
        if mask & _GONE:
            self.close()
            return
        if mask & select.EPOLLOUT:
            drained: list[Callable[[], object]] = []
            with self._lock:
                self._flush()
                if not self.is_full():
                    drained, self._drained = self._drained, []
                self._arm()
            for callback in drained:
                callback()
            self.look_again()
        if (mask & _READABLE or self._decoder.more) and not self.closed:
            try:
                self._read()
            except BaseException:  # a defect here: the guest hears of its end instead of waiting for ever
                self.close()
                raise

    # -- reading -----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        if self._decoder.more:  # first what was read already: more is read only when that is answered
            if not self.is_full():
                self._answer(None)
            return
        size = _LONG_CHUNK if self._decoder.wanted > SMALL else _CHUNK
        try:
            data, ancillary, _, _ = self._socket.recvmsg(size, _ANCILLARY)
        except BlockingIOError:
            return
        except OSError:
            self._end(None)
            return
        sender = 0
        if ancillary and ancillary[0][1] == socket.SCM_CREDENTIALS:
            sender = int.from_bytes(ancillary[0][2][:_INT], sys.byteorder)
        if not data:
            self._end("the stream ended within a message" if self._decoder.inside else None)
            return
        try:
            body = self._decoder.feed(data)
        except FrameError as error:
            self._end(str(error))
            return
        if (
            body is not None
            and len(body) < SMALL
            and not self._decoder.inside
            and not self._service.gate.is_deputy(sender)
            and self._service.answer_here(self, body)
        ):
            return
        self._sender = sender
        self._answer(body)

    def _answer(self, body: bytes | None) -> None:
        """Answer a message, if there is one, and some of those that the decoder still has; the rest at the next turn."""
        service, decoder = self._service, self._decoder
        calls: list[Call] = []
        trouble: FrameError | None = None
        left, until = IN_A_ROW, time.monotonic() + _ROW_SECONDS
        try:
            if body is None and decoder.more:
                body = decoder.feed()
            while body is not None:
                reserved, self.reserved = self.reserved, 0
                call = service.receive(self, body, self._sender, reserved)
                if call is not None:
                    calls.append(call)
                left -= 1
                if not decoder.more or left == 0 or self.is_full() or time.monotonic() > until:
                    break
                body = decoder.feed()
        except FrameError as error:
            trouble = error
        if trouble is not None:
            self._end(str(trouble))
        elif decoder.more:
            if not self.is_full():  # else sending goes on with it
                self._loop.again(self._fd)
        elif decoder.wanted > SMALL and not self.reserved:
            with self._lock:
                self._waits = not service.reserve(self, min(decoder.wanted, MESSAGE_MAX))
        if self._waits or len(self.calls) >= CALLS_MOST:
            self.look_again()
        for call in calls:
            service.submit(call)

    def _end(self, complaint: str | None) -> None:
        """Read no more: the guest sends nothing, or nothing that is a message."""
        self._ended = True
        if complaint is not None:
            self._service.complain(self, complaint)
        self.look_again()

    # -- the end -----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Hang up, and abandon the calls."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._loop.forget(self._fd)
            self._socket.close()
            self._service.add_unsent(-self._out_bytes)
            self._out.clear()
            self._out_bytes = 0
            reserved, self.reserved = self.reserved, 0
            drained, self._drained = self._drained, []
        self._service.forget(self, reserved)
        for callback in drained:
            callback()
