"""The bodies of replies: for programs that speak the protocol, and for the commands, which only print what they are told."""

from __future__ import annotations

from typing import Any, Protocol

from callgate.bindings.failure import REFUSED, RESULT, Failure
from callgate.bindings.frames import MESSAGE_MAX
from callgate.bindings.json_text import JsonError, encode

_ROOM = 256  # bytes of a message that are not the value


class ResultError(ValueError):
    """A result that cannot be sent."""

    @property
    def failure(self) -> Failure:
        return Failure(RESULT, str(self), "TypeError")


def encoded(value: Any) -> bytes:
    """A result as JSON. `ResultError` if JSON cannot hold it or a message cannot carry it."""
    try:
        text = encode(value)
    except JsonError as error:
        raise ResultError(f"the result cannot be sent: {error}") from None
    if len(text) > MESSAGE_MAX - _ROOM:
        raise ResultError(f"the result cannot be sent: {len(text)} bytes are more than a message holds ({MESSAGE_MAX})")
    return text


class Replies(Protocol):
    """How one call is answered: with one result or failure, or with items and then the end or a failure."""

    def result(self, value: bytes) -> bytes: ...

    def item(self, value: bytes) -> bytes: ...

    def end(self) -> bytes: ...

    def failure(self, failure: Failure) -> bytes: ...


class CallReplies:
    """Replies to a request of the plain protocol, which carry its id."""

    __slots__ = ("_id",)

    def __init__(self, number: int | None) -> None:
        self._id = b"null" if number is None else b"%d" % number

    def result(self, value: bytes) -> bytes:
        return b'{"id":%b,"ok":true,"result":%b}' % (self._id, value)

    def item(self, value: bytes) -> bytes:
        return b'{"id":%b,"ok":true,"item":%b}' % (self._id, value)

    def end(self) -> bytes:
        return b'{"id":%b,"ok":true,"done":true}' % self._id

    def failure(self, failure: Failure) -> bytes:
        return b'{"id":%b,"ok":false,"error":%b}' % (self._id, encode(failure.as_json()))


#: Exit codes of the commands (SPEC section 6 and the shells' custom).
DONE, FAILED, USAGE, NOT_ALLOWED = 0, 1, 2, 126


class CommandReplies:
    """Replies to a command: text for its streams, and in the last one its exit code."""

    __slots__ = ("_id", "_program")

    def __init__(self, number: int | None, program: str) -> None:
        self._id = number
        self._program = program

    def result(self, value: bytes) -> bytes:
        return self.output(b'{"ok": true, "result": ' + value + b"}\n", code=DONE)

    def item(self, value: bytes) -> bytes:
        return self.output(b'{"ok": true, "item": ' + value + b"}\n")

    def end(self) -> bytes:
        return self.output(b'{"ok": true, "done": true}\n', code=DONE)

    def failure(self, failure: Failure) -> bytes:
        if failure.code == REFUSED:
            return self.complaint(failure.message, NOT_ALLOWED)
        kind = "" if failure.type == "BindingError" else f"{failure.type}: "
        return self.complaint(f"{kind}{failure.message}", FAILED)

    def complaint(self, text: str, code: int) -> bytes:
        """One message on standard error, and the end."""
        return encode({"id": self._id, "stderr": f"{self._program}: {text}\n", "exit": code})

    def output(self, text: bytes, *, code: int | None = None) -> bytes:
        """Text for standard output; with *code* it is the last."""
        message: dict[str, Any] = {"id": self._id, "stdout": text.decode()}
        body = encode(message if code is None else {**message, "exit": code})
        if len(body) > MESSAGE_MAX:  # quotes take two bytes inside a string
            return self.failure(ResultError("the result cannot be sent: it is too long for a command's output").failure)
        return body
