"""The addresses that stand for names inside one VM, so that a connection tells which name it was made for.

A name gets one IPv4 and one IPv6 address for the whole life of the VM, and an address is never given to a second name: a
program may keep an address for as long as it likes, and a connection made with it would otherwise be judged, and made, as one to
a host that it never asked for. What bounds the table is that it ends: a VM that has used up its addresses gets no answer for
further names. Names that the policy refuses anyway have a share of their own, so that asking for millions of them takes nothing
away from those that are allowed.
"""

from __future__ import annotations

import threading
from enum import Enum
from typing import Final, NamedTuple

#: 198.18.0.0/15, which is for benchmarks of networks (RFC 2544) and so never the address of a host one would want to reach ...
_IPV4_NET: Final = 198 << 24 | 18 << 16
#: ... and its twin 2001:2::/48 (RFC 5180). Not a private range: programs would take the name for one of their own network's.
_IPV6_NET: Final = 0x2001_0002 << 96

NAMES_MAX: Final = 65536


class Share(Enum):
    """Which part of the table a name takes its place from; the value is the number of places."""

    ALLOWED = 49152
    DENIED = NAMES_MAX - 49152


class Assigned(NamedTuple):
    """A name and what stands for it."""

    name: str
    ipv4: bytes
    ipv6: bytes


class Names:
    """The names of one VM."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._assigned: dict[str, Assigned] = {}
        self._taken = dict.fromkeys(Share, 0)

    def assign(self, name: str, share: Share) -> Assigned | None:
        """The addresses of *name*, new ones if it has none yet; None if that share is used up."""
        with self._lock:
            known = self._assigned.get(name)
            if known is None and self._taken[share] < share.value:
                self._taken[share] += 1
                known = self._assigned[name] = Assigned(name, *_addresses(len(self._assigned)))
            return known


def _addresses(number: int) -> tuple[bytes, bytes]:
    # Not those that end in .0 or .255: programs take them for a network's own and its broadcast address.
    high, low = divmod(number, 254)
    ipv4 = _IPV4_NET + (high << 8) + low + 1
    return ipv4.to_bytes(4, "big"), (_IPV6_NET | ipv4).to_bytes(16, "big")
