"""DNS messages: read and written as dnspython does it, and any bytes whatever are a query, or refused."""

from __future__ import annotations

import random
import struct

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate.kernel.egress import packet
from callgate.kernel.egress.packet import Address, Malformed, Query

LABEL = st.binary(min_size=1, max_size=63)
NAMES = st.lists(LABEL, max_size=6).filter(lambda labels: sum(len(label) + 1 for label in labels) < 255)
KINDS = st.sampled_from([1, 2, 5, 6, 12, 15, 16, 28, 33, 65, 255])


def wire(
    labels: list[bytes], kind: int = 1, class_: int = 1, number: int = 7, flags: int = 0x0100, tail: bytes = b"", extra: int = 0
) -> bytes:
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return struct.pack("!HHHHHH", number, flags, 1, 0, 0, extra) + name + struct.pack("!HH", kind, class_) + tail


def opt(version: int = 0, name: bytes = b"\0", data: bytes = b"") -> bytes:
    return name + struct.pack("!HHIH", 41, 1232, version << 16, len(data)) + data


# -- against dnspython -------------------------------------------------------------------------------------------------


@given(NAMES, KINDS, st.integers(0, 0xFFFF), st.booleans(), st.sampled_from([None, 0, 1]))
def test_a_query_that_dnspython_wrote_is_read_as_it_was_meant(
    labels: list[bytes], kind: int, number: int, recursive: bool, edns: int | None
) -> None:
    name = dns.name.Name([*labels, b""])
    message = dns.message.make_query(name, dns.rdatatype.RdataType(kind), use_edns=-1 if edns is None else edns)
    message.id = number
    message.flags = dns.flags.RD if recursive else dns.flags.Flag(0)
    query = packet.parse(message.to_wire())
    assert (query.number, query.labels, query.kind, query.class_, query.edns) == (number, tuple(labels), kind, 1, edns)
    assert (query.opcode, bool(query.flags & 0x0100)) == (packet.QUERY, recursive)


@given(
    NAMES,
    st.sampled_from([0, 1, 2, 3, 4, 5]),
    st.lists(st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), max_size=4, unique=True),
    st.booleans(),
)
def test_an_answer_is_read_by_dnspython_as_it_was_meant(labels: list[bytes], code: int, packed: list[bytes], edns: bool) -> None:
    query = packet.parse(wire(labels, tail=opt() if edns else b"", extra=int(edns)))
    message = dns.message.from_wire(packet.answer(query, code, [Address(each, 30) for each in packed]))
    assert (message.id, message.rcode(), message.edns) == (7, code, 0 if edns else -1)
    assert message.flags & dns.flags.QR
    assert message.flags & dns.flags.RA
    assert message.flags & dns.flags.RD
    assert not message.flags & dns.flags.TC
    assert [rrset.name for rrset in message.question] == [dns.name.Name([*labels, b""])]
    found = {rdata.to_wire() for rrset in message.answer for rdata in rrset}
    assert found == set(packed)
    assert {rrset.ttl for rrset in message.answer} <= {30}


@given(
    st.binary(max_size=80)
    | st.builds(lambda labels, tail, n: wire(labels, tail=tail, extra=n), NAMES, st.binary(max_size=30), st.integers(0, 3))
)
@settings(max_examples=400)
@example(wire([b"a"], tail=opt() + opt(), extra=2))
@example(wire([b"a"], tail=opt(name=b"\1a\0"), extra=1))
def test_what_is_taken_for_a_query_is_one_for_dnspython_too(data: bytes) -> None:
    try:
        query = packet.parse(data)
    except Malformed:
        return
    if query.opcode != packet.QUERY:
        return
    try:
        message = dns.message.from_wire(data)
    except dns.message.UnknownTSIGKey:
        return  # a signature, whose key nobody has
    except dns.exception.FormError:
        # Only where dnspython looks into the content of a record that is of no interest here.
        assert data[10:12] != b"\0\0"
        return
    (question,) = message.question
    assert question.name == dns.name.Name([*query.labels, b""])
    assert (question.rdtype, question.rdclass, message.id) == (query.kind, query.class_, query.number)
    assert message.edns == (-1 if query.edns is None else query.edns)


# -- strictness ----------------------------------------------------------------------------------------------------------

MALFORMED = {
    "no question": struct.pack("!HHHHHH", 7, 0x0100, 0, 0, 0, 0),
    "two questions": struct.pack("!HHHHHH", 7, 0x0100, 2, 0, 0, 0) + b"\1a\0\0\1\0\1" * 2,
    "an answer": struct.pack("!HHHHHH", 7, 0x0100, 1, 1, 0, 0) + b"\1a\0\0\1\0\1",
    "an authority": struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 1, 0) + b"\1a\0\0\1\0\1",
    "a name that does not end": struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"\1a",
    "a name that points to itself": struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",
    "a name that points ahead": struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"\xc0\x40\0\1\0\1",
    "a label of a kind that is not": struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"\x41a\0\0\1\0\1",
    "a label that is too long": struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"\x40" + b"a" * 64 + b"\0\0\1\0\1",
    "a name that is too long": wire([b"a" * 63] * 4),
    "no type": wire([b"a"])[:-4],
    "bytes left over": wire([b"a"]) + b"x",
    "a record that is not there": wire([b"a"], extra=1),
    "a record cut short": wire([b"a"], tail=opt()[:-1], extra=1),
    "a record whose data is not there": wire([b"a"], tail=opt(data=b"1234")[:-4], extra=1),
    "two options": wire([b"a"], tail=opt() * 2, extra=2),
    "an option with a name": wire([b"a"], tail=opt(name=b"\1a\0"), extra=1),
    "too many records": wire([b"a"], tail=opt(name=b"\0") * 65535, extra=65535)[:4000],
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_query_is_answered_formerr_under_its_number(data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        packet.parse(data)
    assert caught.value.answer is not None
    answer = dns.message.from_wire(caught.value.answer)
    assert (answer.id, answer.rcode()) == (7, dns.rcode.FORMERR)


@pytest.mark.parametrize("data", [b"", b"\0" * 11, wire([b"a"], flags=0x8180)], ids=["nothing", "half a header", "a response"])
def test_nothing_is_owed_to_what_is_no_query(data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        packet.parse(data)
    assert caught.value.answer is None


def test_another_request_is_understood_far_enough_to_be_refused() -> None:
    update = dns.message.Message(id=9)
    update.set_opcode(dns.opcode.UPDATE)
    query = packet.parse(update.to_wire())
    answer = dns.message.from_wire(packet.answer(query, packet.NOTIMP))
    assert (answer.id, answer.opcode(), answer.rcode()) == (9, dns.opcode.UPDATE, dns.rcode.NOTIMP)


def test_the_longest_name_there_is_is_taken_and_its_answer_fits_the_smallest_datagram() -> None:
    labels = [b"a" * 63] * 3 + [b"b" * 61]
    query = packet.parse(wire(labels, kind=255, tail=opt(), extra=1))
    answer = packet.answer(query, packet.NOERROR, [Address(b"\1\2\3\4", 10), Address(b"\1" * 16, 10)])
    assert len(query.host or "") == 253
    assert len(answer) <= 512
    assert len(dns.message.from_wire(answer).answer) == 2


def test_a_newer_edns_is_told_in_both_halves_of_the_code() -> None:
    query = packet.parse(wire([b"a"], tail=opt(version=1), extra=1))
    answer = dns.message.from_wire(packet.answer(query, packet.BADVERS))
    assert answer.rcode() == dns.rcode.BADVERS


def test_the_question_comes_back_in_the_letters_it_was_asked_in() -> None:
    query = packet.parse(wire([b"eXaMpLe", b"cOm"]))
    assert query.host == "example.com"
    assert b"\7eXaMpLe\3cOm\0" in packet.answer(query, packet.NOERROR)


@pytest.mark.parametrize("label", [b"a.b", b"a*", b"?", b"a/b", b"a:1", b"\0", b"a b", "é".encode(), b"a\n", b"[", b"@", b"a%00"])
def test_a_name_that_would_mean_something_else_as_text_is_no_host(label: bytes) -> None:
    assert packet.parse(wire([label, b"com"])).host is None
    assert packet.parse(wire([b"www", label])).host is None
    assert packet.parse(wire([])).host is None
    assert packet.parse(wire([b"_dmarc", b"x-1", b"com"])).host == "_dmarc.x-1.com"


# -- fuzz ------------------------------------------------------------------------------------------------------------------


def _mutants(seed: int, count: int) -> list[bytes]:
    source = random.Random(seed)
    seeds = [
        wire([b"www", b"example", b"com"]),
        wire([b"x"], kind=28, tail=opt(data=b"\0\x0a\0\4cook"), extra=1),
        wire([b"a" * 63] * 3, kind=255, tail=opt() + b"\0" + struct.pack("!HHIH", 250, 255, 0, 3) + b"abc", extra=2),
        *MALFORMED.values(),
    ]
    made = []
    for _ in range(count):
        data = bytearray(source.choice(seeds)[:600])
        for _ in range(source.randint(1, 6)):
            at = source.randrange(len(data) + 1)
            match source.randrange(5):
                case 0:
                    data[at : at + 1] = bytes([source.choice((0, 1, 0x3F, 0x40, 0xC0, 0xFF, source.randrange(256)))])
                case 1:
                    del data[at : at + source.randint(1, 8)]
                case 2:
                    data[at:at] = source.randbytes(source.randint(1, 8))
                case 3:
                    data[at:at] = data[: source.randint(0, len(data))][:64]
                case _ if at < len(data):
                    data[at] ^= 1 << source.randrange(8)
        made.append(bytes(data))
    return made


def _hold_promises(data: bytes) -> None:
    try:
        query = packet.parse(data)
    except Malformed as error:
        refusal = error.answer
    else:
        refusal = None
        _hold_promises_of(query, data)
    # What a guest sends is never answered with more than it sent, and never by a query.
    assert refusal is None or (len(refusal) == 12 and refusal[2] & 0x80)


def _hold_promises_of(query: Query, data: bytes) -> None:
    answer = packet.answer(query, packet.NOERROR, [Address(b"\1\2\3\4", 1), Address(b"\1" * 16, 1)])
    assert len(answer) <= 512
    assert answer[:2] == data[:2]
    assert answer[2] & 0x80
    assert query.host is None or len(query.host) <= 253
    with pytest.raises(Malformed):
        packet.parse(answer)  # so that two resolvers cannot be set on each other


def test_mutants_of_queries_are_queries_or_refused() -> None:
    for data in _mutants(1, 4000):
        _hold_promises(data)


@pytest.mark.slow
def test_a_million_mutants_of_queries_are_queries_or_refused() -> None:
    for seed in range(2, 102):
        for data in _mutants(seed, 10_000):
            _hold_promises(data)


@given(st.binary(max_size=600))
@settings(max_examples=500)
def test_any_bytes_are_a_query_or_refused(data: bytes) -> None:
    _hold_promises(data)
