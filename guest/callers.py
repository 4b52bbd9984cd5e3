"""Tells who wrote a message from the process id that the kernel attached to it: the id in the VM, the program, the run."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

#: More parents than a VM can have processes: the look-up ends there whatever the host's processes do meanwhile.
_PARENTS_MOST = 70_000


class Callers:
    """Looks at /proc of the host. A process that is gone, or is none of this VM's, is nobody: 0 and "".

    A process is the VM's if its parents lead to the VM's init, which the kernel guarantees for all that init started and
    for nothing else. Numbers are used again: that is looked at once more after everything else was read.
    """

    def __init__(self, init_pid: int) -> None:
        self._init = init_pid

    def identify(self, pid: int) -> tuple[int, str]:
        """Process id in the VM and path of the program."""
        leader = self._leader_of(pid)
        if not leader:
            return 0, ""
        program = ""
        with suppress(OSError):
            program = os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - may hold bytes that a Path would mangle
        inner = _inner_pid(pid)
        return (inner, program) if inner and self._leader_of(pid) == leader else (0, "")

    def first_of_run(self, pid: int) -> int:
        """The id in the VM of the program with which the run of process *pid* began; 0 if that cannot be told.

        A run's leader is init's child, the run's first program the leader's. Later the leader takes in orphans as well.
        """
        children = _children(self._leader_of(pid))
        return _inner_pid(min(children, key=lambda child: (_started(child), child))) if children else 0

    def _leader_of(self, pid: int) -> int:
        """The child of init that *pid* descends from, or is; 0 if there is none."""
        for _ in range(_PARENTS_MOST):
            if pid <= 1:
                break
            parent = _parent(pid)
            if parent == self._init:
                return pid
            pid = parent
        return 0


def _inner_pid(pid: int) -> int:
    """The id of a process in its own pid namespace; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def _stat(pid: int) -> list[bytes]:
    """What follows the program's name in /proc/<pid>/stat (proc(5)); nothing if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _started(pid: int) -> int:
    """When a process was started, in clock ticks since boot."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else sys.maxsize


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()] if pid else []
    except OSError:
        return []
