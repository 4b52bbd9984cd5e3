"""Socket addresses and messages as they lie in a guest's memory, and the calls that send to an address."""

from __future__ import annotations

import socket
import struct

from tests.vm_fixtures import Argument, Raw, Words, call


def inet(host: str, port: int) -> Raw:
    return Raw(struct.pack("<H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8))


def inet6(host: str, port: int) -> Raw:
    return Raw(
        struct.pack("<H", socket.AF_INET6) + struct.pack(">HI", port, 0) + socket.inet_pton(socket.AF_INET6, host) + bytes(4)
    )


def unix(path: bytes) -> Raw:
    return Raw(struct.pack("<H", socket.AF_UNIX) + path)


def message(name: Raw | None, data: bytes = b"x") -> Words:
    """struct msghdr."""
    named: tuple[Argument, Argument] = (name, len(name.content)) if name else (0, 0)
    return Words((*named, Words((Raw(data), len(data))), 1, 0, 0, 0))


def sends(fd: Argument, peer: Raw) -> list[str]:
    """Every call that sends to an address."""
    several = Words((*message(peer).words, 0, *message(peer).words, 0))
    return [
        call("sendto", fd, Raw(b"x"), 1, 0, peer, len(peer.content)),
        call("sendmsg", fd, message(peer), 0),
        call("sendmmsg", fd, several, 2, 0),
    ]
