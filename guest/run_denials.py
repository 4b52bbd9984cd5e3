"""Finds the run that a refusal by a service of the host belongs to, so that it stands in that run's result like any other."""

from __future__ import annotations

import threading

from callgate.guest.callers import Callers
from callgate.kernel.audit import Denial, DenialLog

#: Denials of the host's services kept for one run; the log counts them all.
_KEPT = 10_000

_RUNS_KEPT = 2048


class RunDenials:
    """The runs of one VM that are going on, by the process id in the VM of their first program. For any thread."""

    def __init__(self, log: DenialLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._runs: dict[int, list[Denial]] = {}

    def begin(self, first: int) -> list[Denial]:
        """A run has begun; what it is refused by the host's services will be added to the list."""
        with self._lock:
            return self._runs.setdefault(first, [])

    def end(self, first: int) -> None:
        """The run is over: its number may be used again."""
        with self._lock:
            self._runs.pop(first, None)

    def record(self, denial: Denial, sender: int, callers: Callers) -> None:
        """Put a refusal on record; *sender* is the process on the host's side that it is of."""
        self._log.add(denial)
        first = callers.first_of_run(sender)
        with self._lock:
            # A guest may be quicker than whoever started the run and is about to hear that it began.
            if first and (first in self._runs or len(self._runs) < _RUNS_KEPT):
                found = self._runs.setdefault(first, [])
                if len(found) < _KEPT:
                    found.append(denial)
