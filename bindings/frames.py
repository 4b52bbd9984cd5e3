"""The framing of the host-service protocol: each message is its length in four bytes, most significant first, then its JSON."""

from __future__ import annotations

#: The longest message, in bytes, in either direction.
MESSAGE_MAX = 16 << 20

LENGTH_BYTES = 4


class FrameError(ValueError):
    """The stream is not a sequence of frames: where the next message begins can no longer be told."""


class FrameDecoder:
    """Cuts a stream into messages, one for each `feed`. Nothing is kept of a message whose length is refused."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._wanted = 0  # bytes of the message that has begun, its length field included; 0: not known yet
        self.more = False  # whether `feed` without data may have a message, or an error, to give

    @property
    def wanted(self) -> int:
        """How long the message that has begun is, or 0. Known once there is no `more`."""
        return self._wanted

    @property
    def inside(self) -> bool:
        """Whether the stream would be cut short if it ended here."""
        return bool(self._pending)

    def feed(self, data: bytes = b"") -> bytes | None:
        """The next message, if one is complete with *data*. While there are `more`, the others want to be had without data.

        `FrameError` for a length of 0 or above `MESSAGE_MAX`, after the messages before it; the decoder is of no more use then.
        """
        if not self._pending and 0 < int.from_bytes(data[:LENGTH_BYTES], "big") == len(data) - LENGTH_BYTES:
            return data[LENGTH_BYTES:]  # the usual case: one message, whole
        pending = self._pending
        pending += data
        self.more = False
        if len(pending) < LENGTH_BYTES:
            return None
        length = int.from_bytes(pending[:LENGTH_BYTES], "big")
        if not 0 < length <= MESSAGE_MAX:
            raise FrameError(f"a message of {length} bytes; the length must be 1 to {MESSAGE_MAX}")
        end = LENGTH_BYTES + length
        if len(pending) < end:
            self._wanted = end
            return None
        message = bytes(memoryview(pending)[LENGTH_BYTES:end])
        del pending[:end]
        self._wanted = 0
        self.more = len(pending) >= LENGTH_BYTES
        return message


def frame(body: bytes) -> bytes:
    """*body* as it crosses the socket. `FrameError` if it is empty or too long."""
    if not 0 < len(body) <= MESSAGE_MAX:
        raise FrameError(f"a message of {len(body)} bytes; the length must be 1 to {MESSAGE_MAX}")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
