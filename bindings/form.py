"""What a value may be: a JSON Schema that describes it to others, and the check that holds a guest's value to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

#: A JSON Schema object.
Schema: TypeAlias = dict[str, Any]

#: Takes a JSON value and its place, such as ``a`` or ``items[3]``; gives what the function is called with or raises `Mismatch`.
Check: TypeAlias = Callable[[Any, str], Any]


class Mismatch(TypeError):
    """A value from a guest is not what the binding takes: the message names the place and what belongs there."""


@dataclass(frozen=True, slots=True)
class Form:
    """A schema and the check that enforces it."""

    schema: Schema
    check: Check


# A bool is an int to Python, so it comes first.
_NAMES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"))


def json_type(value: Any) -> str:
    """The name that JSON Schema has for a value's type."""
    if value is None:
        return "null"
    return next((name for kind, name in _NAMES if isinstance(value, kind)), type(value).__name__)


def mismatch(place: str, wanted: str, value: Any) -> Mismatch:
    """The error for a value of a wrong type."""
    return Mismatch(f"{place}: must be {wanted}, not {json_type(value)}")
