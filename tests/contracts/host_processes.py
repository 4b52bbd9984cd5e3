"""What the host sees of a VM's processes: which there are below a supervisor, and which of them are still alive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

PROMPT: Final = 1.0  # seconds that a VM may outlive its supervisor or host (the promise of the tests that use it)
PATIENT: Final = 30.0  # where nothing is promised about how long it takes


class HostProcess(NamedTuple):
    """A process and the time it was started at, so that a recycled number is not taken for it."""

    pid: int
    started: str


class _Stat(NamedTuple):
    state: str
    parent: int
    started: str


def _stat(pid: int) -> _Stat | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return _Stat(fields[0], int(fields[1]), fields[19])
    return None


def descendants(pid: int) -> set[HostProcess]:
    """Everything below *pid* that is not a zombie."""
    children: dict[int, list[HostProcess]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _stat(int(entry.name))) is not None and found.state not in "ZX":
            children.setdefault(found.parent, []).append(HostProcess(int(entry.name), found.started))
    below: set[HostProcess] = set()
    waiting = [pid]
    while waiting:
        for process in children.get(waiting.pop(), ()):
            below.add(process)
            waiting.append(process.pid)
    return below


def alive(processes: Iterable[HostProcess]) -> set[HostProcess]:
    """Those that still run. A zombie does not."""
    return {
        process
        for process in processes
        if (now := _stat(process.pid)) is not None and now.started == process.started and now.state not in "ZX"
    }


def until(condition: Callable[[], bool], seconds: float = PATIENT) -> bool:
    """Whether *condition* becomes true within *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
