"""Names looked up as the host does it, by getaddrinfo(3) in threads: a few at a time for each VM, and none waited for for long.

getaddrinfo cannot be interrupted. The thread of a look-up that nobody waits for any more ends when the C library gives up, and
takes one of its VM's places until then; so a resolver that hangs stalls the VM that asks, and no other.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

#: Jobs of one VM that run at the same time, unless said otherwise, and those that wait for a place.
RUNNING_MAX: Final = 8
WAITING_MAX: Final = 256

#: Addresses of one name that are of use; a name may have hundreds.
ADDRESSES_MAX: Final = 32

# getaddrinfo(3), EAI_NODATA and EAI_ADDRFAMILY being glibc's own: there is no such name, or it has no address.
_NO_SUCH_NAME: Final = frozenset((socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY))


class Found(NamedTuple):
    """What the host says about a name: addresses (4 or 16 bytes, best first) and the name at the end of its aliases, folded."""

    addresses: tuple[bytes, ...]
    canonical: str


class NotFound(Exception):
    """The name does not exist or has no address."""


class Failed(Exception):
    """The host cannot tell whether the name exists."""


def look_up(name: str) -> Found:
    """The addresses of *name*, as any program of the host would get them. Blocks; `NotFound` or `Failed`."""
    try:
        answers = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            raise NotFound(name) from error
        raise Failed(str(error)) from error
    except OSError as error:
        raise Failed(str(error)) from error
    addresses: dict[bytes, None] = {}
    for family, _, _, _, endpoint in answers:
        if family in (socket.AF_INET, socket.AF_INET6):
            # A zone, as in fe80::1%eth0, is dropped: a link-local address is refused anyway.
            addresses[socket.inet_pton(family, str(endpoint[0]).partition("%")[0])] = None
    if not addresses:
        raise NotFound(name)
    canonical = next((answer[3] for answer in answers if answer[3]), name)
    return Found(_some_of_each(list(addresses)), canonical.lower().removesuffix("."))


def _some_of_each(addresses: list[bytes]) -> tuple[bytes, ...]:
    """The first addresses in their order, with places kept for either family."""
    kept = set()
    for size in (4, 16):
        kept.update([address for address in addresses if len(address) == size][: ADDRESSES_MAX // 2])
    return tuple(address for address in addresses if address in kept)


class Jobs:
    """What a VM has done by threads: at most *running_max* of them, which end when there is nothing to do."""

    def __init__(self, running_max: int = RUNNING_MAX) -> None:
        self._lock = threading.Lock()
        self._running_max = running_max
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def add(self, job: Callable[[], None]) -> bool:
        """Have *job* done by a thread, now or when there is a place; False if too many wait, or there is no thread to be had."""
        with self._lock:
            if self._running < self._running_max:
                self._running += 1
            elif len(self._waiting) < WAITING_MAX:
                self._waiting.append(job)
                return True
            else:
                return False
        try:
            # A daemon: the end of the program does not wait for a resolver that hangs.
            threading.Thread(target=self._work, args=(job,), name="callgate-lookup", daemon=True).start()
        except RuntimeError:  # the host has no room for one more thread
            with self._lock:
                self._running -= 1
            return False
        return True

    def clear(self) -> None:
        """Forget what waits; what runs comes to its own end."""
        with self._lock:
            self._waiting.clear()

    def _work(self, job: Callable[[], None] | None) -> None:
        while job is not None:
            job()
            with self._lock:
                job = self._waiting.popleft() if self._waiting else None
                if job is None:
                    self._running -= 1
