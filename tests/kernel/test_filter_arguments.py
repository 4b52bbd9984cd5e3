"""Where arguments decide, the filter answers what the manual pages say, for boundary values in both halves."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import termios
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, combinations, product

import pytest

from callgate.kernel.confinement import bpf
from callgate.kernel.confinement.filter import RET_ALLOW, RET_ERRNO, RET_USER_NOTIF, filter_program
from callgate.kernel.syscalls.arguments import devices
from callgate.kernel.syscalls.decision import Outcome
from callgate.kernel.syscalls.row import TRIGGERS
from callgate.kernel.syscalls.table import SYSCALLS, by_name

BOUNDARIES = (0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1)
GARBAGE_ABOVE = (0, 1 << 32, 0xFFFF_FFFF << 32)  # added to what the kernel takes as 32 bits

Oracle = Callable[..., int]
Arguments = Iterable[tuple[int, ...]]


def refused(number: int) -> int:
    return RET_ERRNO | number


def low(value: int) -> int:
    return value & 0xFFFF_FFFF


def with_garbage(values: Iterable[int]) -> list[int]:
    return [value + above for value in values for above in GARBAGE_ABOVE]


def marks_setid(notified: frozenset[str], mode: int) -> bool:
    """A mode that no file may get while a directory of the host is writable."""
    return "setid" in notified and bool(mode & (stat.S_ISUID | stat.S_ISGID))


def opened(notified: frozenset[str], flags: int, mode: int) -> int:
    """open(2): which operations of the policy the flags need, and whether there is a mode at all."""
    flags = low(flags)
    if flags & (os.O_CREAT | (os.O_TMPFILE & ~os.O_DIRECTORY)) and marks_setid(notified, mode):
        return refused(errno.EPERM)
    needs: set[str] = set()
    if flags & os.O_PATH:
        needs.add("fs.stat")
    else:
        mode = flags & os.O_ACCMODE
        if mode in (os.O_WRONLY, os.O_RDWR, os.O_ACCMODE):
            needs.add("fs.write")
        if mode in (os.O_RDWR, os.O_ACCMODE):
            needs.add("fs.read")
        if mode == os.O_RDONLY:
            only_a_listing = flags & os.O_DIRECTORY and not flags & os.O_CREAT
            needs |= {"fs.readdir"} if only_a_listing else {"fs.read", "fs.readdir"}
        if flags & (os.O_CREAT | (os.O_TMPFILE & ~os.O_DIRECTORY)):
            needs.add("fs.write")
        if flags & os.O_TRUNC:
            needs |= {"fs.truncate", "fs.write"}
    return RET_USER_NOTIF if needs & notified else RET_ALLOW


def of_open(notified: frozenset[str], _path: int, flags: int, mode: int) -> int:
    return opened(notified, flags, mode)


def of_openat(notified: frozenset[str], _dirfd: int, _path: int, flags: int, mode: int) -> int:
    return opened(notified, flags, mode)


def with_mode(position: int, *operations: str) -> Oracle:
    """chmod(2), mknod(2), creat(2): the operations they are, and where the mode stands."""

    def oracle(notified: frozenset[str], *arguments: int) -> int:
        if marks_setid(notified, arguments[position]):
            return refused(errno.EPERM)
        return RET_USER_NOTIF if notified.intersection(operations) else RET_ALLOW

    return oracle


def of_fcntl(notified: frozenset[str], _fd: int, command: int, argument: int) -> int:
    command = low(command)
    if "process" in notified and (
        command == 15
        or (command == fcntl.F_SETOWN and low(argument))
        or (command == fcntl.F_SETFL and low(argument) & os.O_ASYNC)
    ):
        return refused(errno.EACCES)
    if command in (fcntl.F_SETLEASE, 1040):
        return refused(errno.EINVAL)
    if command in (37, 38) and any(trigger.startswith("fs.") for trigger in notified):  # F_OFD_SETLK, F_OFD_SETLKW
        return RET_USER_NOTIF
    return RET_ALLOW


def of_socket(notified: frozenset[str], family: int, kind: int, protocol: int) -> int:
    family, kind, protocol = low(family), low(kind) & ~(socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC), low(protocol)
    known = (
        family == socket.AF_UNIX
        or (family == socket.AF_NETLINK and protocol == 0)
        or (
            family in (socket.AF_INET, socket.AF_INET6)
            and kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
            and protocol in (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP)
        )
    )
    if known:
        return RET_ALLOW
    return RET_USER_NOTIF if "network" in notified else refused(errno.EACCES)


def of_socketpair(_notified: frozenset[str], family: int) -> int:
    return RET_ALLOW if low(family) == socket.AF_UNIX else refused(errno.EACCES)


def judged_send(notified: frozenset[str]) -> bool:
    return "network" in notified or any(trigger.startswith("fs.") for trigger in notified)


def of_sendto(notified: frozenset[str], _fd: int, _data: int, _length: int, flags: int, address: int, _size: int) -> int:
    if flags & socket.MSG_FASTOPEN:
        return RET_USER_NOTIF if "network" in notified else refused(errno.EACCES)
    return RET_USER_NOTIF if address and judged_send(notified) else RET_ALLOW


def of_sendmsg(notified: frozenset[str], _fd: int, _message: int, flags: int) -> int:
    if flags & socket.MSG_FASTOPEN:
        return RET_USER_NOTIF if "network" in notified else refused(errno.EACCES)
    return RET_USER_NOTIF if judged_send(notified) else RET_ALLOW


def of_sendmmsg(notified: frozenset[str], fd: int, messages: int, _count: int, flags: int) -> int:
    return of_sendmsg(notified, fd, messages, flags)


DANGEROUS = {
    (1, 25), (1, 26), (1, 27), (1, 32), (1, 33), (1, 36), (1, 44), (1, 50), (1, 51), (1, 52), (1, 62),
    (0, 4), (0, 15), (0, 16), (0, 17), (0, 19), (0, 32), (0, 35), (0, 39), (0, 42), (0, 46), (0, 50), (0, 51), (0, 64), (0, 65),
    (0, 96), (0, 97), (0, 128), (0, 129),
    (6, 19), (6, 20), (6, 21), (6, 22), (6, 29), (6, 30), (6, 31), (6, 42), (17, 100),
    (41, 6), (41, 17), (41, 20), (41, 27), (41, 34), (41, 35), (41, 42), (41, 46), (41, 50), (41, 57), (41, 64), (41, 65),
    (41, 75), (41, 76), (41, 78),
}  # fmt: skip


def of_setsockopt(notified: frozenset[str], _fd: int, level: int, option: int) -> int:
    if low(level) not in (0, 1, 6, 17, 41, 270):
        return refused(errno.ENOPROTOOPT)
    if (low(level), low(option)) == (1, 76):  # SO_PASSPIDFD
        return refused(errno.ENOPROTOOPT)
    if (low(level), low(option)) not in DANGEROUS:
        return RET_ALLOW
    return RET_USER_NOTIF if "network" in notified else refused(errno.EPERM)


def of_getsockopt(_notified: frozenset[str], _fd: int, level: int, option: int) -> int:
    return refused(errno.ENOPROTOOPT) if (low(level), low(option)) == (1, 77) else RET_ALLOW  # SO_PEERPIDFD


def of_clone(_notified: frozenset[str], flags: int) -> int:
    new = 0x2_0000 | 0x200_0000 | 0x400_0000 | 0x800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000
    return refused(errno.EPERM) if flags & new else RET_ALLOW


def of_prctl(_notified: frozenset[str], option: int, value: int) -> int:
    option = low(option)
    if option == 4:  # PR_SET_DUMPABLE
        return RET_ALLOW if value == 1 else refused(errno.EPERM)
    if option == 47:  # PR_CAP_AMBIENT
        return refused(errno.EPERM) if value == 2 else RET_ALLOW
    if option == 35:  # PR_SET_MM
        return refused(errno.EPERM)
    harmless = {1, 2, 3, 7, 8, *range(13, 17), *range(21, 31), *range(36, 43), 52, 53, 59, 65, 66, 0x4155_5856, 0x5356_4D41}
    return RET_ALLOW if option in harmless else refused(errno.EINVAL)


def of_personality(_notified: frozenset[str], persona: int) -> int:
    return RET_ALLOW if low(persona) in (0, 0x4_0000, 0xFFFF_FFFF) else refused(errno.EPERM)


def of_seccomp(_notified: frozenset[str], operation: int, flags: int) -> int:
    if low(operation) > 3:
        return refused(errno.EINVAL)
    return refused(errno.EBUSY) if low(operation) == 1 and flags & 8 else RET_ALLOW


def on_itself(notified: frozenset[str], pid: int) -> int:
    if low(pid) == 1:
        return refused(errno.EPERM)
    return RET_USER_NOTIF if low(pid) and "process" in notified else RET_ALLOW


def of_setpriority(notified: frozenset[str], kind: int, who: int) -> int:
    if low(kind) == os.PRIO_PROCESS and low(who) == 1:
        return refused(errno.EPERM)
    return RET_USER_NOTIF if (low(kind) != os.PRIO_PROCESS or low(who)) and "process" in notified else RET_ALLOW


def of_ioprio_set(notified: frozenset[str], kind: int, who: int) -> int:
    if low(kind) == 1 and low(who) == 1:
        return refused(errno.EPERM)
    return RET_USER_NOTIF if (low(kind) != 1 or low(who)) and "process" in notified else RET_ALLOW


def of_memfd_create(notified: frozenset[str], _name: int, flags: int) -> int:
    if "noexec" not in notified or (flags & 0x18) == 8:  # MFD_NOEXEC_SEAL alone
        return RET_ALLOW
    return refused(errno.EACCES) if flags & 0x10 else RET_USER_NOTIF


def only_itself(_notified: frozenset[str], pid: int) -> int:
    return refused(errno.EPERM) if low(pid) else RET_ALLOW


def of_ioctl(notified: frozenset[str], _fd: int, command: int) -> int:
    command = low(command)
    if command in devices.TERMINAL_ATTACKS.values() or command >> 8 in (0x4B, 0x56):
        return refused(errno.EPERM)
    if command in devices.FILE_ATTRIBUTES.values():
        return refused(errno.EACCES)
    if command in devices.INTERFACE.values():
        return RET_USER_NOTIF if "network" in notified else RET_ALLOW
    if command in devices.SIGNALLING.values():
        return refused(errno.EACCES) if "process" in notified else RET_ALLOW
    passes = {*devices.TERMINAL.values(), *devices.FILE.values(), *devices.SOCKET.values()}
    return RET_ALLOW if command in passes else refused(errno.ENOTTY)


OPEN_BITS = (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_DIRECTORY, os.O_PATH, os.O_TMPFILE, os.O_APPEND | os.O_CLOEXEC)
OPEN_FLAGS = [sum(set(chosen)) for size in range(9) for chosen in combinations(OPEN_BITS, size)]
OPEN_FLAGS = sorted({flags & 0x7FFF_FFFF for flags in OPEN_FLAGS} | set(BOUNDARIES))

# A mode is 16 bits wide; the register above them, and a file type in them, tell nothing about the two bits.
MODES = with_garbage([0, 0o644, 0o755, 0o1777, 0o7777, 0o2755, 0o4755, 0o6755, *(1 << bit for bit in range(32))])
MODES += [kind | mode for kind in (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK) for mode in (0o644, 0o2644, 0o4644, 0o7777)]
OPEN_MODES = (0o1777, 0o2644, 0o4644, 0xFFFF_FFFF_0000_0000)

MSG_FLAGS = with_garbage([0, socket.MSG_FASTOPEN, socket.MSG_DONTWAIT, socket.MSG_DONTWAIT | socket.MSG_FASTOPEN])
LEVELS = [0, 1, 2, 6, 17, 41, 58, 132, 136, 255, 262, 263, 270, 282, 284, 2**31, 2**32 - 1, 2**32 + 1, 2**63 + 6]
OPTIONS = [*range(135), 2**31, 2**32 - 1, 2**32 + 25, 2**63 + 36]
FAMILIES = [*range(48), 2**31 + 2, 2**32 + 1, 2**32 + 2, 2**63 + 10, 2**63 + 17]
KINDS = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    10,
    1 | 0x100,
    1 | socket.SOCK_CLOEXEC,
    2 | socket.SOCK_NONBLOCK,
    0o2004001,
    2**31 | 1,
    2**32 + 3,
    2**63 + 1,
]
PROTOCOLS = [0, 1, 6, 17, 58, 132, 136, 255, 262, 2**31, 2**32, 2**63 + 6, 2**32 + 262]
PIDS = [*BOUNDARIES, 42, 2**32 + 42]
COMMANDS = with_garbage(
    [*range(0x5400, 0x5480), *range(0x8900, 0x8980), *range(0x4B00, 0x4C02), *range(0x55FF, 0x5702), 0, 1, 2, 3]
    + [
        value + around
        for table in (devices.TERMINAL, devices.FILE, devices.SIGNALLING, devices.FILE_ATTRIBUTES)
        for value in table.values()
        for around in (-1, 0, 1)
    ]
)

# name -> what to expect, and the argument lists to try
RULES: dict[str, tuple[Oracle, Arguments]] = {
    "open": (of_open, [(7, *both) for both in product(OPEN_FLAGS, OPEN_MODES)]),
    "openat": (of_openat, [(7, 7, *both) for both in product([*OPEN_FLAGS, *with_garbage([0, 1, 2, 3, 0o100])], OPEN_MODES)]),
    "creat": (with_mode(1, "fs.write", "fs.truncate"), [(7, mode) for mode in MODES]),
    "mknod": (with_mode(1, "fs.write"), [(7, mode, 0) for mode in MODES]),
    "mknodat": (with_mode(2, "fs.write"), [(7, 7, mode, 0) for mode in MODES]),
    "chmod": (with_mode(1, "fs.chmod"), [(7, mode) for mode in MODES]),
    "fchmod": (with_mode(1, "fs.chmod"), [(7, mode) for mode in MODES]),
    "fchmodat": (with_mode(2, "fs.chmod"), [(7, 7, mode) for mode in MODES]),
    "fchmodat2": (with_mode(2, "fs.chmod"), [(7, 7, mode, 0) for mode in MODES]),
    "fcntl": (of_fcntl, list(product([3], with_garbage([*range(20), *range(34, 41), *range(1020, 1045)]), BOUNDARIES))),
    "socket": (of_socket, list(product(FAMILIES, KINDS, PROTOCOLS))),
    "socketpair": (of_socketpair, [(family,) for family in with_garbage(range(50))]),
    "sendto": (of_sendto, [(3, 9, 1, flags, address, 16) for flags in MSG_FLAGS for address in BOUNDARIES]),
    "sendmsg": (of_sendmsg, [(3, 9, flags) for flags in MSG_FLAGS]),
    "sendmmsg": (of_sendmmsg, [(3, 9, socket.MSG_FASTOPEN, flags) for flags in MSG_FLAGS]),
    "setsockopt": (of_setsockopt, list(product([3], LEVELS, OPTIONS))),
    "getsockopt": (of_getsockopt, list(product([3], LEVELS, OPTIONS))),
    "clone": (of_clone, [(flag + above,) for flag in (0, *(1 << bit for bit in range(32)), 0x3D0F00) for above in GARBAGE_ABOVE]),
    "prctl": (of_prctl, list(product(with_garbage([*range(90), 0x5961_6D61, 0x4155_5856, 0x5356_4D41, 2**31]), BOUNDARIES))),
    "personality": (
        of_personality,
        [(value,) for value in with_garbage([0, 4, 8, 0x2_0000, 0x4_0000, 0x4_0001, 0x40_0000, 2**32 - 1])],
    ),
    "seccomp": (of_seccomp, list(product(with_garbage(range(6)), with_garbage([0, 1, 2, 4, 8, 9, 16, 32, 2**31])))),
    "prlimit64": (on_itself, [(pid,) for pid in PIDS]),
    "sched_setaffinity": (on_itself, [(pid,) for pid in PIDS]),
    "sched_setscheduler": (on_itself, [(pid,) for pid in PIDS]),
    "sched_setparam": (on_itself, [(pid,) for pid in PIDS]),
    "sched_setattr": (on_itself, [(pid,) for pid in PIDS]),
    "setpriority": (of_setpriority, list(product(BOUNDARIES, PIDS))),
    "ioprio_set": (of_ioprio_set, list(product(BOUNDARIES, PIDS))),
    "memfd_create": (of_memfd_create, [(7, flags) for flags in with_garbage([*range(64), 0x100, 2**31])]),
    "get_robust_list": (only_itself, [(pid,) for pid in PIDS]),
    "ioctl": (of_ioctl, [(0, command) for command in COMMANDS]),
}

OPEN_TRIGGERS = ("fs.read", "fs.readdir", "fs.write", "fs.truncate", "fs.stat")


def combinations_for_open() -> Iterator[frozenset[str]]:
    yield from map(frozenset, chain.from_iterable(combinations(OPEN_TRIGGERS, size) for size in range(1, 6)))


OTHER_SETS = [(), ("network",), ("process",), ("fs.chmod",), ("fs.chmod", "process"), ("network", "fs.rm"), tuple(TRIGGERS)]
OTHER_SETS += [
    ("noexec",),
    ("setid",),
    ("setid", "fs.chmod"),
    ("setid", "fs.write"),
    ("setid", "fs.truncate"),
    ("setid", "fs.stat"),
]
PROGRAMS = {notified: filter_program(notified) for notified in map(frozenset, OTHER_SETS)}
OPEN_PROGRAMS = PROGRAMS | {notified: filter_program(notified) for notified in combinations_for_open()}


def test_every_rule_of_the_table_has_an_oracle() -> None:
    assert set(RULES) == {row.name for row in SYSCALLS if not isinstance(row.otherwise, Outcome)}


@pytest.mark.parametrize("name", RULES)
def test_arguments_decide_as_the_manual_pages_say(name: str) -> None:
    expected, arguments = RULES[name]
    number = by_name[name].number
    for notified, program in (OPEN_PROGRAMS if name.startswith("open") else PROGRAMS).items():
        for one in arguments:
            wanted = expected(notified, *one)
            assert bpf.run(program, bpf.data(number, one)) == wanted, (sorted(notified), one)


@pytest.mark.parametrize("name", RULES)
def test_boundary_values_in_every_argument_decide_as_the_manual_pages_say(name: str) -> None:
    expected, arguments = RULES[name]
    count = len(next(iter(arguments)))
    for notified, program in PROGRAMS.items():
        for value in BOUNDARIES:
            wanted = expected(notified, *[value] * count)
            assert bpf.run(program, bpf.data(by_name[name].number, [value] * 6)) == wanted, (sorted(notified), value)


@pytest.mark.parametrize("name", ["open", "openat"])
def test_modes_decide_an_open_only_where_it_may_create(name: str) -> None:
    oracle, _ = RULES[name]
    ahead = (7,) * (name == "openat") + (7,)
    program = PROGRAMS[frozenset({"setid"})]
    making, opening = (os.O_CREAT, os.O_TMPFILE & ~os.O_DIRECTORY, os.O_CREAT | os.O_EXCL | os.O_RDWR), (0, os.O_RDWR, os.O_TRUNC)
    for flags, mode in product((*making, *opening), MODES):
        answer = bpf.run(program, bpf.data(by_name[name].number, (*ahead, flags, mode)))
        assert answer == oracle(frozenset({"setid"}), *ahead, flags, mode)
        assert (answer == refused(errno.EPERM)) == (flags in making and bool(mode & 0o6000)), (flags, mode)


@pytest.mark.parametrize("command", [termios.TIOCSTI, termios.TIOCCONS, 0x541C, 0x4B46, 0x5606])
@pytest.mark.parametrize("above", GARBAGE_ABOVE)
def test_garbage_above_an_ioctl_command_does_not_hide_it(command: int, above: int) -> None:
    for program in PROGRAMS.values():
        assert bpf.run(program, bpf.data(by_name["ioctl"].number, [0, command + above])) == refused(errno.EPERM)


def test_the_terminal_calls_of_ordinary_programs_pass() -> None:
    names = """
        TCGETS TCSETS TCSETSW TCSETSF TIOCGWINSZ TIOCSWINSZ TIOCSCTTY TIOCNOTTY TIOCGPGRP TIOCSPGRP FIONREAD FIONBIO
        FIOCLEX FIONCLEX TCFLSH TCXONC TCSBRK TIOCOUTQ TIOCGSID TIOCEXCL TIOCPKT
    """
    program = filter_program(frozenset(TRIGGERS))
    for name in names.split():
        command = getattr(termios, name, None)
        if command is not None:
            assert bpf.run(program, bpf.data(by_name["ioctl"].number, [0, command])) == RET_ALLOW, name
