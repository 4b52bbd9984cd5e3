"""Which mechanism enforces which of a VM's limits on this host, and what is lost where one is missing.

limit         bounds                                            enforced by
memory        what the VM's processes hold together             a cgroup; else, degraded, RLIMIT_DATA and the supervisor's clock
processes     processes and threads in the VM at once           RLIMIT_NPROC, which counts per user namespace
cpu_seconds   processor time of one run, all its processes      the supervisor's clock and a cgroup's; RLIMIT_CPU for each
wall_seconds  time of one run                                   the supervisor's clock
open_files    descriptors of each process                       RLIMIT_NOFILE
file_size     each file a program writes                        RLIMIT_FSIZE
disk          everything in the VM's own filesystem             the size of its tmpfs
output        what is kept of each output stream of a run       the host, which reads on and throws away
"""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from callgate.kernel.confinement.limits import Limits
from callgate.kernel.launch_blob import Limit, Watch
from callgate.scopes.errors import Unsupported

if TYPE_CHECKING:
    from callgate.kernel.confinement.cgroup import Cgroup

_OWN_PROCESSES = 2  # of the VM's: init, and a run's leader
_INODE_BYTES = 1024  # of kernel memory for an empty file and its name, rounded up


@dataclass(frozen=True, slots=True)
class Defaults:
    """What bounds a VM where the operator says nothing; each keeps a runaway guest from harming more than itself."""

    hostname: str = "callgate"
    guest_id: int = 1000
    disk_bytes: int = 1 << 30  # of the root tmpfs: memory of the host, taken as it is written
    disk_inodes: int = 1 << 18
    processes: int = 1024  # RLIMIT_NPROC counts per user namespace, so a fork bomb fills its own VM
    open_files: int = 1024
    open_files_most: int = 65536
    # 1, not 0: core(5) runs a piped core handler, as root on the host, even under a limit of 0, but not under 1.
    core_bytes: int = 1
    output_bytes: int = 64 << 20


DEFAULTS = Defaults()


@dataclass(frozen=True, slots=True)
class LimitPlan:
    """What to tell the supervisor, and what to tell the operator."""

    entries: tuple[Limit, ...]
    disk_bytes: int
    disk_inodes: int
    in_force: Mapping[str, int | float]
    enforced_by: Mapping[str, str]
    degradations: tuple[str, ...]


def cgroup_for(limits: Limits) -> Cgroup | None:
    """A cgroup for those of *limits* that need one, as far as this host gives it; the caller's to remove."""
    if limits.memory is None and limits.cpu_seconds is None:
        return None
    from callgate.kernel.confinement.cgroup import Cgroup

    return Cgroup.make(memory_bytes=limits.number("memory"), cpu=limits.cpu_seconds is not None)


class _Planning:
    """What has been decided so far."""

    def __init__(self, best_effort: frozenset[str]) -> None:
        self._best_effort = best_effort
        self.entries: list[Limit] = []
        self.in_force: dict[str, int | float] = {}
        self.enforced_by: dict[str, str] = {}
        self.degradations: list[str] = []

    def put(self, name: str, value: float, mechanism: str, *entries: Limit) -> None:
        """*name* is in force, by *mechanism*."""
        self.in_force[name] = value
        self.enforced_by[name] = mechanism
        self.entries += entries

    def degrade(self, name: str, cost: str) -> None:
        """*name* does not hold for every program; `Unsupported` unless the operator said that this will do."""
        if name not in self._best_effort:
            raise Unsupported(
                f"limit {name}: this host gives callgate no cgroup to enforce it with ({cost}). Run as root, or in a delegated "
                f"cgroup v2 (systemd-run --user --scope -p Delegate=yes ...), or accept less with best_effort=({name!r},)"
            )
        self.degradations.append(f"{name}: no cgroup; {cost}")


def plan_limits(
    limits: Limits, *, cgroup: Cgroup | None = None, best_effort: frozenset[str] = frozenset(), defaults: Defaults = DEFAULTS
) -> LimitPlan:
    """Which mechanism enforces which limit. Raises `Unsupported` for one that needs a cgroup, unless *best_effort* names it."""
    plan = _Planning(best_effort)
    memory = limits.number("memory")
    disk, inodes = limits.number("disk") or defaults.disk_bytes, defaults.disk_inodes
    if memory is not None:
        # What is on the disk counts as memory, and outlives every program that could be killed for it.
        disk, inodes = min(disk, memory // 4 * 3 if limits.disk else memory // 2), min(inodes, memory // 8 // _INODE_BYTES)
    plan.put("disk", disk, "the size of the VM's tmpfs")
    _plan_rlimits(plan, limits, defaults)
    output = limits.number("output")
    plan.put("output", defaults.output_bytes if output is None else output, "the host, which throws the rest away")
    if limits.wall_seconds is not None:
        clock = Limit(Watch.WALL, _milliseconds(limits.wall_seconds), 0)
        plan.put("wall_seconds", limits.wall_seconds, "the supervisor's clock", clock)
    if limits.cpu_seconds is not None:
        _plan_cpu(plan, limits.cpu_seconds, cgroup)
    if memory is not None:
        _plan_memory(plan, memory, cgroup)
    return LimitPlan(tuple(plan.entries), disk, inodes, plan.in_force, plan.enforced_by, tuple(plan.degradations))


def _plan_rlimits(plan: _Planning, limits: Limits, defaults: Defaults) -> None:
    core = _rlimit(resource.RLIMIT_CORE, defaults.core_bytes)
    plan.put("core", core.hard, "RLIMIT_CORE", core)
    files = limits.number("open_files")
    if files is None:
        descriptors = _rlimit(resource.RLIMIT_NOFILE, defaults.open_files, defaults.open_files_most)
    else:
        descriptors = _rlimit(resource.RLIMIT_NOFILE, files)
    plan.put("open_files", descriptors.hard, "RLIMIT_NOFILE", descriptors)
    asked = limits.number("processes")
    processes = _rlimit(resource.RLIMIT_NPROC, defaults.processes if asked is None else asked + _OWN_PROCESSES)
    in_force = processes.hard if asked is None else min(asked, processes.hard)
    plan.put("processes", in_force, "RLIMIT_NPROC, counted for the VM's user namespace", processes)
    if (size := limits.number("file_size")) is not None:
        plan.put("file_size", size, "RLIMIT_FSIZE", _rlimit(resource.RLIMIT_FSIZE, size))


def _plan_cpu(plan: _Planning, seconds: float, cgroup: Cgroup | None) -> None:
    # The kernel's limit comes after the supervisor's, which can say what it was: it is for when the supervisor is starved.
    whole = math.ceil(seconds)
    entries = Limit(Watch.CPU, _milliseconds(seconds), 0), _rlimit(resource.RLIMIT_CPU, whole + 1, whole + 2)
    mechanism = "the supervisor's clock over a run's processes, and RLIMIT_CPU for each of them"
    if cgroup is not None and cgroup.has_cpu_clock:
        mechanism += "; a cgroup's clock for those that no parent waits for"
    else:
        plan.degrade("cpu_seconds", "the time of processes that no parent waits for is not counted")
    plan.put("cpu_seconds", seconds, mechanism, *entries)


def _plan_memory(plan: _Planning, memory: int, cgroup: Cgroup | None) -> None:
    if cgroup is not None and cgroup.bounds_memory:
        plan.put("memory", memory, f"a cgroup (version {cgroup.memory_version})")
        return
    plan.degrade("memory", "the sum is looked at only some times a second, and shared memory that is not mapped is not in it")
    mechanism = "RLIMIT_DATA for each process, and the supervisor's clock over all of them"
    plan.put("memory", memory, mechanism, Limit(Watch.MEMORY, memory, 0), _rlimit(resource.RLIMIT_DATA, memory))


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _rlimit(number: int, soft: int, hard: int | None = None) -> Limit:
    """Never above what this process has itself: a guest holds no capability to raise a hard limit."""
    _, most = resource.getrlimit(number)
    if most == resource.RLIM_INFINITY:
        most = sys.maxsize
    return Limit(number, min(soft, most), min(soft if hard is None else hard, most))
