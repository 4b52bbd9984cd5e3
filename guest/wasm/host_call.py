"""Host functions for WebAssembly guests: one import, which carries messages of the plain protocol to the host service of a VM.

    with define(linker, store, vm._service):
        linker.instantiate(store, module).exports(store)["_start"](store)

Internal, for the WebAssembly guest mode that does not exist yet: until it does, whoever runs a module runs it in this process,
and nothing else that the module imports is judged. To the service such a guest is one like those on its socket, because the
other end of each channel is a connection like any other; only that nobody (process id 0) is the sender of what comes over it.

The import is `callgate.exchange(channel, message, message_bytes, reply, reply_room) -> i32`, each of them an i32. It sends one
message (its JSON, without a length before it), waits for one reply and writes that into the guest's buffer. The guest exports
its `memory`.

- *channel*: 0 to 63, each a connection of its own, opened by the first message on it. One call at a time is the simple way;
  several are told apart by their ids.
- *message*, *message_bytes*: where the message lies. 0 bytes: nothing is sent, the next reply is waited for, of a stream for
  instance. -1: the guest hangs up, which cancels the calls of this channel; the answer is 0.
- *reply*, *reply_room*: where the reply may be written.

The answer is the length of the reply. Where that is more than *reply_room*, nothing was written and the reply stays until it is
asked for with more room. A negative answer is an error, one of WASI's error numbers negated (`BADF` and so on below).
"""

from __future__ import annotations

import socket
import threading
import weakref
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self

from wasmtime import Caller, Func, FuncType, Linker, Memory, Store, ValType

from callgate.bindings.frames import LENGTH_BYTES, MESSAGE_MAX, frame

MODULE: Final = "callgate"
NAME: Final = "exchange"

#: Channels of one guest; each takes two descriptors of this process.
CHANNELS: Final = 64
#: As *message_bytes*: no message, and no more of this channel.
HANG_UP: Final = -1

# WASI's numbers (wasi_snapshot_preview1, errno), which are not Linux's: what the C library and Python of such a guest know.
#: There is no such channel, or nothing was sent on it that could be waited for.
BADF: Final = 8
#: The host service has ended, or whoever runs the guest wants it to stop.
CONNRESET: Final = 15
#: A buffer is not within the memory. Nothing was sent.
FAULT: Final = 21
#: A length is negative.
INVAL: Final = 28
#: The host has no descriptors left.
MFILE: Final = 33
#: The message is longer than 16 MiB.
MSGSIZE: Final = 35
#: The guest exports no `memory`, or one that is shared or has 64-bit addresses, which an i32 does not hold.
NOTSUP: Final = 58

_CHUNK = 1 << 16


class Attaching(Protocol):
    """What a host service is to its guests here: `HostServiceHandle` is one."""

    def attach(self) -> socket.socket:
        """A new connection to the service."""
        ...


class _Channel:
    """The guest's end of one connection. What the guest has no room for is not read, so that the service's limits count it."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._length = 0  # of the reply that comes next, once that is known

    def send(self, body: bytes) -> None:
        with suppress(ConnectionError):  # the service says why before it hangs up, if it does
            self._socket.sendall(frame(body), socket.MSG_NOSIGNAL)

    def next_length(self) -> int:
        """Wait for the next reply and tell how long it is. `ConnectionError` if there will be none."""
        if not self._length:
            self._length = int.from_bytes(self._read(LENGTH_BYTES), "big")
        return self._length

    def take(self) -> bytes:
        """The reply whose length is known."""
        body = self._read(self._length)
        self._length = 0
        return body

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(min(size - len(data), _CHUNK))
            if not more:
                raise ConnectionResetError
            data += more
        return bytes(data)

    def shut_down(self) -> None:
        """End it for both sides, while another thread may be waiting in it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class HostCalls:
    """The channels of the guests in one store. `exchange` is called by the thread that runs them, `close` by any.

    Closing is for the end of a guest, however it ended, and for one that has to stop: it cancels the calls and ends a wait. The
    engine's epoch does not, it is looked at in the guest's own code alone: who interrupts a guest needs both.
    """

    def __init__(self, service: Attaching) -> None:
        self._service = weakref.ref(service)  # wasmtime holds what it calls; a VM nobody else holds should end
        self._lock = threading.RLock()  # re-entrant: a signal handler may close
        self._channels: dict[int, _Channel] = {}
        self._in_use: _Channel | None = None
        self._closed = False

    def exchange(self, caller: Caller, channel: int, message: int, message_bytes: int, reply: int, reply_room: int) -> int:
        """The import. Gives every error as an answer, and raises what interrupts the thread, `KeyboardInterrupt` say."""
        if not 0 <= channel < CHANNELS:
            return -BADF
        if message_bytes == HANG_UP:
            self._drop(channel)
            return 0
        if message_bytes < 0 or reply_room < 0:
            return -INVAL
        if message_bytes > MESSAGE_MAX:
            return -MSGSIZE
        memory = _memory(caller)
        if memory is None:
            return -NOTSUP
        message, reply = message % (1 << 32), reply % (1 << 32)  # addresses have no sign
        size = memory.data_len(caller)
        if message + message_bytes > size or reply + reply_room > size:
            return -FAULT
        used = self._begin(channel, opening=message_bytes > 0)
        if isinstance(used, int):
            return used
        whole = False  # the channel is where a message begins
        try:
            if message_bytes:
                used.send(bytes(memory.read(caller, message, message + message_bytes)))
            length = used.next_length()
            body = used.take() if length <= reply_room else None
            whole = True
        except ConnectionError:
            return -CONNRESET
        finally:
            self._end(channel, whole=whole)
        if body is None:
            return length
        # By the handle, which asks where the memory lies now: it may have grown and moved meanwhile. It never becomes smaller.
        memory.write(caller, body, reply)
        return length

    def close(self) -> None:
        """Hang up on all channels for good; a guest that waits is told `CONNRESET`. Calling it again does nothing."""
        with self._lock:
            self._closed = True
            for number, channel in list(self._channels.items()):
                channel.shut_down()
                if channel is not self._in_use:  # the descriptor of a socket that is waited for must stay what it is
                    self._drop(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _begin(self, number: int, *, opening: bool) -> _Channel | int:
        """The channel, in use from now on, or the answer to give."""
        with self._lock:
            if self._closed:
                return -CONNRESET
            channel = self._channels.get(number)
            if channel is None:
                if not opening:
                    return -BADF
                service = self._service()
                if service is None:
                    return -CONNRESET
                try:
                    channel = _Channel(service.attach())
                except OSError:
                    return -MFILE
                self._channels[number] = channel
            self._in_use = channel
            return channel

    def _end(self, number: int, *, whole: bool) -> None:
        """The channel is no longer in use; it goes if it is at its end, or was left within a message."""
        with self._lock:
            self._in_use = None
            if self._closed or not whole:
                self._drop(number)

    def _drop(self, number: int) -> None:
        with self._lock:
            channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()


def _memory(caller: Caller) -> Memory | None:
    memory = caller.get("memory")
    return memory if isinstance(memory, Memory) and not memory.type(caller).is_64 else None


def define(linker: Linker, store: Store, service: Attaching) -> HostCalls:
    """Give *linker* the import for guests in *store*, which call the bindings of the VM that *service* is of.

    The result is closed when the guest has ended, by a trap as well; at the latest it closes with *store*. It does not keep
    *service* alive. Raises `WasmtimeError` if *linker* has the import already.
    """
    calls = HostCalls(service)
    kind = FuncType([ValType.i32()] * 5, [ValType.i32()])
    linker.define(store, MODULE, NAME, Func(store, kind, calls.exchange, access_caller=True))
    weakref.finalize(store, calls.close)
    return calls
