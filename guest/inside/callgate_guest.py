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

import errno
import json
import os
import socket
import threading

SOCKET = "/run/callgate/host.sock"
MESSAGE_MAX = 16 << 20

__all__ = ["BindingError", "BindingTimeout", "Refused", "UnixSocket", "bindings", "call", "use_transport"]


class BindingError(Exception):
    """A call gave no result. *code*: unknown, arguments, failed, result, timeout, cancelled, protocol or busy; *type*: the error's on the host."""

    def __init__(self, code, type, message):
        super().__init__(message)
        self.code = code
        self.type = type


class BindingTimeout(BindingError, TimeoutError):
    """The host function took too long."""


class Refused(PermissionError):
    """The policy refused the call; the function was not reached."""

    def __init__(self, message):
        super().__init__(errno.EACCES, message)

    def __str__(self):
        return self.strerror


class UnixSocket:
    """A channel to the host: whole messages both ways. `use_transport` takes any class with these methods."""

    def __init__(self):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(SOCKET)
        except OSError:
            self._socket.close()
            raise

    def send(self, message):
        # By send(2) and not sendmsg(2): the kernel then tells the host which process wrote.
        self._socket.sendall(len(message).to_bytes(4, "big") + message)

    def receive(self):
        data = self._socket.recv(8192)
        if len(data) > 4 and len(data) - 4 == int.from_bytes(data[:4], "big"):
            return data[4:]
        while len(data) < 4:
            data += self._more(4 - len(data))
        length = int.from_bytes(data[:4], "big")
        parts = [data[4:]]
        missing = length + 4 - len(data)
        if missing < 0 or length > MESSAGE_MAX:
            raise BindingError("protocol", "BindingError", "the host sent what is not one message")
        while missing:
            parts.append(self._more(missing))
            missing -= len(parts[-1])
        return b"".join(parts)

    def _more(self, size):
        data = self._socket.recv(min(size, 1 << 20))
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the host service ended")
        return data

    def close(self):
        self._socket.close()


def call(name, *arguments, **named):
    """The result of a host function, or an iterator over its results if it streams."""
    request = '{"id":1,"kind":"call","name":' + _encode(name)
    if arguments:
        request += ',"positional":' + _encode(arguments)
    if named:
        request += ',"arguments":' + _encode(named)
    return _ask(request + "}")


def bindings():
    """What may be called: of each binding its name, description and JSON Schema (inputSchema)."""
    return _ask('{"id":1,"kind":"list"}')


def use_transport(transport):
    """Reach the host by other means than the socket: *transport* makes channels with the methods of `UnixSocket`.

    For guests that have no sockets, where one function of the embedder carries the messages.
    """
    global _transport
    _transport = transport
    with _lock:
        _idle.clear()


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode
if json.encoder.c_make_encoder is not None:
    # The same, made once: json makes it anew for each call, which takes longer than a small message.
    _pieces = json.encoder.c_make_encoder(
        None, json.JSONEncoder().default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False
    )

    def _encode(value):
        return "".join(_pieces(value, 0))


_transport = UnixSocket
_lock = threading.Lock()
_idle = []  # channels without a call
_MOST_IDLE = 16


def _forget():
    """After a fork: the channels are the parent's."""
    global _lock
    _lock = threading.Lock()
    while _idle:
        _idle.pop().close()


os.register_at_fork(after_in_child=_forget)


def _ask(request):
    message = request.encode()
    if len(message) > MESSAGE_MAX:
        raise BindingError("arguments", "ValueError", "the arguments are longer than a message may be (%d bytes)" % MESSAGE_MAX)
    with _lock:
        channel = _idle.pop() if _idle else None
    if channel is None:
        channel = _transport()
    try:
        try:
            channel.send(message)
        except BrokenPipeError:
            pass  # the host says why, or it is gone
        reply = _decode(channel.receive().decode())[0]
        if "item" in reply:
            return _items(channel, reply)
    except BaseException:
        # Somewhere within a message: nobody else can go on here. To the host it is the end of the call.
        channel.close()
        raise
    _put_back(channel, reply)
    if reply.get("done"):
        return iter(())
    return _result(reply)


def _items(channel, reply):
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


def _put_back(channel, reply):
    if reply.get("id") == 1:
        with _lock:
            if len(_idle) < _MOST_IDLE:
                _idle.append(channel)
                return
    channel.close()


def _result(reply):
    if reply.get("ok"):
        return reply["result"]
    error = reply["error"]
    if error["code"] == "EACCES":
        raise Refused(error["message"])
    kind = BindingTimeout if error["code"] == "timeout" else BindingError
    raise kind(error["code"], error["type"], error["message"])
