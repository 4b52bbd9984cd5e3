"""The requests of the host-service protocol: what a message must hold, and the error for one that does not."""

from __future__ import annotations

from typing import Any, NamedTuple

from callgate.bindings.json_text import JsonError, decode

#: Ids are JSON integers that every language can hold exactly.
_ID_MAX = 1 << 53

_KINDS: dict[str, type] = {"string": str, "array": list, "object": dict}


class RequestError(ValueError):
    """A message that is no request; *number* is its id where that could be read."""

    def __init__(self, number: int | None, text: str) -> None:
        super().__init__(text)
        self.number = number


class Request(NamedTuple):
    """One request: `get` reads its fields."""

    number: int
    kind: str
    fields: dict[str, Any]
    sender: int  # process id on the host of whoever wrote the message, by the kernel's word

    def get(self, name: str, kind: str, default: Any = None) -> Any:
        """A field of JSON type *kind*; `RequestError` if it is another, or missing and there is no default."""
        value = self.fields.get(name, default)
        if not isinstance(value, _KINDS[kind]):
            raise RequestError(self.number, f"a request of kind {self.kind!r} needs {name!r} to be of type {kind}")
        return value


def parse(body: bytes, sender: int) -> Request:
    """The request in a message. `RequestError` if there is none."""
    try:
        fields = decode(body)
    except JsonError as error:
        raise RequestError(None, f"the message is {error}") from None
    if not isinstance(fields, dict):
        raise RequestError(None, "a message must be a JSON object")
    number, kind = fields.get("id"), fields.get("kind")
    if type(number) is not int or not 0 <= number < _ID_MAX:
        raise RequestError(None, "a message needs an id: an integer from 0 to 2^53 - 1")
    if not isinstance(kind, str):
        raise RequestError(number, "a message needs a kind")
    return Request(number, kind, fields, sender)
