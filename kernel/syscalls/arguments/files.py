"""Rules on the arguments of open and fcntl, and on the mode that a call gives a file."""

from __future__ import annotations

from errno import EACCES, EINVAL, EPERM

from ..decision import ALLOW, NOTIFY, Decision, Errno, Word, bits, switch
from ..row import ANY_FS, SETID

O_WRONLY, O_RDWR, O_ACCMODE = 0o1, 0o2, 0o3
O_CREAT, O_TRUNC, O_DIRECTORY = 0o100, 0o1000, 0o200000
O_PATH, O_TMPFILE_BIT = 0o10000000, 0o20000000  # O_TMPFILE itself also holds O_DIRECTORY
S_ISUID, S_ISGID = 0o4000, 0o2000

F_OFD_SETLK, F_OFD_SETLKW = 37, 38
F_SETFL, F_SETOWN, F_SETOWN_EX, F_SETLEASE, F_SETDELEG = 4, 8, 15, 1024, 1040
O_ASYNC = 0o20000


class FileMode:
    """When a directory of the host is writable (setid), a mode with the set-user-ID or set-group-ID bit is EPERM. With any other
    mode the call is notified when what it is judged as is, and passes when it is not.

    What a guest leaves in a host's directory is owned by the operator there, so that a program with such a bit would run with the
    operator's rights, whoever starts it. The kernel takes no bit of the mode from the high half of the register (umode_t).
    """

    def __init__(self, mode: int, judged: tuple[str, ...]) -> None:
        self.mode = Word(mode)
        self.judged = judged

    def decide(self, notified: frozenset[str]) -> Decision:
        return _without_setid(self.mode, notified, NOTIFY if notified.intersection(self.judged) else ALLOW)


def _without_setid(mode: Word, notified: frozenset[str], otherwise: Decision) -> Decision:
    return bits(mode, S_ISUID | S_ISGID, Errno(EPERM), otherwise) if SETID in notified else otherwise


class OpenFlags:
    """Notified only if the flags ask for something that is judged: the access mode and O_DIRECTORY tell read and readdir,
    writing and creating flags write, O_TRUNC truncate and write, O_PATH stat. When a directory of the host is writable
    (setid), creating with the set-user-ID or set-group-ID bit in the mode is EPERM.

    The flags are an int, so the high half of the register means nothing to the kernel (open(2)). Access mode 3 is taken for
    reading and writing, which is what the kernel checks it as. Without O_CREAT and O_TMPFILE the register of the mode holds
    whatever the caller had in it.
    """

    def __init__(self, flags: int, mode: int) -> None:
        self.flags = Word(flags)
        self.mode = Word(mode)

    def decide(self, notified: frozenset[str]) -> Decision:
        def notify_for(*operations: str) -> Decision:
            return NOTIFY if notified.intersection(operations) else ALLOW

        telling = 0
        if "fs.write" in notified:
            telling |= O_WRONLY | O_RDWR | O_CREAT | O_TMPFILE_BIT | O_TRUNC
        if "fs.truncate" in notified:
            telling |= O_TRUNC
        if "fs.read" in notified:
            telling |= O_RDWR
        # Kernels before 6.4 took O_DIRECTORY|O_CREAT for "create a regular file", so it does not prove a listing.
        any_file = notify_for("fs.read", "fs.readdir")
        listing = switch(self.flags, {O_DIRECTORY: notify_for("fs.readdir")}, any_file, O_DIRECTORY | O_CREAT)
        reading = switch(self.flags, {0: listing}, ALLOW, O_ACCMODE)
        opening = bits(self.flags, telling, NOTIFY, reading) if telling else reading
        judged = bits(self.flags, O_PATH, notify_for("fs.stat"), opening)  # O_PATH makes the kernel ignore all the others
        return bits(self.flags, O_CREAT | O_TMPFILE_BIT, _without_setid(self.mode, notified, judged), judged)


class DescriptorControl:
    """Leases (F_SETLEASE, F_SETDELEG) are EINVAL; when process is judged, naming another receiver for SIGIO (F_SETOWN,
    F_SETOWN_EX) and asking for it (F_SETFL with O_ASYNC) are EACCES; when any fs operation is judged, locks of an open file
    (F_OFD_SETLK, F_OFD_SETLKW) are notified, like flock. Everything else passes.

    SIGIO kills a process that does not expect it, and F_SETSIG can make it any signal: it is a way to send signals. Of a terminal
    O_ASYNC alone names the receivers, those in its foreground, whoever's session that is (__tty_fasync in the kernel). A lease
    makes whoever opens the file wait for the holder: the supervisor, or on a writable mount any process of the host.
    """

    def __init__(self, command: int, argument: int) -> None:
        self.command = Word(command)
        self.argument = Word(argument)

    def decide(self, notified: frozenset[str]) -> Decision:
        cases: dict[int, Decision] = dict.fromkeys((F_SETLEASE, F_SETDELEG), Errno(EINVAL))  # as without leases
        if ANY_FS in notified:
            cases[F_OFD_SETLK] = cases[F_OFD_SETLKW] = NOTIFY
        if "process" in notified:
            cases[F_SETOWN] = switch(self.argument, {0: ALLOW}, Errno(EACCES))  # 0 takes the owner away
            cases[F_SETOWN_EX] = Errno(EACCES)  # its argument is in memory
            cases[F_SETFL] = bits(self.argument, O_ASYNC, Errno(EACCES), ALLOW)
        return switch(self.command, cases, ALLOW)
