"""The pump: bytes go where they belong, ends are noticed, and no descriptor is left."""

from __future__ import annotations

import os
import stat
import time
from contextlib import closing

import pytest

from callgate.guest.streams import Capture, Pump, guest_pipe

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_a_capture_keeps_the_beginning() -> None:
    capture = Capture(5)
    for part in (b"abc", b"def", b"ghi"):
        capture.add(part)
    assert (capture.content(), capture.truncated) == (b"abcde", True)
    exact = Capture(3)
    exact.add(b"abc")
    assert (exact.content(), exact.truncated) == (b"abc", False)


def test_a_guests_pipe_can_be_opened_again_by_another_user() -> None:
    reader, writer = guest_pipe()
    with open(reader, "rb"), open(writer, "wb"):
        assert stat.S_IMODE(os.fstat(reader).st_mode) == 0o666
        assert stat.S_IMODE(os.fstat(writer).st_mode) == 0o666
        assert not os.get_inheritable(reader)


def test_input_is_written_and_then_ended() -> None:
    reader, writer = guest_pipe()
    told_reader, told_writer = os.pipe()
    with open(reader, "rb"), open(told_reader, "rb"), closing(Pump()) as pump:
        pump.feed(writer, b"x" * 100)
        pump.watch(told_reader, lambda: True)
        assert not pump.run(time.monotonic() + 0.1)
        assert os.read(reader, 1000) == b"x" * 100
        assert os.read(reader, 1000) == b""
        os.close(told_writer)
        assert pump.run(None)


def test_a_reader_that_is_gone_ends_the_input() -> None:
    reader, writer = guest_pipe()
    os.close(reader)
    with closing(Pump()) as pump:
        pump.feed(writer, b"x" * 100)
        assert not pump.run(time.monotonic() + 0.1)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(writer)


def test_what_is_left_in_a_pipe_is_drained_without_waiting_for_its_other_holders() -> None:
    reader, writer = guest_pipe()
    capture = Capture(1 << 20)
    with open(writer, "wb", buffering=0) as held, closing(Pump()) as pump:
        held.write(b"y" * 60_000)
        pump.collect(reader, capture)
        pump.drain()
    assert capture.content() == b"y" * 60_000


def test_a_deadline_in_the_past_moves_nothing() -> None:
    reader, writer = guest_pipe()
    capture = Capture(10)
    os.write(writer, b"z")
    os.close(writer)
    with closing(Pump()) as pump:
        pump.collect(reader, capture)
        assert not pump.run(time.monotonic() - 1)
    assert capture.content() == b""
