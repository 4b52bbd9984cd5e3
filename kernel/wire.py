"""Fixed-width little-endian fields and length-prefixed bytes: the alphabet of all that the supervisor reads or writes.

The format is the one described at the top of `native/protocol.h`. Reading is strict: running past the end, a count the
remaining bytes cannot hold, an unknown enumeration value and bytes left over are each a `ProtocolError`, and nothing else is
ever raised.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum, IntFlag
from typing import Any, ClassVar, NamedTuple, Self


class ProtocolError(Exception):
    """A message does not follow `native/protocol.h`: the other end is broken, or is not a supervisor of this version."""


class Reader:
    """A position in one message."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._position

    def take(self, length: int) -> bytes:
        """The next *length* bytes."""
        if length > self.left:
            raise ProtocolError(f"{length} bytes wanted at offset {self._position} of a message of {len(self._data)}")
        start = self._position
        self._position = start + length
        return self._data[start : self._position]

    def finish(self) -> None:
        """Check that the whole message was read."""
        if self.left:
            raise ProtocolError(f"{self.left} bytes left over in a message of {len(self._data)}")


class Field(NamedTuple):
    """How one value is written to a list of parts and read back."""

    write: Callable[[list[bytes], Any], None]
    read: Callable[[Reader], Any]


def _integer(form: str) -> Field:
    packer = struct.Struct(form)

    def write(parts: list[bytes], value: int) -> None:
        try:
            parts.append(packer.pack(value))
        except struct.error as error:
            raise ProtocolError(f"{value!r} does not fit its field: {error}") from None

    def read(reader: Reader) -> Any:
        return packer.unpack(reader.take(packer.size))[0]

    return Field(write, read)


U32 = _integer("<I")
I32 = _integer("<i")
U64 = _integer("<Q")


def _write_bytes(parts: list[bytes], value: bytes) -> None:
    U32.write(parts, len(value))
    parts.append(value)


def _read_bytes(reader: Reader) -> bytes:
    return reader.take(U32.read(reader))


BYTES = Field(_write_bytes, _read_bytes)


def _read_bool(reader: Reader) -> bool:
    value = U32.read(reader)
    if value > 1:
        raise ProtocolError(f"{value} where 0 or 1 was expected")
    return bool(value)


BOOL = Field(U32.write, _read_bool)


def member(kind: type[IntEnum]) -> Field:
    """A `u32` that must be a value of the enumeration *kind*."""

    def read(reader: Reader) -> IntEnum:
        value = U32.read(reader)
        try:
            return kind(value)
        except ValueError:
            raise ProtocolError(f"{value} is not a {kind.__name__}") from None

    return Field(U32.write, read)


def flags(kind: type[IntFlag], *, lenient: bool = False) -> Field:
    """A `u32` of bits of *kind*; unknown bits are an error, or are dropped where *lenient* (what a newer end may announce)."""
    known = sum(kind)

    def read(reader: Reader) -> IntFlag:
        value = U32.read(reader)
        if value & ~known and not lenient:
            raise ProtocolError(f"{value:#x} has bits that are not a {kind.__name__}")
        return kind(value & known)

    return Field(U32.write, read)


def several(item: Field) -> Field:
    """A count and that many *item*s, as a tuple."""

    def write(parts: list[bytes], values: tuple[Any, ...]) -> None:
        U32.write(parts, len(values))
        for value in values:
            item.write(parts, value)

    def read(reader: Reader) -> tuple[Any, ...]:
        count = U32.read(reader)
        # Every element takes at least four bytes, so an absurd count is refused before anything is allocated for it.
        if count > reader.left // 4:
            raise ProtocolError(f"a list of {count} elements in the last {reader.left} bytes of a message")
        return tuple(item.read(reader) for _ in range(count))

    return Field(write, read)


def record(kind: type[Record]) -> Field:
    """Another record, its fields one after the other."""
    return Field(lambda parts, value: kind.write(value, parts), kind.read)


def optional(item: Field) -> Field:
    """0, or 1 and an *item*."""

    def write(parts: list[bytes], value: Any) -> None:
        BOOL.write(parts, value is not None)
        if value is not None:
            item.write(parts, value)

    def read(reader: Reader) -> Any:
        return item.read(reader) if _read_bool(reader) else None

    return Field(write, read)


class Record:
    """Base of a dataclass whose fields travel in order, each in the form `LAYOUT` gives it."""

    __slots__ = ()

    LAYOUT: ClassVar[tuple[Field, ...]]
    __match_args__: ClassVar[tuple[str, ...]] = ()  # filled in by dataclass: the fields in order

    def write(self, parts: list[bytes]) -> None:
        """Append this record's wire form to *parts*."""
        for name, form in zip(self.__match_args__, self.LAYOUT, strict=True):
            form.write(parts, getattr(self, name))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Take one record off *reader*."""
        return cls(*[form.read(reader) for form in cls.LAYOUT])

    def encode(self) -> bytes:
        """This record alone, as a whole message."""
        parts: list[bytes] = []
        self.write(parts)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """A record that is the whole of *data*."""
        reader = Reader(data)
        value = cls.read(reader)
        reader.finish()
        return value
