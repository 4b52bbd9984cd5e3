"""Joins the resolver with a started VM: its sockets, its policy, its supervisor and its record of refusals."""

from __future__ import annotations

import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Final

from callgate.kernel.audit import Denial
from callgate.kernel.egress.listeners import DATAGRAMS, STREAMS
from callgate.kernel.egress.loop import shared_loop
from callgate.kernel.egress.names import Assigned
from callgate.kernel.egress.resolver import Resolver
from callgate.kernel.egress.verdicts import NameVerdicts
from callgate.kernel.egress.zone import Asker, Zone
from callgate.kernel.launch import Supervisor
from callgate.kernel.plan import Plan
from callgate.kernel.protocol import DenialRecord, LookupDenied, NameFlag, NameRequest
from callgate.scopes.endpoints import Endpoint
from callgate.scopes.errors import InternalError
from callgate.scopes.operations import OPERATIONS, SCOPES

_PROTOCOLS: Final = {"udp": socket.IPPROTO_UDP, "tcp": socket.IPPROTO_TCP}
_NETWORK: Final = SCOPES.index("network")
_DNS: Final = OPERATIONS["network"].index("dns")


class NameService:
    """Answers what the programs of a VM ask about names, from `activate` on until it is closed or the supervisor is gone.

    Most programs never ask, so nothing runs before somebody does. For any thread.
    """

    def __init__(
        self, supervisor: Supervisor, plan: Plan, hosts: Mapping[str, Endpoint], record: Callable[[Denial], None]
    ) -> None:
        """*record* gets the refusals that no run of the VM can be told of. The supervisor is not kept alive by this."""
        listeners = dict(zip(plan.listeners, supervisor.listeners, strict=True))
        self._sockets = listeners[DATAGRAMS], listeners[STREAMS]
        self._supervisor = weakref.ref(supervisor)
        self._plan = plan
        self._hosts = hosts
        self._record = record
        self._lock = threading.Lock()
        self._resolver: Resolver | None = None
        self._closed = False

    @property
    def active(self) -> bool:
        """Whether it answers, or never will again."""
        return self._resolver is not None or self._closed

    def filenos(self) -> tuple[int, ...]:
        """Readable once somebody has asked, as long as the service is not active."""
        return tuple(sock.fileno() for sock in self._sockets)

    def activate(self) -> None:
        """Begin to answer, unless that was done."""
        with self._lock:
            supervisor = self._supervisor()
            if self.active or supervisor is None:
                return
            told = _SupervisorOf(supervisor, self._record)
            plan, hosts, verdicts = self._plan, self._hosts, NameVerdicts(self._plan.policy.compiled()["network"])
            resolver = Resolver(
                shared_loop(),
                *self._sockets,
                lambda loop: Zone(
                    loop, verdicts, told, hostname=plan.hostname, hosts=hosts, has_host_ports=bool(plan.host_ports)
                ),
            )
            weakref.finalize(supervisor, resolver.close, wait=False)
            self._resolver = resolver

    def close(self) -> None:
        """Stop answering."""
        with self._lock:
            self._closed = True
            if self._resolver is not None:
                self._resolver.close()


class _SupervisorOf:
    """A supervisor as a zone sees it; one that is gone takes nothing and hears nothing."""

    def __init__(self, supervisor: Supervisor, record: Callable[[Denial], None]) -> None:
        self._supervisor = weakref.ref(supervisor)
        self._record = record

    def name(self, name: Assigned, addresses: tuple[bytes, ...], flags: NameFlag, port: int) -> bool:
        request = NameRequest(name.name.encode(), name.ipv4, name.ipv6, flags, port, addresses)
        supervisor = self._supervisor()
        if supervisor is None:
            return False
        try:
            return supervisor.set_name(request)
        except (InternalError, ValueError):  # the VM has ended meanwhile
            return False

    def refused(self, asker: Asker, name: str, rule: int, reason: str) -> None:
        subject = f"dns://{name}".encode()
        supervisor = self._supervisor()
        if supervisor is not None:
            try:
                if supervisor.lookup_denied(LookupDenied(_PROTOCOLS[asker.protocol], asker.port, rule, subject, reason.encode())):
                    return
            except (InternalError, ValueError):
                pass
        record = DenialRecord(_NETWORK, _DNS, rule, 0, time.time_ns(), subject, subject, b"", reason.encode())
        self._record(Denial.from_record(record))
