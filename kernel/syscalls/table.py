"""Every x86-64 system call up to Linux 7.1 with what becomes of it: the source of the filter, the C table and the documentation.

Numbers are those of the kernel's `syscall_64.tbl`. A number without a row (337 to 423 were never assigned, newer ones are not
known yet) fails with ENOSYS.
"""

from __future__ import annotations

from .groups import events, files, kernel, memory, network, processes
from .row import Syscall

GROUPS = (files, processes, network, memory, events, kernel)

SYSCALLS: tuple[Syscall, ...] = tuple(sorted((row for group in GROUPS for row in group.ROWS), key=lambda row: row.number))
by_number: dict[int, Syscall] = {row.number: row for row in SYSCALLS}
by_name: dict[str, Syscall] = {row.name: row for row in SYSCALLS}
