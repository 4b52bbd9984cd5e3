"""What was refused: one record per denial, and a bounded log that counts what it could not keep."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Self

from callgate.kernel.protocol import DenialRecord
from callgate.scopes.errors import InternalError, PermissionDenied, denied, message
from callgate.scopes.operations import OPERATIONS, SCOPES
from callgate.scopes.rules import RULE_NAMES, rule_name

#: Scopes whose messages show what the guest asked for rather than what it resolved to (SPEC 4).
_SHOWN_AS_REQUESTED = frozenset(("fs", "childProcess"))

_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Denial:
    """One refused operation (SPEC 4); `str()` is its message, one line whatever bytes the guest used."""

    scope: str
    operation: str
    subject: str  # what was judged
    requested: str  # what the guest wrote, made absolute
    rule: int | str  # index of the user's rule, or the name of what else decided
    message: str
    pid: int  # in the VM; 0 for calls made from the host
    program: str
    time: float  # seconds since the epoch
    reason: str = ""  # why a call is refused whatever the policy says

    def __str__(self) -> str:
        return self.message

    @classmethod
    def from_record(cls, record: DenialRecord) -> Self:
        """The denial that a supervisor's record describes; `InternalError` if its numbers mean nothing."""
        try:
            scope = SCOPES[record.scope]
            operation = OPERATIONS[scope][record.operation]
        except IndexError:
            raise InternalError(f"a denial of operation {record.operation} in scope {record.scope}") from None
        if record.rule < 0 and record.rule not in RULE_NAMES:
            raise InternalError(f"a denial by rule {record.rule}")
        subject, requested = _text(record.subject), _text(record.requested)
        return cls(
            scope=scope,
            operation=operation,
            subject=subject,
            requested=requested,
            rule=rule_name(record.rule),
            message=message(scope, operation, _shown(scope, subject, requested)),
            pid=record.pid,
            program=_text(record.program),
            time=record.time_ns / 1e9,
            reason=_text(record.reason),
        )

    @classmethod
    def from_error(cls, error: PermissionDenied, *, pid: int = 0, program: str = "") -> Self:
        """The denial of a call that the host's own API refused, or one of its services on behalf of a guest's process."""
        return cls(
            scope=error.scope,
            operation=error.operation,
            subject=error.subject,
            requested=error.subject,
            rule=error.rule,
            message=error.message,
            pid=pid,
            program=program,
            time=time.time(),
        )

    def error(self) -> PermissionDenied:
        """The exception that tells of this denial."""
        shown = _shown(self.scope, self.subject, self.requested)
        return denied(self.scope, self.operation, self.subject, rule=self.rule, shown=shown)


class DenialLog:
    """The latest denials of a VM, and how many there were. Every method may be called from any thread."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._lock = threading.Lock()
        self._latest: deque[Denial] = deque(maxlen=kept)
        self._total = 0

    def add(self, denial: Denial) -> None:
        """Record one denial; the oldest makes room if the log is full."""
        with self._lock:
            self._latest.append(denial)
            self._total += 1

    def add_unsent(self, count: int) -> None:
        """Count denials that the supervisor took but did not send, because there were too many."""
        with self._lock:
            self._total += count

    @property
    def total(self) -> int:
        """How many denials there were, kept or not."""
        with self._lock:
            return self._total

    @property
    def dropped(self) -> int:
        """How many of them have no record here any more, or never had."""
        with self._lock:
            return self._total - len(self._latest)

    def latest(self) -> tuple[Denial, ...]:
        """The records, oldest first."""
        with self._lock:
            return tuple(self._latest)


def _shown(scope: str, subject: str, requested: str) -> str:
    return requested if scope in _SHOWN_AS_REQUESTED and requested else subject


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
