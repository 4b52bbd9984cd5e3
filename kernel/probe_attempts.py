"""Tries on this host what a VM is made of, in a process of its own whose end undoes everything; prints JSON.

Run as a script by kernel/probe.py. It first gives up root, if it has it, because a VM is made without it too. Every
answer is 0 for "worked" or the errno of the call that did not; `landlock_abi` is a version, 0 for "none".
"""

import ctypes
import errno
import json
import os
import signal
import sys

UNPRIVILEGED_ID = 65534

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
INSIDE = {
    "mount": CLONE_NEWNS,
    "pid": CLONE_NEWPID,
    "net": CLONE_NEWNET,
    "ipc": CLONE_NEWIPC,
    "uts": CLONE_NEWUTS,
    "cgroup": CLONE_NEWCGROUP,
}

# Numbers by `uname -m`; the two calls have no wrapper in libc.
NUMBERS = {
    "x86_64": {"seccomp": 317, "landlock_create_ruleset": 444},
    "aarch64": {"seccomp": 277, "landlock_create_ruleset": 444},
}

SECCOMP_SET_MODE_FILTER, SECCOMP_GET_ACTION_AVAIL = 1, 2
SECCOMP_RET_USER_NOTIF, SECCOMP_RET_ALLOW = 0x7FC00000, 0x7FFF0000
FLAG_NEW_LISTENER, FLAG_WAIT_KILLABLE_RECV = 1 << 3, 1 << 5
BPF_RET_K = 0x06
LANDLOCK_CREATE_RULESET_VERSION = 1
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
PTRACE_SEIZE = 0x4206

libc = ctypes.CDLL(None, use_errno=True)


class SockFilter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(SockFilter)))


def failure(result: int) -> int:
    return ctypes.get_errno() if result < 0 else 0


def call(name: str, *arguments: object) -> int:
    number = NUMBERS.get(os.uname().machine, {}).get(name)
    if number is None:
        ctypes.set_errno(errno.ENOSYS)
        return -1
    return int(libc.syscall(ctypes.c_long(number), *arguments))


def give_up_root() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        os.setresuid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # the change of id switched it off, and with it tracing


def try_ptrace() -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
    result = failure(libc.ptrace(ctypes.c_long(PTRACE_SEIZE), ctypes.c_long(child), None, None))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return result


def try_listener() -> int:
    """A filter that allows everything but owns a listener: fails where another supervisor already owns one."""
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    program = (SockFilter * 1)(SockFilter(BPF_RET_K, 0, 0, SECCOMP_RET_ALLOW))
    wanted = ctypes.c_ulong(FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV)
    fprog = SockFprog(1, ctypes.cast(program, ctypes.POINTER(SockFilter)))
    return failure(call("seccomp", ctypes.c_long(SECCOMP_SET_MODE_FILTER), wanted, ctypes.byref(fprog)))


def main() -> None:
    give_up_root()
    notify = ctypes.c_uint(SECCOMP_RET_USER_NOTIF)
    flags = ctypes.c_ulong(LANDLOCK_CREATE_RULESET_VERSION)
    report: dict[str, object] = {
        "ptrace": try_ptrace(),
        "seccomp_notify": failure(
            call("seccomp", ctypes.c_long(SECCOMP_GET_ACTION_AVAIL), ctypes.c_ulong(0), ctypes.byref(notify))
        ),
        "landlock_abi": max(0, call("landlock_create_ruleset", None, ctypes.c_size_t(0), flags)),
    }
    user = failure(libc.unshare(CLONE_NEWUSER))
    report["namespaces"] = {"user": user} | {
        # Without the user namespace the others would only repeat its failure.
        name: user or failure(libc.unshare(flag))
        for name, flag in INSIDE.items()
    }
    report["seccomp_listener"] = try_listener()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
