"""Introduces the host service of a VM to its policy, denials and processes, and starts it when a guest first calls."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Any

from callgate.guest.callers import Callers
from callgate.guest.run_denials import RunDenials
from callgate.kernel.audit import Denial
from callgate.scopes.errors import PermissionDenied, denied
from callgate.scopes.policy import Policy

if TYPE_CHECKING:
    from callgate.bindings.registry import BindingRegistry
    from callgate.bindings.service import HostService

#: How long `close` waits for host functions that still run, in seconds. They are not stopped: Python cannot.
_FUNCTION_GRACE = 1.0
_END_SECONDS = 5.0
_VERDICTS_KEPT = 1024


class PolicyGate:
    """The policy as the host service asks for it; holds nothing that holds the VM."""

    def __init__(self, policy: Policy, denials: RunDenials, callers: Callers, deputy: int) -> None:
        """*deputy*: the process of the host that makes some calls in guests' stead, the supervisor."""
        self._policy = policy
        self._deputy = deputy
        self._denials = denials
        self._callers = callers
        self._allowed: set[tuple[str, str, str]] = set()

    def replace(self, policy: Policy) -> None:
        """Judge by another policy from now on."""
        self._policy = policy
        self._allowed = set()

    def allows(self, name: str) -> bool:
        """Whether a binding may be called, without a record."""
        return self._policy.judge("binding", "*", name).allowed

    def has_allowed(self, name: str) -> bool:
        """Whether a call of a binding was allowed before, and would be again."""
        return ("binding", "*", name) in self._allowed

    def refusal(self, scope: str, operation: str, subject: str, sender: int) -> str | None:
        """The message of a refusal, which is then on record; None if the operation is allowed."""
        error = self.judge(scope, operation, subject)
        if error is None:
            return None
        pid, program = self._callers.identify(sender)
        self._denials.record(Denial.from_error(error, pid=pid, program=program), sender, self._callers)
        return error.message

    def judge(self, scope: str, operation: str, subject: str) -> PermissionDenied | None:
        """The refusal of an operation, not recorded; None if it is allowed."""
        allowed = self._allowed  # of one policy, whatever another thread replaces meanwhile
        question = (scope, operation, subject)
        if question in allowed:
            return None
        verdict = self._policy.judge(scope, operation, subject)
        if not verdict.allowed:
            return denied(scope, operation, subject, rule=verdict.rule)
        if len(allowed) < _VERDICTS_KEPT:
            allowed.add(question)
        return None

    def is_deputy(self, sender: int) -> bool:
        """Whether it was the supervisor that wrote a message, for a guest that cannot be told from it."""
        return sender == self._deputy

    def identify(self, sender: int) -> tuple[int, str]:
        """Process id in the VM and program of a process of the host's; 0 and "" if it is none of the VM's."""
        return self._callers.identify(sender)


class HostServiceHandle:
    """What a VM holds of its host service: nothing runs before `activate`, and it ends with `close` or with the VM."""

    def __init__(self, listener: socket.socket, registry: BindingRegistry, gate: PolicyGate, vm: object) -> None:
        # The kernel then says of every message who wrote it (unix(7)), also where the supervisor made the connection. Set
        # before any guest runs: what was sent before is nobody's.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._listener = listener
        self._registry = registry
        self._gate = gate
        self._vm = weakref.ref(vm)
        self._lock = threading.Lock()
        self._service: HostService | None = None
        self._end: weakref.finalize[..., Any] | None = None
        self._closed = False

    def filenos(self) -> tuple[int, ...]:
        """Readable once a guest has connected, as long as the service is not active."""
        return (self._listener.fileno(),)

    @property
    def active(self) -> bool:
        """Whether the service runs, or never will again."""
        return self._service is not None or self._closed

    def activate(self) -> None:
        """Start serving, unless that was done."""
        with self._lock:
            if self._service is None and not self._closed:
                from callgate.bindings.service import HostService

                # Its own descriptor of the socket: the VM closes its one when it ends, whoever still looks at it.
                self._service = HostService(self._listener.dup(), self._registry, self._gate, self._vm)
                self._end = weakref.finalize(self, _end, self._service, os.getpid())

    def attach(self) -> socket.socket:
        """A connection to the service for a guest that runs in this process: what is sent on it comes from process id 0, nobody.

        The caller closes it, which cancels its calls. It is at its end from the start if the service has ended. `OSError` if
        there are no descriptors left.
        """
        self.activate()
        ours, theirs = socket.socketpair()
        if self._service is None:
            theirs.close()
        else:
            self._service.attach(theirs)
        return ours

    def close(self) -> None:
        """End the service: calls that wait are answered, connections closed, async functions cancelled."""
        with self._lock:
            self._closed = True
            service, end = self._service, self._end
        if service is None or end is None:
            return
        done = end()
        if done is not None and not service.is_here:
            done.wait(_END_SECONDS)
            service.wait(_FUNCTION_GRACE)


def _end(service: HostService, owner: int) -> threading.Event | None:
    """In a forked copy of the owner there is no thread to end, and the descriptors' state is shared with the owner."""
    return service.end() if os.getpid() == owner else None
