"""The rule on the flags of memfd_create."""

from __future__ import annotations

from errno import EACCES

from ..decision import ALLOW, NOTIFY, Decision, Errno, Word, bits
from ..row import NOEXEC

MFD_NOEXEC_SEAL, MFD_EXEC = 0x08, 0x10  # Linux 6.3


class MemoryFile:
    """It passes, unless nothing that guests can write may be executed (noexec): then a file that asks to be executable
    (MFD_EXEC) is EACCES, one that asks not to be (MFD_NOEXEC_SEAL) passes, and any other is notified, to be made as if it had.
    """

    def __init__(self, flags: int) -> None:
        self.flags = Word(flags)

    def decide(self, notified: frozenset[str]) -> Decision:
        if NOEXEC not in notified:
            return ALLOW
        return bits(self.flags, MFD_EXEC, Errno(EACCES), bits(self.flags, MFD_NOEXEC_SEAL, ALLOW, NOTIFY))
