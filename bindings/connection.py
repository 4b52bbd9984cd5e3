"""One guest's connection to the host service: whole messages in, replies out, and never more of either than is kept on purpose.

At any time one thread may read: nobody while epoll waits for input (ARMED), the loop's thread or a worker that lingers
(TAKEN). Any thread may send. Everything but the decoder is guarded by the connection's lock.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import threading
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
_SENDING: Final = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
_GONE: Final = select.EPOLLHUP | select.EPOLLERR

#: How long a worker waits for a guest's next request before it looks for other work: struct timeval, 2 ms.
_LINGER: Final = struct.pack("ll", 0, 2000)

#: Replies kept for a slow reader before its further requests, and further items of its streams, have to wait; in bytes.
FULL: Final = 1 << 18
#: Calls of one connection that run or wait; more are not read.
CALLS_MOST: Final = 16
#: Messages up to this many bytes are read without asking for an allowance.
SMALL: Final = 1 << 15


class Connection:
    """Made and served on the loop's thread."""

    def __init__(self, service: HostService, loop: Loop, sock: socket.socket) -> None:
        self._service = service
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._lock = threading.RLock()  # re-entered where a failed send closes
        self._decoder = FrameDecoder()
        self._taken = False
        self._ended = False  # the guest sends no more
        self._waits = False  # for an allowance
        self.closed = False
        self.reserved = 0  # bytes of the service's allowance, for the message that is being read
        self.calls: dict[int, Call] = {}  # guarded by the service
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._drained: list[Callable[[], object]] = []
        # Blocking, for `linger`: whoever must not wait says so with each call.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LINGER)
        loop.watch(self._fd, _READABLE | select.EPOLLONESHOT, self._on_event)

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
                    sent = self._socket.send(data, _SENDING)
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
                sent = self._socket.send(self._out[0], _SENDING)
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
        """Tell epoll what to wait for now. Hang-ups are always told."""
        mask = select.EPOLLOUT if self._out else 0
        if not (self._taken or self._ended or self._waits or self.is_full() or len(self.calls) >= CALLS_MOST):
            mask |= _READABLE
        self._loop.rearm(self._fd, mask | select.EPOLLONESHOT)

    def look_again(self) -> None:
        """A call is over: read on, if that is what reading had to wait for, or hang up after the last."""
        with self._lock:
            if self.closed or self._taken:
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
        return self._ended or len(self.calls) >= CALLS_MOST - 1

    def _on_event(self, mask: int) -> None:
        drained: list[Callable[[], object]] = []
        with self._lock:
            if self.closed:
                return
            if mask & _GONE:
                self.close()
                return
            if mask & select.EPOLLOUT:
                self._flush()
                if not self.is_full():
                    drained, self._drained = self._drained, []
            readable = bool(mask & _READABLE) and not self._taken
            if readable:
                self._taken = True
            elif self._ended and not self.calls and not self._out:
                self.close()
                return
            else:
                self._arm()
        for callback in drained:
            callback()
        if readable:
            for call in self._read():
                self._service.submit(call)

    def linger(self) -> list[Call]:
        """In a worker, when its reply is sent: wait a moment for the guest's next request, and take it straight here.

        What comes back is to be run. Without this each call of a busy guest would pass through the loop's thread.
        """
        with self._lock:
            if self.closed or self._taken or self._ended or self._waits or self._out or self.calls:
                return []
            self._taken = True
            self._arm()
        return self._read(0)

    def _give_back(self) -> None:
        self._taken = False
        if self.closed:
            self._socket.close()
        else:
            self._arm()

    # -- reading -----------------------------------------------------------------------------------------------------------

    def _read(self, flags: int = socket.MSG_DONTWAIT) -> list[Call]:
        """Read what is there and give back the right to read; the calls among the requests."""
        bodies: list[bytes] = []
        sender = 0
        trouble: FrameError | None = None
        try:
            data, ancillary, _, _ = self._socket.recvmsg(
                _LONG_CHUNK if self._decoder.wanted > SMALL else _CHUNK, _ANCILLARY, flags
            )
        except BlockingIOError:
            pass
        except OSError:
            self._ended = True
        else:
            if ancillary and ancillary[0][1] == socket.SCM_CREDENTIALS:
                sender = int.from_bytes(ancillary[0][2][:_INT], sys.byteorder)
            try:
                if data:
                    bodies = self._decoder.feed(data)
                else:
                    self._ended = True
                    if self._decoder.inside:
                        trouble = FrameError("the stream ended within a message")
            except FrameError as error:
                trouble = error
        with self._lock:
            self._ended = self._ended or trouble is not None
            reserved = 0
            if bodies:
                reserved, self.reserved = self.reserved, 0
            wanted = self._decoder.wanted
            if wanted > SMALL and not self.reserved and not self._ended:
                self._waits = not self._service.reserve(self, min(wanted, MESSAGE_MAX))
        calls: list[Call] = []
        for body in bodies:
            call = self._service.receive(self, body, sender, reserved)
            reserved = 0
            if call is not None:
                calls.append(call)
        if trouble is not None:
            self._service.complain(self, str(trouble))
        with self._lock:
            # Before the calls run: a cancellation, or the guest's end, has to be seen meanwhile.
            self._give_back()
            if not self.closed and self._ended and not self.calls and not self._out:
                self._loop.run_soon(self.close)
        return calls

    # -- the end -----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """On the loop's thread: hang up, and abandon the calls."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._loop.forget(self._fd)
            if self._taken:
                self._socket.shutdown(socket.SHUT_RDWR)  # whoever reads closes it
            else:
                self._socket.close()
            self._service.add_unsent(-self._out_bytes)
            self._out.clear()
            self._out_bytes = 0
            reserved, self.reserved = self.reserved, 0
            drained, self._drained = self._drained, []
        self._service.forget(self, reserved)
        for callback in drained:
            callback()
