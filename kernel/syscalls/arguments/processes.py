"""Rules on the arguments of clone, prctl, personality, seccomp and the calls that name a process to act on."""

from __future__ import annotations

from errno import EBUSY, EINVAL, EPERM

from ..decision import ALLOW, NOTIFY, Decision, Errno, Word, bits, equals, switch

# CLONE_NEWTIME is not here: its bit lies in the byte that clone(2) takes for the exit signal.
NAMESPACE_FLAGS = {
    "CLONE_NEWNS": 0x0002_0000,
    "CLONE_NEWCGROUP": 0x0200_0000,
    "CLONE_NEWUTS": 0x0400_0000,
    "CLONE_NEWIPC": 0x0800_0000,
    "CLONE_NEWUSER": 0x1000_0000,
    "CLONE_NEWPID": 0x2000_0000,
    "CLONE_NEWNET": 0x4000_0000,
}

ADDR_NO_RANDOMIZE, PERSONALITY_QUERY = 0x004_0000, 0xFFFF_FFFF

# Options of prctl(2) that only concern the caller and only look, restrict or name; no other option passes untested.
PRCTL_ALLOWED = {
    "PR_SET_PDEATHSIG": 1, "PR_GET_PDEATHSIG": 2, "PR_GET_DUMPABLE": 3, "PR_GET_KEEPCAPS": 7, "PR_SET_KEEPCAPS": 8,
    "PR_GET_TIMING": 13, "PR_SET_TIMING": 14, "PR_SET_NAME": 15, "PR_GET_NAME": 16, "PR_GET_SECCOMP": 21,
    "PR_SET_SECCOMP": 22, "PR_CAPBSET_READ": 23, "PR_CAPBSET_DROP": 24, "PR_GET_TSC": 25, "PR_SET_TSC": 26,
    "PR_GET_SECUREBITS": 27, "PR_SET_SECUREBITS": 28, "PR_SET_TIMERSLACK": 29, "PR_GET_TIMERSLACK": 30,
    "PR_SET_CHILD_SUBREAPER": 36, "PR_GET_CHILD_SUBREAPER": 37, "PR_SET_NO_NEW_PRIVS": 38, "PR_GET_NO_NEW_PRIVS": 39,
    "PR_GET_TID_ADDRESS": 40, "PR_SET_THP_DISABLE": 41, "PR_GET_THP_DISABLE": 42, "PR_GET_SPECULATION_CTRL": 52,
    "PR_SET_SPECULATION_CTRL": 53, "PR_SET_SYSCALL_USER_DISPATCH": 59, "PR_SET_MDWE": 65, "PR_GET_MDWE": 66,
    "PR_GET_AUXV": 0x4155_5856, "PR_SET_VMA": 0x5356_4D41,
}  # fmt: skip
PR_SET_DUMPABLE, PR_SET_MM, PR_CAP_AMBIENT, PR_SET_PTRACER = 4, 35, 47, 0x5961_6D61
PR_CAP_AMBIENT_RAISE = 2

SECCOMP_SET_MODE_STRICT, SECCOMP_SET_MODE_FILTER, SECCOMP_GET_ACTION_AVAIL, SECCOMP_GET_NOTIF_SIZES = 0, 1, 2, 3
SECCOMP_FILTER_FLAG_NEW_LISTENER = 1 << 3


class CloneFlags:
    """EPERM for any CLONE_NEW* flag; everything else passes.

    The kernel takes the low 32 bits of the register and nothing else as flags (clone(2), `lower_32_bits` in its source).
    """

    def __init__(self, flags: int) -> None:
        self.flags = Word(flags)

    def decide(self, _notified: frozenset[str]) -> Decision:
        return bits(self.flags, sum(NAMESPACE_FLAGS.values()), Errno(EPERM), ALLOW)


class ProcessOptions:
    """The options in PRCTL_ALLOWED pass, and PR_SET_DUMPABLE to 1, and PR_CAP_AMBIENT except to raise. PR_SET_DUMPABLE to
    anything else, PR_SET_MM and raising an ambient capability are EPERM; PR_SET_PTRACER and every other option are EINVAL.

    An undumpable guest could not be looked into by the supervisor, which would then have to refuse all it asks. PR_SET_MM
    changes what /proc shows as program and arguments. PR_SET_PTRACER invites another process to trace the caller; EINVAL is
    what a kernel without Yama answers. Core scheduling, KSM and the rest reach beyond the caller or have no use here.
    """

    def __init__(self, option: int, value: int) -> None:
        self.option = Word(option)
        self.value = value

    def decide(self, _notified: frozenset[str]) -> Decision:
        cases: dict[int, Decision] = dict.fromkeys(PRCTL_ALLOWED.values(), ALLOW)
        cases[PR_SET_DUMPABLE] = equals(self.value, 1, ALLOW, Errno(EPERM))
        cases[PR_SET_MM] = Errno(EPERM)
        cases[PR_CAP_AMBIENT] = equals(self.value, PR_CAP_AMBIENT_RAISE, Errno(EPERM), ALLOW)
        return switch(self.option, cases, Errno(EINVAL))


class PersonalityQuery:
    """Asking (0xffffffff), the plain Linux personality and ADDR_NO_RANDOMIZE pass; everything else is EPERM.

    READ_IMPLIES_EXEC and its kin switch protections off for every later program.
    """

    def __init__(self, persona: int) -> None:
        self.persona = Word(persona)

    def decide(self, _notified: frozenset[str]) -> Decision:
        harmless: dict[int, Decision] = dict.fromkeys((0, ADDR_NO_RANDOMIZE, PERSONALITY_QUERY), ALLOW)
        return switch(self.persona, harmless, Errno(EPERM))


class GuestFilter:
    """Installing a filter or strict mode and asking what is there pass; a filter with a listener is EBUSY; other operations
    are EINVAL.

    A filter can only take away: of all filters the strictest answer counts, so one of the guest's own cannot allow what ours
    refuses. A listener is refused by the kernel too, with the same errno, because one process tree can have only one.
    """

    def __init__(self, operation: int, flags: int) -> None:
        self.operation = Word(operation)
        self.flags = Word(flags)

    def decide(self, _notified: frozenset[str]) -> Decision:
        install = bits(self.flags, SECCOMP_FILTER_FLAG_NEW_LISTENER, Errno(EBUSY), ALLOW)
        return switch(
            self.operation,
            {
                SECCOMP_SET_MODE_STRICT: ALLOW,
                SECCOMP_SET_MODE_FILTER: install,
                SECCOMP_GET_ACTION_AVAIL: ALLOW,
                SECCOMP_GET_NOTIF_SIZES: ALLOW,
            },
            Errno(EINVAL),
        )


INIT = 1  # the VM's own first process, which has the guests' user id: the kernel would let them limit it


class OnItself:
    """On the caller itself (pid 0) it passes, on pid 1 it is EPERM; on another named process it is notified when process is
    judged, and passes when it is not.

    A pid is an int, so the low half decides. The caller's own pid counts as named: the supervisor knows it, the filter does not.
    Pid 1 is the VM's own: a processor limit, say, would end it, and with it the VM.
    """

    def __init__(self, pid: int) -> None:
        self.pid = Word(pid)

    def decide(self, notified: frozenset[str]) -> Decision:
        return switch(self.pid, {0: ALLOW, INIT: Errno(EPERM)}, NOTIFY if "process" in notified else ALLOW)


class PriorityOf:
    """On the caller itself (the kind that means a process, number 0) it passes, on process 1 it is EPERM; on anything else it
    is notified when process is judged, and passes when it is not.
    """

    def __init__(self, kind: int, who: int, one_process: int) -> None:
        self.kind = Word(kind)
        self.who = Word(who)
        self.one_process = one_process  # the kind that means a single process

    def decide(self, notified: frozenset[str]) -> Decision:
        other = NOTIFY if "process" in notified else ALLOW
        process = switch(self.who, {0: ALLOW, INIT: Errno(EPERM)}, other)
        return switch(self.kind, {self.one_process: process}, other)


class OnlyItself:
    """On the caller itself (pid 0) it passes; on a named process it is EPERM."""

    def __init__(self, pid: int) -> None:
        self.pid = Word(pid)

    def decide(self, _notified: frozenset[str]) -> Decision:
        return switch(self.pid, {0: ALLOW}, Errno(EPERM))
