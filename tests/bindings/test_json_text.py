"""JSON at the border: what is accepted is what the grammar says, and every refusal names its reason."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.bindings.json_text import COMMAS_MAX, CONTAINERS_MAX, DEPTH_MAX, JsonError, decode, encode

text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


@given(value=values)
def test_what_is_encoded_is_decoded_to_the_same(value: Any) -> None:
    assert decode(encode(value)) == value
    assert json.loads(encode(value)) == value


@given(value=values)
def test_other_writers_spellings_are_read(value: Any) -> None:
    assert decode(json.dumps(value, indent=2).encode()) == value
    assert decode(f" {json.dumps(value)}\n".encode()) == value


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_json_error(data: bytes) -> None:
    with contextlib.suppress(JsonError):
        decode(data)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"1 2", "not JSON: Extra data"),
        (b'{"a": NaN}', "NaN is not a JSON value"),
        (b"[Infinity]", "Infinity is not a JSON value"),
        (b"[-Infinity]", "-Infinity is not a JSON value"),
        (b'"\xff"', "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (rb'["\ud800"]', "half a character"),
        (rb'{"\uDFFF": 1}', "half a character"),
        (b"1" * 5000, "too many digits"),
        (nested(DEPTH_MAX + 1), f"nested more than {DEPTH_MAX} deep"),
        (nested(100_000), f"nested more than {DEPTH_MAX} deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, f"nested more than {DEPTH_MAX} deep"),
        (b"[" * 100_000, f"nested more than {DEPTH_MAX} deep"),
    ],
)
def test_what_is_no_json_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(JsonError, match=reason):
        decode(data)


def test_as_deep_as_allowed_is_read_and_pairs_of_halves_are_characters() -> None:
    decode(nested(DEPTH_MAX))
    assert decode(rb'"\ud83d\ude00"') == "\N{GRINNING FACE}"
    assert decode(b"[" + b"[]," * 10_000 + b"[]]") == [[]] * 10_001


def test_what_would_take_long_to_decode_is_refused_before_it_is() -> None:
    """The interpreter's lock is held meanwhile: 16 MiB of empty arrays stopped every thread of the host for seconds."""
    for item in (b"[],", b"{},", b'{"":[]},', b"[[]],", b"1,", b'"",', b'"\\\\",', b'"\\"",'):
        began = time.process_time()
        with pytest.raises(JsonError, match=f"more than {CONTAINERS_MAX} arrays and objects, or more than {COMMAS_MAX} values"):
            decode(b"[" + item * ((15 << 20) // len(item)) + b"0]")
        assert time.process_time() - began < 1.0


def test_what_stands_in_strings_does_not_count() -> None:
    text = 'a,b[c]{d}"\\\n' * (COMMAS_MAX + 1)
    assert decode(json.dumps([text, 1]).encode()) == [text, 1]
    assert decode(b"[" + b"[]," * (CONTAINERS_MAX - 2) + b"[]]") == [[]] * (CONTAINERS_MAX - 1)
    assert decode(b"[" + b"1," * COMMAS_MAX + b"1]") == [1] * (COMMAS_MAX + 1)


@dataclass
class Point:
    x: int
    y: int


def test_dataclasses_are_objects() -> None:
    assert encode([Point(1, 2)]) == b'[{"x":1,"y":2}]'


def holding_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), b"bytes", float("nan"), [float("inf")], {(1,): 2}, "\ud800", holding_itself()]
)
def test_what_json_cannot_hold_is_an_error(value: Any) -> None:
    with pytest.raises(JsonError):
        encode(value)
