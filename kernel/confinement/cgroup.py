"""A control group for one VM: memory in sum, and a clock of processor time that no process escapes.

Version 2 where its memory controller can be had, as root or in a delegated subtree, and version 1's memory controller as root
where a host still has that. The VM's init is put in before any guest starts; the supervisor stays outside. cgroups(7),
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel.
"""

from __future__ import annotations

import errno
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from callgate.scopes.errors import InternalError

_PROC = Path("/proc")
_NAME = re.compile(r"callgate-[0-9a-f]{16}")  # guests can read it in their /proc/self/cgroup, so it tells nothing
_BEING_MADE_SECONDS = 600.0  # a younger one may be empty because its VM is just being started
SOCKET_SHARE = 4  # of the memory, besides it, what sockets may keep where version 1 counts that by itself
_REMOVE_SECONDS = 2.0  # how long a cgroup may stay busy after its last process ended


class Place(NamedTuple):
    """A cgroup below which one for a VM can be made."""

    path: Path
    version: int


class Cgroup:
    """The cgroup, or one in each of two hierarchies, of one VM. Made empty; `remove` once the VM has ended."""

    def __init__(self, memory: tuple[Path, int] | None, clock: Path | None) -> None:
        self._memory: Path | None = None
        self.memory_version = 0
        if memory is not None:
            self._memory, self.memory_version = memory
        self._clock = clock
        self.directories = list(dict.fromkeys(path for path in (self._memory, clock) if path is not None))

    @classmethod
    def make(cls, *, memory_bytes: int | None, cpu: bool) -> Self | None:
        """A cgroup that bounds memory to *memory_bytes* and, with *cpu*, has a clock; less or None where the host gives less."""
        name = f"callgate-{os.urandom(8).hex()}"
        memory: tuple[Path, int] | None = None
        clock: Path | None = None
        if memory_bytes is not None:
            for place in memory_places():
                if (path := _make(place.path, name)) is None:
                    continue
                if _bound(path, place.version, memory_bytes):
                    memory = path, place.version
                    break
                _remove(path)
        if cpu and memory is not None and memory[1] == 2:
            clock = memory[0]
        elif cpu:
            clock = next((path for place in clock_places() if (path := _make(place.path, name)) is not None), None)
            if clock is not None and not (clock / "cpu.stat").exists():
                _remove(clock)
                clock = None
        made = cls(memory, clock)
        return made if made.directories else None

    @property
    def bounds_memory(self) -> bool:
        """Whether memory is bounded."""
        return self._memory is not None

    @property
    def has_cpu_clock(self) -> bool:
        """Whether processor time can be read."""
        return self._clock is not None

    def add(self, pid: int) -> None:
        """Put a process in; what it starts from then on is in as well."""
        for directory in self.directories:
            try:
                (directory / "cgroup.procs").write_text(str(pid))
            except OSError as error:
                raise InternalError(f"the VM could not be put into its cgroup {directory}: {error.strerror}") from error

    def open_clock(self) -> int | None:
        """A descriptor of cpu.stat, or None if there is no clock."""
        return None if self._clock is None else os.open(self._clock / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC)

    def oom_kills(self) -> int:
        """How many processes the kernel has killed for want of memory."""
        if self._memory is None:
            return 0
        try:
            text = (self._memory / ("memory.events" if self.memory_version == 2 else "memory.oom_control")).read_text()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)

    def remove(self) -> None:
        """Remove what was made; its processes must have ended."""
        for directory in self.directories:
            _remove(directory)


# -- where ---------------------------------------------------------------------------------------------------------------


def memory_places() -> list[Place]:
    """Cgroups in which memory can be bounded, the nearest first."""
    own = _own("", "cgroup2")
    places = [] if own is None else [Place(path, 2) for path in _with_memory(*own)]
    if os.geteuid() == 0 and (own_v1 := _own("memory", "cgroup", option="memory")) is not None:
        places.append(Place(own_v1[0], 1))
    return places


def clock_places() -> list[Place]:
    """Cgroups of version 2 below which a clock can be made: any has one."""
    own = _own("", "cgroup2")
    return [] if own is None else [Place(path, 2) for path in _upwards(*own) if os.access(path, os.W_OK)]


def _own(controller: str, kind: str, option: str | None = None) -> tuple[Path, Path] | None:
    """This process's cgroup in a hierarchy, and where that is mounted."""
    try:
        memberships = (_PROC / "self" / "cgroup").read_text().splitlines()
        mounts = (_PROC / "self" / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    inside = next(
        (path for _, names, path in (line.split(":", 2) for line in memberships) if controller in names.split(",")), None
    )
    for line in mounts:
        before, _, after = line.partition(" - ")
        filesystem, _, options = after.split(" ", 2)
        if filesystem == kind and (option is None or option in options.split(",")) and inside is not None:
            top = Path(before.split()[4])
            own = top / inside.lstrip("/")
            return (own, top) if own.is_dir() else None
    return None


def _upwards(own: Path, top: Path) -> list[Path]:
    return [path for path in (own, *own.parents) if path == top or path.is_relative_to(top)]


def _with_memory(own: Path, top: Path) -> list[Path]:
    """Those of *own* and its ancestors whose children can have their memory bounded."""
    found = []
    for path in _upwards(own, top):
        if not os.access(path, os.W_OK) or "memory" not in _words(path / "cgroup.controllers"):
            continue
        if "memory" in _words(path / "cgroup.subtree_control") or _enable(path):
            found.append(path)
    return found


def _enable(path: Path) -> bool:
    """Give children of *path* a memory controller: not while it holds processes of its own, so an only one moves a level down."""
    if _write(path / "cgroup.subtree_control", "+memory") == 0:
        return True
    if os.geteuid() == 0 or _words(path / "cgroup.procs") != [str(os.getpid())]:
        return False  # somebody else's processes are not ours to move
    leaf = path / "callgate-host"
    with suppress(OSError):
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        return _write(path / "cgroup.subtree_control", "+memory") == 0
    return False


# -- making and removing -------------------------------------------------------------------------------------------------


def _make(parent: Path, name: str) -> Path | None:
    _remove_forgotten(parent)
    try:
        (parent / name).mkdir()
    except OSError:
        return None
    return parent / name


def _bound(path: Path, version: int, memory_bytes: int) -> bool:
    """Bound memory, and swap with it where the host counts swap."""
    if version == 2:
        swap = path / "memory.swap.max"
        return _write(path / "memory.max", str(memory_bytes)) == 0 and (not swap.exists() or _write(swap, "0") == 0)
    # What TCP and UDP keep for guests is in no other number of version 1, and not even counted before it is bounded.
    sockets = path / "memory.kmem.tcp.limit_in_bytes"
    both = path / "memory.memsw.limit_in_bytes"
    return (
        _write(sockets, str(memory_bytes // SOCKET_SHARE)) == 0
        and _write(path / "memory.limit_in_bytes", str(memory_bytes)) == 0
        and (not both.exists() or _write(both, str(memory_bytes)) == 0)
    )


def _remove(path: Path) -> None:
    deadline = time.monotonic() + _REMOVE_SECONDS
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                return
            time.sleep(0.005)  # the last process has ended, and the cgroup does not know it yet
        else:
            return


def _remove_forgotten(parent: Path) -> None:
    """Remove the cgroups of VMs whose host was killed: empty, because their guests died with it, and no other can be removed."""
    try:
        entries = list(os.scandir(parent))
    except OSError:
        return
    for entry in entries:
        with suppress(OSError):
            if _NAME.fullmatch(entry.name) is not None and time.time() - entry.stat().st_mtime > _BEING_MADE_SECONDS:
                os.rmdir(entry.path)  # noqa: PTH106


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _write(path: Path, text: str) -> int:
    """0, or an errno."""
    try:
        path.write_text(text)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
