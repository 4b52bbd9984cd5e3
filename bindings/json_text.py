"""JSON as it crosses the border: strict on what a guest sends, and only JSON in what it gets back."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from json import encoder
from typing import Any, NoReturn

#: How deep arrays and objects of a message may lie in each other; Python's own limit would depend on who calls.
DEPTH_MAX = 128

#: Arrays and objects, and commas, that a message may hold outside its strings. The decoder runs under the interpreter's lock, and
#: an empty array costs it a hundred times what a character of a text does: 16 MiB of them would stop the host for seconds.
CONTAINERS_MAX = 1 << 17
COMMAS_MAX = 1 << 20
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)

#: A \u escape of half a character: valid JSON, but text that cannot be written out again.
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonError(ValueError):
    """Bytes that are not the JSON that is accepted here, or a value that JSON cannot hold; the message says which and why."""


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The value that *data* (UTF-8) spells. `JsonError` for anything else, NaN and the infinities included."""
    body = data if type(data) is bytes else bytes(data)
    if _holds_too_many(body):
        raise JsonError(f"more than {CONTAINERS_MAX} arrays and objects, or more than {COMMAS_MAX} values")
    try:
        text = body.decode()
        try:
            value, end = _SCAN(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            value = _DECODER.decode(text)  # white space around it, or an error that it words
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"not JSON: {error.msg} (character {error.pos})") from None
    except RecursionError:
        raise JsonError(f"nested more than {DEPTH_MAX} deep") from None
    except JsonError:
        raise
    except ValueError:  # a number with more digits than int() takes
        raise JsonError("a number with too many digits") from None
    if len(body) > DEPTH_MAX and body.count(b"[") + body.count(b"{") > DEPTH_MAX and _deeper_than(value, DEPTH_MAX):
        raise JsonError(f"nested more than {DEPTH_MAX} deep")
    if b"\\u" in body and _HALF_CHARACTER.search(body) is not None and _holds_half_character(value):
        raise JsonError("an escape that is half a character")
    return value


def encode(value: Any) -> bytes:
    """*value* as JSON in UTF-8; dataclasses become objects. `JsonError` for what JSON cannot hold."""
    try:
        return "".join(_ENCODE(value, 0)).encode()
    except RecursionError:
        raise JsonError("nested too deeply, or holds itself") from None
    except UnicodeEncodeError:
        raise JsonError("text that is not valid Unicode") from None
    except JsonError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise JsonError(str(error)) from None


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise JsonError(f"{type(value).__name__} is not a JSON value")


def _refuse_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not a JSON value")


# json.dumps and json.loads make their machinery anew for each call with options, which costs more than a small message does.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_SCAN: Callable[[str, int], tuple[Any, int]] = getattr(_DECODER, "scan_once")  # noqa: B009 - not in the type stubs


def _make_encode() -> Callable[[Any, int], Any]:
    make = getattr(encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without the C accelerator
        slow = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain)
        return lambda value, _: slow.iterencode(value)
    # Arguments: markers (none: the recursion limit finds a value that holds itself), default, strings, indent, separators,
    # sort_keys, skipkeys, allow_nan.
    made: Callable[[Any, int], Any] = make(None, _plain, encoder.encode_basestring, None, ":", ",", False, False, False)
    return made


_ENCODE = _make_encode()


def _holds_too_many(body: bytes) -> bool:
    """Whether decoding *body* would take too long. Cheap for the usual message, and for one that is long because of its texts."""
    if len(body) <= 2 * CONTAINERS_MAX or not _exceeds(body):
        return False
    # Each string takes two quotes. Those behind a backslash are a text's own, or close one whose last character that is.
    if (body.count(b'"') - body.count(b'\\"')) // 2 > COMMAS_MAX:
        return True
    return _exceeds(_STRING.sub(b"", body))


def _exceeds(body: bytes) -> bool:
    return body.count(b"[") + body.count(b"{") > CONTAINERS_MAX or body.count(b",") > COMMAS_MAX


def _deeper_than(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += [child for child in item.values() if isinstance(child, dict | list)]
            elif isinstance(item, list):
                inner += [child for child in item if isinstance(child, dict | list)]
        if not inner:
            return False
        level = inner
    return True


def _holds_half_character(value: Any) -> bool:
    try:
        encode(value)
    except JsonError:
        return True
    return False
