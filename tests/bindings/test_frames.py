"""Frames: whatever way a stream is cut, the messages are the same, and a length that cannot be is an error at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.bindings.frames import LENGTH_BYTES, MESSAGE_MAX, FrameDecoder, FrameError, frame


def fed(decoder: FrameDecoder, data: bytes) -> Iterator[bytes]:
    """All messages that *data* completes."""
    body = decoder.feed(data)
    while body is not None:
        yield body
        body = decoder.feed()


bodies = st.lists(st.binary(min_size=1, max_size=300), max_size=8)


@given(bodies=bodies, cuts=st.lists(st.integers(0, 2500), max_size=12))
def test_messages_survive_any_cutting_of_the_stream(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder()
    found = [body for start, end in itertools.pairwise(places) for body in fed(decoder, stream[start:end])]
    assert found == bodies
    assert not decoder.inside


@given(chunks=st.lists(st.binary(max_size=64), max_size=20))
def test_any_bytes_are_messages_or_one_error(chunks: list[bytes]) -> None:
    decoder = FrameDecoder()
    rest = b"".join(chunks)
    try:
        for chunk in chunks:
            for body in fed(decoder, chunk):
                assert rest[:LENGTH_BYTES] == len(body).to_bytes(LENGTH_BYTES, "big")
                assert rest[LENGTH_BYTES:].startswith(body)
                rest = rest[LENGTH_BYTES + len(body) :]
    except FrameError:
        length = int.from_bytes(rest[:LENGTH_BYTES], "big")
        assert not 0 < length <= MESSAGE_MAX


@pytest.mark.parametrize("length", [0, MESSAGE_MAX + 1, 1 << 31, (1 << 32) - 1])
def test_a_length_that_cannot_be_is_refused_before_its_message_arrives(length: int) -> None:
    with pytest.raises(FrameError, match=f"a message of {length} bytes"):
        FrameDecoder().feed(length.to_bytes(LENGTH_BYTES, "big"))


def test_the_longest_message_is_taken_and_its_length_told_in_advance() -> None:
    decoder = FrameDecoder()
    body = b"x" * MESSAGE_MAX
    whole = frame(body)
    assert decoder.feed(whole[:10]) is None
    assert (decoder.wanted, decoder.inside) == (len(whole), True)
    assert decoder.feed(whole[10:]) == body
    assert (decoder.wanted, decoder.inside) == (0, False)


def test_a_message_is_had_at_a_time_and_a_bad_length_after_those_before_it() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(frame(b"one") + frame(b"two") + b"\0\0\0\0") == b"one"
    assert (decoder.more, decoder.feed(), decoder.more) == (True, b"two", True)
    with pytest.raises(FrameError, match="a message of 0 bytes"):
        decoder.feed()
    assert not decoder.more


@pytest.mark.parametrize("size", [0, MESSAGE_MAX + 1])
def test_no_frame_is_made_that_the_other_side_would_refuse(size: int) -> None:
    with pytest.raises(FrameError):
        frame(b"x" * size)
