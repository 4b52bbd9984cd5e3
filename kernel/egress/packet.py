"""DNS messages as far as a stub's resolver needs them: queries read strictly, answers of a few addresses written.

RFC 1035 for the form, RFC 6891 for EDNS, RFC 9619 for one question per query. A query comes from a guest, so that every length is
checked and nothing is followed: a name in a question has no use for compression, and is refused with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

A, PTR, AAAA, OPT, ANY = 1, 12, 28, 41, 255
IN = 1
QUERY: Final = 0

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16

#: What this end takes in one datagram; larger than any query there is (RFC 9715 recommends it as a limit for answers).
UDP_SIZE: Final = 1232

_HEADER = struct.Struct("!HHHHHH")
_QUESTION = struct.Struct("!HH")
_RECORD = struct.Struct("!HHIH")
_NAME_MAX = 255  # bytes on the wire, lengths and the root's included
_LABEL_MAX = 63
_ADDITIONAL_MAX = 16  # OPT, and perhaps a signature; nobody sends more

_QR, _RD, _RA, _CD = 0x8000, 0x0100, 0x0080, 0x0010
_OPCODE = 0x7800


class Malformed(Exception):
    """The bytes are not a query. ``answer`` is what to send back, or None where nothing is owed."""

    def __init__(self, reason: str, answer: bytes | None) -> None:
        super().__init__(reason)
        self.answer = answer


class Query(NamedTuple):
    """One question. ``labels`` are as they came; ``question`` is the section's own bytes, which the answer repeats."""

    number: int
    flags: int
    labels: tuple[bytes, ...]
    kind: int
    class_: int
    question: bytes
    edns: int | None  # the version asked for, or None without EDNS

    @property
    def opcode(self) -> int:
        """What kind of request it is; `QUERY` is the only one that has an answer here."""
        return (self.flags & _OPCODE) >> 11

    @property
    def host(self) -> str | None:
        """The name as a host name in lower case, or None for one that no host can have (and the root)."""
        text = b".".join(self.labels)
        if not self.labels or not all(label.translate(None, _HOST_BYTES) == b"" for label in self.labels):
            return None
        return text.decode("ascii").lower()


# A dot inside a label would make two different names one text; the other bytes mean something in a pattern or a URL.
_HOST_BYTES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"


class Address(NamedTuple):
    """One record of an answer: 4 bytes of an IPv4 address or 16 of an IPv6 one, good for *ttl* seconds."""

    packed: bytes
    ttl: int


def parse(data: bytes) -> Query:
    """The query that *data* is; `Malformed` for anything else."""
    if len(data) < _HEADER.size:
        raise Malformed("shorter than a header", None)
    number, flags, questions, answers, authorities, additional = _HEADER.unpack_from(data)
    if flags & _QR:
        raise Malformed("a response", None)
    try:
        if (flags & _OPCODE) >> 11 != QUERY:
            # Other requests have sections of their own; what is said of them needs none.
            return Query(number, flags, (), 0, 0, b"", None)
        _require(questions == 1 and not answers and not authorities and additional <= _ADDITIONAL_MAX, "not one question alone")
        labels, position = _labels(data, _HEADER.size)
        kind, class_ = _take(_QUESTION, data, position)
        position += _QUESTION.size
        question = data[_HEADER.size : position]
        edns = None
        for _ in range(additional):
            name_end = _past_name(data, position)
            record_kind, _, extended, length = _take(_RECORD, data, name_end)
            if record_kind == OPT:
                _require(edns is None and name_end == position + 1, "a second OPT record, or one with a name")
                edns = extended >> 16 & 0xFF
            position = name_end + _RECORD.size + length
            _require(position <= len(data), "a record past the end")
        _require(position == len(data), "bytes left over")
    except _Broken as error:
        head = _HEADER.pack(number, _answer_flags(flags, FORMERR), 0, 0, 0, 0)
        raise Malformed(str(error), head) from None
    return Query(number, flags, labels, kind, class_, question, edns)


def answer(query: Query, code: int, addresses: Iterable[Address] = ()) -> bytes:
    """The answer to *query*: a response code, and the addresses that the question's name has. Fits the smallest datagram."""
    records = [
        # The name is the question's, by a pointer to it.
        b"\xc0\x0c" + _RECORD.pack(A if len(each.packed) == 4 else AAAA, IN, each.ttl, len(each.packed)) + each.packed
        for each in addresses
    ]
    option = []
    if query.edns is not None:
        # The upper bits of the code travel in the OPT record; its class field is the size that is taken here.
        option.append(b"\0" + _RECORD.pack(OPT, UDP_SIZE, code >> 4 << 24, 0))
    counts = (1 if query.question else 0, len(records), 0, len(option))
    head = _HEADER.pack(query.number, _answer_flags(query.flags, code), *counts)
    return b"".join((head, query.question, *records, *option))


class _Broken(Exception):
    pass


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Broken(otherwise)


def _answer_flags(flags: int, code: int) -> int:
    return _QR | flags & (_OPCODE | _RD | _CD) | _RA | code & 0xF


def _take(form: struct.Struct, data: bytes, position: int) -> tuple[int, ...]:
    _require(position + form.size <= len(data), "cut short")
    return form.unpack_from(data, position)


def _labels(data: bytes, position: int) -> tuple[tuple[bytes, ...], int]:
    start = position
    labels: list[bytes] = []
    while True:
        _require(position < len(data), "a name past the end")
        length = data[position]
        position += 1
        _require(length <= _LABEL_MAX, "a compressed name, or a label that is too long")
        _require(position + length - start <= _NAME_MAX, "a name that is too long")
        if length == 0:
            return tuple(labels), position
        _require(position + length <= len(data), "a label past the end")
        labels.append(data[position : position + length])
        position += length


def _past_name(data: bytes, position: int) -> int:
    """Where the name of a record ends that is of no interest; it may be compressed, and is not followed."""
    while position < len(data):
        length = data[position]
        if length >= 0xC0:
            return position + 2
        if length > _LABEL_MAX:
            break
        position += 1 + length
        if length == 0:
            return position
    raise _Broken("a name past the end")
