"""What a supervisor holds: descriptors and threads, seen from the host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.contracts.host_processes import until

if TYPE_CHECKING:
    from callgate import VM

#: Each worker keeps a descriptor of the last caller it took one from; so many workers wait once calls are done with.
KEPT_BY_WORKERS: Final = 4


def open_descriptors(vm: VM) -> int:
    """How many descriptors the supervisor has; its /proc/fd is closed to all but root, but its size tells (Linux 6.2)."""
    return Path(f"/proc/{vm.status().supervisor_pid}/fd").stat().st_size


def gives_back(vm: VM, before: int) -> bool:
    """Whether it soon holds no more descriptors than *before*."""
    return until(lambda: open_descriptors(vm) <= before + KEPT_BY_WORKERS)
