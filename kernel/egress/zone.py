"""What the names of the world mean inside one VM: judged by its policy, answered with addresses that stand for the name alone.

| name | answer |
|---|---|
| localhost, the VM's own | the VM's loopback |
| one of `hosts=`, or the host if there are `host_ports=` | an address that stands for it, of the family of the endpoint |
| allowed | addresses that stand for it, of the families that it really has, once the host has found those |
| denied for `dns`, but there is a way to it | REFUSED |
| denied altogether | an IPv4 address made up for it, nothing asked: the connect that follows is refused by name |

The supervisor hears what an address stands for before the guest does.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from callgate.kernel.egress import host_lookup, packet
from callgate.kernel.egress.host_lookup import Failed, Found, Jobs, NotFound
from callgate.kernel.egress.loop import Loop
from callgate.kernel.egress.names import Assigned, Names, Share
from callgate.kernel.egress.packet import Query
from callgate.kernel.egress.verdicts import NameVerdicts
from callgate.kernel.protocol import NameFlag
from callgate.scopes.address import canonical_address
from callgate.scopes.endpoints import Endpoint
from callgate.scopes.rules import RULE_UNRESOLVED

#: How long the host may take to find a name; then the guest is told that it could not be found out (seconds).
LOOKUP_SECONDS: Final = 2.0

#: How long what the host found is good for, in the guest as well, and what it did not find (seconds).
FOUND_SECONDS: Final = 10
NOT_FOUND_SECONDS: Final = 5

#: One look-up is several packets of one socket: a question for each family, and repetitions. Within this time (seconds) they
#: are one refusal.
_ONE_LOOKUP_SECONDS: Final = 1.0

#: The host as a VM sees it that was given ports of its loopback.
HOST_NAME: Final = "host.callgate.internal"

UNRESOLVED_REASON: Final = f"the name could not be resolved within {LOOKUP_SECONDS:.0f} seconds"
_KEPT_MAX: Final = 4096
_LOOPBACK: Final = (b"\x7f\0\0\1", bytes(15) + b"\1")
_META_KINDS: Final = range(128, 255)  # zone transfers and the like; 255 is ANY


class Outcome(NamedTuple):
    """What is known of a name: a response code and the addresses it has for the guest, good for *ttl* seconds."""

    code: int
    addresses: tuple[bytes, ...] = ()
    ttl: int = NOT_FOUND_SECONDS


class Asker(NamedTuple):
    """Where a query came from: "udp" or "tcp", and the port of the socket that asked."""

    protocol: str
    port: int


#: What is known under: a name; one that is refused with whoever asked, because a refusal is each asker's own.
_Key = tuple[str, Asker | None]


class Supervised(Protocol):
    """What a zone tells the supervisor of its VM, or its user. Called in threads that may wait."""

    def name(self, name: Assigned, addresses: tuple[bytes, ...], flags: NameFlag, port: int) -> bool:
        """What stands for a name leads to *addresses* (none: it was made up); False if there is no room for it.

        The *port* is dialled instead of the one that the guest asks for, unless it is 0.
        """
        ...

    def refused(self, asker: Asker, name: str, rule: int, reason: str) -> None:
        """A look-up was refused by *rule*, or by what its number stands for (`scopes.rules`)."""
        ...


class Zone:
    """The names of one VM. Every method is for the thread of the loop."""

    def __init__(
        self,
        loop: Loop,
        verdicts: NameVerdicts,
        supervised: Supervised,
        *,
        hostname: str,
        hosts: Mapping[str, Endpoint],
        has_host_ports: bool = False,
        look_up: Callable[[str], Found] = host_lookup.look_up,
    ) -> None:
        self._loop = loop
        self._verdicts = verdicts
        self._supervised = supervised
        self._local = {hostname.lower(): _LOOPBACK[:1], "localhost": _LOOPBACK}
        self._operator = {
            name: _Real((endpoint.address,), NameFlag.OPERATOR, endpoint.port or 0) for name, endpoint in hosts.items()
        }
        if has_host_ports:
            # The way to a port of the host that the VM's own loopback uses as well.
            self._operator.setdefault(HOST_NAME, _Real(_LOOPBACK[:1], NameFlag.OPERATOR | NameFlag.HOST_PORTS, 0))
        self._look_up = look_up
        self._names = Names()
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._looking = Jobs()
        self._telling = Jobs(1)  # a supervisor takes one message after the other

    def ask(self, query: Query, asker: Asker, reply: Callable[[bytes], None]) -> None:
        """Answer *query* through *reply*, now or later."""
        outcome = _without_a_name(query)
        if outcome is not None:
            reply(packet.answer(query, outcome))
            return
        name = query.host or ""
        if (local := self._locally(name)) is not None:
            reply(_written(query, local))
            return
        verdict = self._verdicts.judge(name)
        known = self._known_of((name, None if verdict.lookup else asker))
        now = time.monotonic()
        waiting = _Waiting(query, asker, reply)
        if verdict.lookup:
            if query.kind not in (packet.A, packet.AAAA, packet.ANY):
                reply(packet.answer(query, packet.NOERROR))
            elif known.outcome is not None and known.expires > now:
                reply(_written(query, known.outcome))
            else:
                self._find(name, known, waiting, now)
            return
        if known.outcome is not None and known.refused_at + _ONE_LOOKUP_SECONDS > now:
            reply(_written(query, known.outcome))
            return
        known.waiting.append(waiting)
        if not known.busy:
            known.busy = True
            known.refused_at = now
            self._start(self._telling, known, lambda: self._refuse(name, asker, verdict.rule, verdict.reachable), now)

    def _expire(self, name: str, known: _Known) -> None:
        """Tell those that have waited for *name* for too long that it could not be found out."""
        now = time.monotonic()
        if not known.waiting or known.deadline > now:
            return
        asker = known.waiting[0].asker
        # The look-up itself goes on. What it finds is good for the next that asks.
        late, known.waiting = known.waiting, []
        known.outcome, known.expires = Outcome(packet.SERVFAIL), now + NOT_FOUND_SECONDS

        def tell() -> None:
            self._supervised.refused(asker, name, RULE_UNRESOLVED, UNRESOLVED_REASON)
            self._loop.post(lambda: _answer_all(late, Outcome(packet.SERVFAIL)))

        if not self._telling.add(tell):
            _answer_all(late, Outcome(packet.SERVFAIL))

    def close(self) -> None:
        """Forget what waits."""
        self._looking.clear()
        self._telling.clear()
        self._known.clear()

    # -- in the resolver's thread ------------------------------------------------------------------------------------

    def _locally(self, name: str) -> Outcome | None:
        """What needs nobody: the VM itself, and what is no name of a host. Nothing here tells anything of the outside."""
        local = self._local.get("localhost" if name.endswith(".localhost") else name)
        if local is not None:
            return Outcome(packet.NOERROR, local, FOUND_SECONDS)
        last = name.rpartition(".")[2]
        # An address is no name (RFC 6761 and every C library); the names of addresses are nobody's to know (RFC 6303).
        if name.endswith((".in-addr.arpa", ".ip6.arpa")) or last.isdigit() or canonical_address(name) is not None:
            return Outcome(packet.NXDOMAIN)
        return None

    def _known_of(self, key: _Key) -> _Known:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known()
            if len(self._known) > _KEPT_MAX:
                self._forget_one()
        else:
            self._known.move_to_end(key)
        return known

    def _forget_one(self) -> None:
        for key, known in self._known.items():
            if not known.busy and not known.waiting:
                del self._known[key]
                return

    def _find(self, name: str, known: _Known, waiting: _Waiting, now: float) -> None:
        if not known.waiting:
            known.deadline = now + LOOKUP_SECONDS
            self._loop.at(known.deadline, lambda: self._expire(name, known))
        known.waiting.append(waiting)
        if not known.busy:
            known.busy = True
            real = self._operator.get(name)
            if real is not None:
                self._start(self._telling, known, lambda: self._tell(name, Share.ALLOWED, real), now)
            else:
                self._start(self._looking, known, lambda: self._look_up_and_tell(name, waiting.asker), now)

    def _start(self, jobs: Jobs, known: _Known, work: Callable[[], Outcome], now: float) -> None:
        def finished(outcome: Outcome) -> None:
            known.busy = False
            known.outcome, known.expires = outcome, time.monotonic() + outcome.ttl
            answered, known.waiting = known.waiting, []
            _answer_all(answered, outcome)

        def job() -> None:
            outcome = work()
            self._loop.post(lambda: finished(outcome))

        if not jobs.add(job):
            known.busy = False
            known.expires = now
            late, known.waiting = known.waiting, []
            _answer_all(late, Outcome(packet.SERVFAIL))

    # -- in threads that may wait ------------------------------------------------------------------------------------

    def _refuse(self, name: str, asker: Asker, rule: int, reachable: bool) -> Outcome:
        self._supervised.refused(asker, name, rule, "")
        if reachable:
            return Outcome(packet.REFUSED)
        made_up = self._tell(name, Share.DENIED, _Real())
        return made_up if made_up.code == packet.NOERROR else Outcome(packet.REFUSED)

    def _look_up_and_tell(self, name: str, asker: Asker) -> Outcome:
        try:
            found = self._look_up(name)
        except NotFound:
            return Outcome(packet.NXDOMAIN)
        except Failed:
            return Outcome(packet.SERVFAIL)
        if found.canonical != name and (rule := self._verdicts.alias(found.canonical)) is not None:
            self._supervised.refused(asker, found.canonical, rule, f"{name} is an alias for it")
            return Outcome(packet.REFUSED)
        return self._tell(name, Share.ALLOWED, _Real(found.addresses))

    def _tell(self, name: str, share: Share, real: _Real) -> Outcome:
        assigned = self._names.assign(name, share)
        if assigned is None or not self._supervised.name(assigned, *real):
            return Outcome(packet.SERVFAIL)
        # A made-up name has one address: with two, the C library would try both out for their order, a refusal each.
        sizes = {len(address) for address in real.addresses} or {4}
        inside = tuple(each for each in (assigned.ipv4, assigned.ipv6) if len(each) in sizes)
        return Outcome(packet.NOERROR, inside, FOUND_SECONDS)


class _Real(NamedTuple):
    """Where a name leads; nowhere unless said otherwise."""

    addresses: tuple[bytes, ...] = ()
    flags: NameFlag = NameFlag(0)
    port: int = 0


class _Waiting(NamedTuple):
    query: Query
    asker: Asker
    reply: Callable[[bytes], None]


class _Known:
    """What is known of one name, and who waits to know."""

    __slots__ = ("busy", "deadline", "expires", "outcome", "refused_at", "waiting")

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self.expires = 0.0
        self.refused_at = float("-inf")
        self.busy = False  # a thread is at it
        self.deadline = 0.0
        self.waiting: list[_Waiting] = []


def _without_a_name(query: Query) -> int | None:
    """The response code of what is refused whatever the name."""
    if query.opcode != packet.QUERY:
        return packet.NOTIMP
    if query.edns:
        return packet.BADVERS
    if query.class_ != packet.IN:
        return packet.REFUSED
    if query.kind in _META_KINDS:
        return packet.NOTIMP
    return None if query.host is not None else packet.NXDOMAIN


def _written(query: Query, outcome: Outcome) -> bytes:
    sizes = {packet.A: (4,), packet.AAAA: (16,), packet.ANY: (4, 16)}.get(query.kind, ())
    return packet.answer(
        query, outcome.code, [packet.Address(address, outcome.ttl) for address in outcome.addresses if len(address) in sizes]
    )


def _answer_all(waiting: list[_Waiting], outcome: Outcome) -> None:
    for each in waiting:
        each.reply(_written(each.query, outcome))
