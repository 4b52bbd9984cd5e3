"""Calls host functions from a Python program in a VM: this one file, with the standard library alone, lies in the VM.

    from callgate_guest import call, bindings

    call("add", 2, 3)                     # 5
    call("math:mul", a=2, b=3)            # 6
    for line in call("lines", count=3):   # a function that streams gives an iterator
        print(line)
    bindings()                            # [{"name": "add", "description": ..., "inputSchema": {...}}, ...]

What the policy refuses raises PermissionError; everything else that goes wrong raises BindingError, whose `code` says what.
May be used from any thread, and after a fork. An iterator that is dropped ends its call.
"""

from __future__ import annotations

import errno
import json
import os
import sys

TYPE_CHECKING = False  # what type checkers take for True, without the time that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from socket import AF_UNIX, SOCK_STREAM, socket
    from typing import Any, Protocol

    class Channel(Protocol):
        """Carries whole messages to the host and back."""

        def send(self, message: bytes) -> None: ...

        def receive(self) -> bytes: ...

        def close(self) -> None: ...

else:
    try:
        from socket import AF_UNIX, SOCK_STREAM, socket
    except ImportError:  # an interpreter for WebAssembly has no sockets of this kind, or none at all
        socket = None

SOCKET = "/run/callgate/host.sock"
MESSAGE_MAX = 16 << 20

__all__ = ["BindingError", "BindingTimeout", "HostImport", "Refused", "UnixSocket", "bindings", "call", "use_transport"]


class BindingError(Exception):
    """A call gave no result.

    *code* is unknown, arguments, failed, result, timeout, cancelled, protocol or busy; *type* names the host's error.
    """

    def __init__(self, code: str, kind: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.type = kind


class BindingTimeout(BindingError, TimeoutError):
    """The host function took too long."""


class Refused(PermissionError):
    """The policy refused the call; the function was not reached."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.EACCES, message)

    def __str__(self) -> str:
        return str(self.strerror)


class UnixSocket:
    """A channel to the host: whole messages both ways. `use_transport` takes any class with these methods."""

    def __init__(self) -> None:
        self._rest = b""
        self._socket = socket(AF_UNIX, SOCK_STREAM)
        try:
            self._socket.connect(SOCKET)
        except OSError:
            self._socket.close()
            raise

    def send(self, message: bytes) -> None:
        # By send(2) and not sendmsg(2): the kernel then tells the host which process wrote.
        data = len(message).to_bytes(4, "big") + message
        sent = self._socket.send(data)
        if sent < len(data):
            self._socket.sendall(data[sent:])

    def receive(self) -> bytes:
        data = self._rest or self._socket.recv(8192)
        while len(data) < 4:
            data += self._more(4 - len(data))
        end = 4 + int.from_bytes(data[:4], "big")
        if len(data) == end:  # the usual case: one message, whole
            self._rest = b""
            return data[4:]
        parts = [data]
        missing = end - len(data)
        while missing > 0:
            parts.append(self._more(missing))
            missing -= len(parts[-1])
        data = b"".join(parts)
        self._rest = data[end:]  # of a stream, what came along
        return data[4:end]

    def _more(self, size: int) -> bytes:
        data = self._socket.recv(min(size, 1 << 20))
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the host service ended")
        return data

    def close(self) -> None:
        self._socket.close()


_numbers = list(range(63, -1, -1))  # of channels that are free; pop and append are one step each


class HostImport:
    """A channel to the host for interpreters built for WebAssembly, over the import `callgate.exchange` of theirs.

    Python cannot declare an import, an extension module that is linked into the interpreter can: `_callgate`, with one function
    `exchange(channel, message)`. It sends *message* on a channel (0 to 63, opened when it is first used), waits for one reply and
    returns it, bytes both; b"" sends nothing and waits for the next reply, None hangs up and returns b"". `OSError` says what the
    host could not do.
    """

    _open = False

    def __init__(self) -> None:
        try:
            from _callgate import exchange  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise OSError(errno.ENOSYS, "no way to the host: neither Unix sockets nor the module _callgate are here") from None
        try:
            self._number = _numbers.pop()
        except IndexError:
            raise OSError(errno.EMFILE, "too many calls of host functions at once") from None
        self._exchange = exchange
        self._reply: bytes | None = None
        self._open = True

    def send(self, message: bytes) -> None:
        self._reply = self._exchange(self._number, message)

    def receive(self) -> bytes:
        reply, self._reply = self._reply, None
        return self._exchange(self._number, b"") if reply is None else reply

    def close(self) -> None:
        if self._open:
            self._open = False
            self._exchange(self._number, None)
            _numbers.append(self._number)

    __del__ = close  # a stream that was never begun has nobody else to close its channel


def call(name: str, /, *arguments: Any, **named: Any) -> Any:
    """The result of a host function, or an iterator over its results if it streams."""
    request = '{"id":1,"kind":"call","name":' + _encode(name)
    if arguments:
        request += ',"positional":' + _encode(arguments)
    if named:
        request += ',"arguments":' + _encode(named)
    return _ask(request + "}")


def bindings() -> list[dict[str, Any]]:
    """What may be called: of each binding its name, description and JSON Schema (inputSchema)."""
    listed: list[dict[str, Any]] = _ask('{"id":1,"kind":"list"}')
    return listed


def use_transport(transport: Callable[[], Channel]) -> None:
    """Reach the host by other means than the socket: *transport* makes channels with the methods of `UnixSocket`.

    Where there are no Unix sockets it is `HostImport` from the start.
    """
    global _transport
    _transport = transport
    _forget()


# json makes its encoder anew for each call with options, which takes longer than a small message does: made once here.
# Arguments: markers, default, strings, indent, separators, sort_keys, skipkeys, allow_nan.
_make = getattr(json.encoder, "c_make_encoder", None)
_plain = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_text = json.encoder.encode_basestring_ascii
_pieces: Any = None if _make is None else _make(None, _plain.default, _text, None, ":", ",", False, False, False)
_decode = json.JSONDecoder().raw_decode


def _encode(value: Any) -> str:
    return _plain.encode(value) if _pieces is None else "".join(_pieces(value, 0))


_transport: Callable[[], Channel] = HostImport if socket is None or sys.platform == "wasi" else UnixSocket
_idle: list[Channel] = []  # channels without a call; pop and append are one step each, whatever other threads do
_MOST_IDLE = 16


def _forget() -> None:
    """Also after a fork: the channels are the parent's."""
    while _idle:
        _idle.pop().close()


if hasattr(os, "register_at_fork"):  # where there is no fork, there is nothing to forget
    os.register_at_fork(after_in_child=_forget)


def _ask(request: str) -> Any:
    message = request.encode()
    if len(message) > MESSAGE_MAX:
        raise BindingError("arguments", "ValueError", f"the arguments are longer than a message may be ({MESSAGE_MAX} bytes)")
    try:
        channel = _idle.pop()
    except IndexError:
        channel = _transport()
    try:
        try:  # noqa: SIM105 - a context manager takes longer than all the rest here
            channel.send(message)
        except BrokenPipeError:  # the host says why, or it is gone
            pass
        reply: dict[str, Any] = _decode(channel.receive().decode())[0]
        if "item" in reply:
            return _items(channel, reply)
    except BaseException:
        # Somewhere within a message: nobody else can go on here. To the host it is the end of the call.
        channel.close()
        raise
    _put_back(channel, reply)
    if "result" in reply:
        return reply["result"]
    return iter(()) if reply.get("done") else _result(reply)


def _items(channel: Channel, reply: dict[str, Any]) -> Iterator[Any]:
    over = False
    try:
        while "item" in reply:
            yield reply["item"]
            reply = _decode(channel.receive().decode())[0]
        over = True
    finally:
        if over:
            _put_back(channel, reply)
        else:
            channel.close()
    if not reply.get("done"):
        _result(reply)


def _put_back(channel: Channel, reply: dict[str, Any]) -> None:
    if reply.get("id") == 1 and len(_idle) < _MOST_IDLE:
        _idle.append(channel)
    else:
        channel.close()


def _result(reply: dict[str, Any]) -> Any:
    if reply.get("ok"):
        return reply["result"]
    error = reply["error"]
    if error["code"] == "EACCES":
        raise Refused(error["message"])
    kind = BindingTimeout if error["code"] == "timeout" else BindingError
    raise kind(error["code"], error["type"], error["message"])
