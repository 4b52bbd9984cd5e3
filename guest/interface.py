"""What every kind of guest offers to the VM that holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from callgate.guest.result import Command, Result
from callgate.kernel.audit import Denial

_Output = TypeVar("_Output")

#: Told of every denial as it happens.
Recorder = Callable[[Denial], None]

#: Told what a program writes to its standard output and error, piece by piece, and b"" at the end of each.
Listeners = tuple[Callable[[bytes], object] | None, Callable[[bytes], object] | None]


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, ready for execve(2): nothing in it holds a NUL."""

    argv: tuple[bytes, ...]
    env: Mapping[bytes, bytes]
    cwd: bytes


class Service(Protocol):
    """Something of the host's that programs call through sockets inside the VM; started when one does, since most never do."""

    @property
    def active(self) -> bool:
        """Whether it runs, or never will again."""
        ...

    def filenos(self) -> tuple[int, ...]:
        """Sockets that are readable once a program has called, as long as the service is not active."""
        ...

    def activate(self) -> None:
        """Start serving, unless that was done."""
        ...

    def close(self) -> None:
        """End it; whoever still waits gets no answer."""
        ...


class Guest(Protocol):
    """A kind of program that a VM can run: native ones in a process tree of their own, WebAssembly ones in an engine."""

    def run(
        self,
        program: Program,
        shown: Command,
        *,
        stdin: bytes,
        timeout: float | None,
        decode: Callable[[bytes], _Output],
        listeners: Listeners = (None, None),
    ) -> Result[_Output]:
        """Run *program* to its end with captured output.

        *shown* is the command as the user gave it, for `Result.args`; *decode* makes the output what the user wants it to be.
        """
        ...

    def close(self) -> None:
        """End everything the guest started and leave nothing behind."""
        ...
