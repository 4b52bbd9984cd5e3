"""Which addresses are local to the host or its surroundings, however they are spelled: no guest reaches one by a policy alone.

The ranges are those of the IANA special-purpose registries (RFC 6890) that lead to the host itself, to its neighbours or to a
cloud's control plane (SPEC 3.2). The supervisor has the same table in C and is the one that enforces it, on the address it
dials; a test holds the two together.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: What a range is called in the reason of a refusal. More specific ranges stand first.
_IPV4: Final = (
    ("169.254.169.254", 32, "a cloud metadata address"),
    ("169.254.170.2", 32, "a cloud metadata address"),
    ("169.254.170.23", 32, "a cloud metadata address"),
    ("100.100.100.200", 32, "a cloud metadata address"),
    ("168.63.129.16", 32, "a cloud metadata address"),
    ("192.0.0.192", 32, "a cloud metadata address"),
    ("0.0.0.0", 8, "a loopback address"),  # Linux connects to 0.0.0.0 as to the loopback
    ("127.0.0.0", 8, "a loopback address"),
    ("10.0.0.0", 8, "a private address"),
    ("172.16.0.0", 12, "a private address"),
    ("192.168.0.0", 16, "a private address"),
    ("192.0.0.0", 24, "a private address"),
    ("100.64.0.0", 10, "a shared (CGNAT) address"),
    ("169.254.0.0", 16, "a link-local address"),
    ("224.0.0.0", 4, "a multicast address"),
    ("240.0.0.0", 4, "a reserved address"),
)

_IPV6: Final = (
    ("fd00:ec2::254", 128, "a cloud metadata address"),
    ("fd00:ec2::23", 128, "a cloud metadata address"),
    ("fd20:ce::254", 128, "a cloud metadata address"),
    ("::", 128, "a loopback address"),
    ("::1", 128, "a loopback address"),
    ("64:ff9b:1::", 48, "a private address"),  # NAT64 of a network's own: where the IPv4 address stands in it is local knowledge
    ("fc00::", 7, "a private address"),
    ("fec0::", 10, "a private address"),
    ("fe80::", 10, "a link-local address"),
    ("ff00::", 8, "a multicast address"),
)

# Prefix, its length, the bit offset of the IPv4 address in it, and what it is XORed with.
_EMBEDDING: Final = (
    ("::ffff:0:0", 96, 96, 0),  # IPv4-mapped
    ("::ffff:0:0:0", 96, 96, 0),  # IPv4-translated (SIIT, RFC 7915)
    ("64:ff9b::", 96, 96, 0),  # NAT64 (RFC 6052)
    ("::", 96, 96, 0),  # IPv4-compatible
    ("2002::", 16, 16, 0),  # 6to4: the tunnel's far end
    ("2001::", 32, 32, 0),  # Teredo: the server
    ("2001::", 32, 96, 0xFFFF_FFFF),  # Teredo: the client
)


def local_kind(address: bytes) -> str | None:
    """What makes an address local, as in "a private address"; None for one that is not.

    *address* is 4 or 16 bytes in network order. An IPv6 address that stands for an IPv4 one (mapped, compatible, translated,
    NAT64, 6to4, Teredo) is what that one is.
    """
    table = _table()
    value = int.from_bytes(address, "big")
    if len(address) == 4:
        return _find(table.ipv4, value, 32)
    if len(address) != 16:
        raise ValueError(f"an address of {len(address)} bytes is neither IPv4 nor IPv6")
    if (kind := _find(table.ipv6, value, 128)) is not None:
        return kind
    for prefix, length, offset, mask in table.embedding:
        if value >> 128 - length == prefix >> 128 - length:
            kind = _find(table.ipv4, value >> 128 - offset - 32 & 0xFFFF_FFFF ^ mask, 32)
            if kind is not None:
                return kind
    return None


class _Table:
    """The ranges as numbers, made when the first address is looked at: no import pays for it."""

    def __init__(self) -> None:
        from ipaddress import IPv4Address, IPv6Address

        self.ipv4 = tuple((int(IPv4Address(prefix)), length, kind) for prefix, length, kind in _IPV4)
        self.ipv6 = tuple((int(IPv6Address(prefix)), length, kind) for prefix, length, kind in _IPV6)
        self.embedding = tuple((int(IPv6Address(prefix)), *rest) for prefix, *rest in _EMBEDDING)


@lru_cache(maxsize=1)
def _table() -> _Table:
    return _Table()


def _find(ranges: tuple[tuple[int, int, str], ...], value: int, bits: int) -> str | None:
    for prefix, length, kind in ranges:
        if value >> bits - length == prefix >> bits - length:
            return kind
    return None
