"""Calls that administer the machine or open up more of the kernel.

No guest has the capabilities most of them need. They are refused before the kernel looks at them, so that a fault in one is
out of reach too.
"""

from __future__ import annotations

from errno import ENOSYS, EPERM

from ..arguments.devices import IoctlCommands
from ..decision import Errno
from ..row import Syscall

KEYRINGS = "keyrings are shared by all processes of a user, in the VM or not"
HOST = "administers the host"

ROWS = (
    Syscall(16, "ioctl", ("network",), "net_interface", IoctlCommands(command=1), why="only commands known to be harmless"),
    Syscall(103, "syslog", otherwise=Errno(EPERM), why=HOST),
    Syscall(153, "vhangup", otherwise=Errno(EPERM), why="no guest has the capability for it"),
    Syscall(154, "modify_ldt", otherwise=Errno(EPERM), why="opens the hardware, or a wide attack surface"),
    Syscall(156, "_sysctl", otherwise=Errno(ENOSYS), why="removed from the kernel"),
    Syscall(163, "acct", otherwise=Errno(EPERM), why=HOST),
    Syscall(167, "swapon", otherwise=Errno(EPERM), why=HOST),
    Syscall(168, "swapoff", otherwise=Errno(EPERM), why=HOST),
    Syscall(169, "reboot", otherwise=Errno(EPERM), why=HOST),
    Syscall(170, "sethostname", otherwise=Errno(EPERM), why="the VM's name is the operator's choice"),
    Syscall(171, "setdomainname", otherwise=Errno(EPERM), why="the VM's name is the operator's choice"),
    Syscall(172, "iopl", otherwise=Errno(EPERM), why="opens the hardware, or a wide attack surface"),
    Syscall(173, "ioperm", otherwise=Errno(EPERM), why="opens the hardware, or a wide attack surface"),
    Syscall(174, "create_module", otherwise=Errno(ENOSYS), why="removed from the kernel"),
    Syscall(175, "init_module", otherwise=Errno(EPERM), why=HOST),
    Syscall(176, "delete_module", otherwise=Errno(EPERM), why=HOST),
    Syscall(177, "get_kernel_syms", otherwise=Errno(ENOSYS), why="removed from the kernel"),
    Syscall(178, "query_module", otherwise=Errno(ENOSYS), why="removed from the kernel"),
    Syscall(180, "nfsservctl", otherwise=Errno(ENOSYS), why="removed from the kernel"),
    Syscall(181, "getpmsg", otherwise=Errno(ENOSYS), why="never implemented"),
    Syscall(182, "putpmsg", otherwise=Errno(ENOSYS), why="never implemented"),
    Syscall(183, "afs_syscall", otherwise=Errno(ENOSYS), why="never implemented"),
    Syscall(184, "tuxcall", otherwise=Errno(ENOSYS), why="never implemented"),
    Syscall(185, "security", otherwise=Errno(ENOSYS), why="never implemented"),
    Syscall(236, "vserver", otherwise=Errno(ENOSYS), why="never implemented"),
    Syscall(246, "kexec_load", otherwise=Errno(EPERM), why=HOST),
    Syscall(248, "add_key", otherwise=Errno(EPERM), why=KEYRINGS),
    Syscall(249, "request_key", otherwise=Errno(EPERM), why=KEYRINGS),
    Syscall(250, "keyctl", otherwise=Errno(EPERM), why=KEYRINGS),
    Syscall(298, "perf_event_open", otherwise=Errno(EPERM), why="loads programs into the kernel, or watches it"),
    Syscall(313, "finit_module", otherwise=Errno(EPERM), why=HOST),
    Syscall(320, "kexec_file_load", otherwise=Errno(EPERM), why=HOST),
    Syscall(321, "bpf", otherwise=Errno(EPERM), why="loads programs into the kernel, or watches it"),
    Syscall(470, "listns", otherwise=Errno(ENOSYS), why="shows namespaces outside the VM"),
)
