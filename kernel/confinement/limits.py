"""How much a VM may use: the limits an operator sets, checked and in one unit each."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)

_SMALLEST = {"memory": 16 << 20, "processes": 1, "open_files": 4, "file_size": 1, "disk": 1 << 20, "output": 0}
_MOST = sys.maxsize

#: Limits that need a cgroup to hold for every program, however hostile; `best_effort` may name them, or "cgroup" for all of them.
NEEDS_CGROUP = ("memory", "cpu_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds on what a VM uses; None is the default, which for some is no bound at all.

    Sizes are bytes, or text such as "512M" (K, M, G, T are powers of 1024). The disk lies in memory and counts as such, so it
    must leave a quarter of `memory` to programs: a VM full of files could start none to remove them. Raises `TypeError` or
    `ValueError` naming the limit.
    """

    memory: int | str | None = None  # bytes that the VM's processes hold together; who takes more is killed
    processes: int | None = None  # at once in the VM, threads included (1024); each run but the first takes up one more
    cpu_seconds: float | None = None  # processor time of one run and everything it starts; more ends the run
    wall_seconds: float | None = None  # of one run; more ends it, and `vm.run` raises `Timeout`
    open_files: int | None = None  # of each process
    file_size: int | str | None = None  # of each file that a program writes; more is EFBIG and SIGXFSZ
    disk: int | str | None = None  # of the VM's own filesystem (1 GiB, or half of memory); more is ENOSPC
    output: int | str | None = None  # bytes kept of each output stream of a run (64 MiB); more sets `Result.truncated`

    def __post_init__(self) -> None:
        for name in ("memory", "processes", "open_files", "file_size", "disk", "output"):
            value = getattr(self, name)
            if value is not None:
                countable = name in ("processes", "open_files")
                object.__setattr__(self, name, _whole(name, value, sizes=not countable))
        for name in ("cpu_seconds", "wall_seconds"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _seconds(name, value))
        memory, disk = self.number("memory"), self.number("disk")
        if memory is not None and disk is not None and disk > memory // 4 * 3:
            raise ValueError(
                f"limit disk={disk}: the disk lies in memory, and must leave a quarter of memory={memory} to programs: "
                f"at most {memory // 4 * 3}"
            )

    def given(self) -> dict[str, int | float]:
        """The limits that were set, sizes in bytes."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}

    def number(self, name: str) -> int | None:
        """A limit other than the two times, in bytes or as a count."""
        value = getattr(self, name)
        return None if value is None else int(value)


def _whole(name: str, value: object, *, sizes: bool) -> int:
    kind = "bytes, or a size such as '512M'," if sizes else "a whole number"
    wanted = f"{kind} of {_SMALLEST[name]} or more"
    number = value
    if sizes and isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())) is not None:
        number = int(float(match[1]) * _UNITS[match[2].upper()])
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise TypeError(f"limit {name}={value!r}: must be {wanted}")
    if isinstance(number, str) or not _SMALLEST[name] <= number <= _MOST:
        raise ValueError(f"limit {name}={value!r}: must be {wanted}")
    return number


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"limit {name}={value!r}: must be a number of seconds")
    if not 0.001 <= value < 1e9 or math.isnan(value):
        raise ValueError(f"limit {name}={value!r}: must be a number of seconds from 0.001 to 1e9")
    return float(value)


def as_limits(given: Limits | Mapping[str, object] | None) -> Limits:
    """What `VM(limits=)` takes: limits, or a mapping of their names."""
    if given is None:
        return Limits()
    if isinstance(given, Limits):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"limits must be Limits(...) or a mapping of limits, not {type(given).__name__}")
    known = [field.name for field in fields(Limits)]
    for name in given:
        if name not in known:
            raise ValueError(f"{name!r} is not a limit; there are {', '.join(known)}")
    return Limits(**given)  # type: ignore[arg-type]  # checked there


def checked_best_effort(names: Iterable[str]) -> frozenset[str]:
    """The limits that the operator lets be enforced less than fully; `ValueError` for a name that means nothing here."""
    if isinstance(names, str):
        raise TypeError("best_effort must be several names, not one string")
    given = frozenset(names)
    if unknown := given - {"cgroup", *NEEDS_CGROUP}:
        raise ValueError(f"best_effort {min(unknown)!r}: must be 'cgroup', or one of the limits {', '.join(NEEDS_CGROUP)}")
    return given | frozenset(NEEDS_CGROUP if "cgroup" in given else ())
