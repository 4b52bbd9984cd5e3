"""Calls on the caller's own memory, and the shared memory and message queues of the VM.

Memory of one's own is nobody's business. The queues and segments of System V and POSIX are refused: programs rarely need
them, they are counted by no limit, and the kernel code behind them is old.
"""

from __future__ import annotations

from errno import EACCES, ENOSYS, EPERM

from ..arguments.memory import MemoryFile
from ..decision import Errno
from ..row import Syscall

PLACEMENT = "where memory lies is the host's business"
SYSTEM_V = "SysV objects outlive their process and are counted by no limit"
MESSAGE_QUEUE = "these queues are files that no path rule sees"

ROWS = (
    Syscall(9, "mmap"),
    Syscall(10, "mprotect"),
    Syscall(11, "munmap"),
    Syscall(12, "brk"),
    Syscall(25, "mremap"),
    Syscall(26, "msync"),
    Syscall(27, "mincore"),
    Syscall(28, "madvise"),
    Syscall(29, "shmget", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(30, "shmat", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(31, "shmctl", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(64, "semget", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(65, "semop", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(66, "semctl", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(67, "shmdt", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(68, "msgget", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(69, "msgsnd", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(70, "msgrcv", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(71, "msgctl", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(149, "mlock"),
    Syscall(150, "munlock"),
    Syscall(151, "mlockall"),
    Syscall(152, "munlockall"),
    Syscall(216, "remap_file_pages", otherwise=Errno(ENOSYS), why="obsolete"),
    Syscall(220, "semtimedop", otherwise=Errno(EACCES), why=SYSTEM_V),
    Syscall(237, "mbind", otherwise=Errno(EPERM), why=PLACEMENT),
    Syscall(238, "set_mempolicy", otherwise=Errno(EPERM), why=PLACEMENT),
    Syscall(239, "get_mempolicy"),
    Syscall(240, "mq_open", otherwise=Errno(EACCES), why=MESSAGE_QUEUE),
    Syscall(241, "mq_unlink", otherwise=Errno(EACCES), why=MESSAGE_QUEUE),
    Syscall(242, "mq_timedsend", otherwise=Errno(EACCES), why=MESSAGE_QUEUE),
    Syscall(243, "mq_timedreceive", otherwise=Errno(EACCES), why=MESSAGE_QUEUE),
    Syscall(244, "mq_notify", otherwise=Errno(EACCES), why=MESSAGE_QUEUE),
    Syscall(245, "mq_getsetattr", otherwise=Errno(EACCES), why=MESSAGE_QUEUE),
    Syscall(256, "migrate_pages", otherwise=Errno(EPERM), why=PLACEMENT),
    Syscall(279, "move_pages", otherwise=Errno(EPERM), why=PLACEMENT),
    Syscall(
        319,
        "memfd_create",
        ("noexec",),
        "memory_file",
        MemoryFile(flags=1),
        why="running one is judged as childProcess when it is executed",
    ),
    Syscall(323, "userfaultfd", otherwise=Errno(ENOSYS), why="lets a guest hold up whoever reads its memory"),
    Syscall(325, "mlock2"),
    Syscall(329, "pkey_mprotect"),
    Syscall(330, "pkey_alloc"),
    Syscall(331, "pkey_free"),
    Syscall(447, "memfd_secret", otherwise=Errno(ENOSYS), why="the supervisor could not read arguments from it"),
    Syscall(450, "set_mempolicy_home_node", otherwise=Errno(EPERM), why=PLACEMENT),
    Syscall(453, "map_shadow_stack"),
    Syscall(462, "mseal"),
)
