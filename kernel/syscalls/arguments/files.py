"""Rules on the arguments of open and fcntl."""

from __future__ import annotations

from errno import EACCES, EINVAL

from ..decision import ALLOW, NOTIFY, Decision, Errno, Word, bits, switch
from ..row import ANY_FS

O_WRONLY, O_RDWR, O_ACCMODE = 0o1, 0o2, 0o3
O_CREAT, O_TRUNC, O_DIRECTORY = 0o100, 0o1000, 0o200000
O_PATH, O_TMPFILE_BIT = 0o10000000, 0o20000000  # O_TMPFILE itself also holds O_DIRECTORY

F_SETOWN, F_SETOWN_EX, F_SETLEASE, F_SETDELEG = 8, 15, 1024, 1040


class OpenFlags:
    """Notified only if the flags ask for something that is judged: the access mode and O_DIRECTORY tell read and readdir,
    writing and creating flags write, O_TRUNC truncate and write, O_PATH stat.

    The flags are an int, so the high half of the register means nothing to the kernel (open(2)). Access mode 3 is taken for
    reading and writing, which is what the kernel checks it as.
    """

    def __init__(self, flags: int) -> None:
        self.flags = Word(flags)

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
        return bits(self.flags, O_PATH, notify_for("fs.stat"), opening)  # O_PATH makes the kernel ignore all the others


class DescriptorControl:
    """When process is judged, naming another receiver for SIGIO (F_SETOWN, F_SETOWN_EX) is EACCES; when anything of fs is,
    leases (F_SETLEASE, F_SETDELEG) are EINVAL. Everything else passes.

    SIGIO kills a process that does not expect it, and F_SETSIG can make it any signal: it is a way to send signals. A lease
    makes whoever opens the file wait for the holder, and under a judged fs that is the supervisor.
    """

    def __init__(self, command: int, argument: int) -> None:
        self.command = Word(command)
        self.argument = Word(argument)

    def decide(self, notified: frozenset[str]) -> Decision:
        cases: dict[int, Decision] = {}
        if "process" in notified:
            cases[F_SETOWN] = switch(self.argument, {0: ALLOW}, Errno(EACCES))  # 0 takes the owner away
            cases[F_SETOWN_EX] = Errno(EACCES)  # its argument is in memory
        if ANY_FS in notified:
            cases[F_SETLEASE] = cases[F_SETDELEG] = Errno(EINVAL)  # as on a file system without leases
        return switch(self.command, cases, ALLOW)
