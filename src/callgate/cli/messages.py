"""What the command says to its user: one line per error on stderr, and the exit codes of SPEC section 6."""

from __future__ import annotations

import os
import sys
from typing import Final

USAGE: Final = 2
OUTPUT_LOST: Final = 74
"""`run`: the program succeeded, and what it wrote could not be written (EX_IOERR of sysexits(3))."""
TIMED_OUT: Final = 124
CANNOT_START: Final = 125
SIGNALLED: Final = 128
"""Added to the number of the signal that ended a program, as shells do."""


class UsageError(Exception):
    """The user's mistake, said in one line; nothing was started."""


class StartError(Exception):
    """The host's refusal to start a VM, said in one line."""


def complain(text: str) -> None:
    """One line on stderr. A stderr that is closed or full is no reason to fail differently."""
    if sys.stderr is None:
        return
    try:
        print(f"callgate: {text}", file=sys.stderr, flush=True)
    except OSError:
        write_no_more(2)


def write_no_more(fd: int) -> None:
    """Nothing more goes to a stream that takes nothing: the interpreter would fail at its end on what it still holds for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), fd)
