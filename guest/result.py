"""How a run ended: a `subprocess.CompletedProcess` that also tells what was refused and what was used."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from callgate.kernel.audit import Denial

_Output = TypeVar("_Output")

#: What `run` takes as a program: a command line for /bin/sh, an argument vector, or the path of a program without arguments.
Command = str | os.PathLike[str] | Sequence[str | bytes | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run used: processor time and memory of its first program and of those that program waited for (getrusage(2))."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_bytes: int = 0  # of the largest process
    wall_seconds: float = 0.0
    notified_calls: int = 0  # decided by the supervisor meanwhile, for all of the VM


class Result(subprocess.CompletedProcess[_Output]):
    """A finished run. `returncode` is negative for a signal, 127 for a program not found, 126 for one that cannot run."""

    stdout: _Output
    stderr: _Output

    def __init__(
        self,
        args: Command,
        returncode: int,
        stdout: _Output,
        stderr: _Output,
        *,
        denials: Sequence[Denial] = (),
        denials_dropped: int = 0,
        duration: float = 0.0,
        usage: Usage | None = None,
        truncated: bool = False,
        exceeded: Sequence[str] = (),
    ) -> None:
        super().__init__(args, returncode, stdout, stderr)
        self.denials = tuple(denials)
        self.denials_dropped = denials_dropped  # more were refused than are listed
        self.duration = duration  # seconds of wall-clock time
        self.usage = usage or Usage()
        self.truncated = truncated  # the output was longer than is kept
        # Names of the VM's limits that ended programs of the run, such as "cpu_seconds"; "memory" also if that was met beside it.
        self.exceeded = tuple(exceeded)

    def check_returncode(self) -> None:
        """Raise `CalledProcessError` for a return code other than 0."""
        if self.returncode:
            raise CalledProcessError(self.returncode, self.args, self.stdout, self.stderr, self.denials, self.exceeded)

    def __repr__(self) -> str:
        told = super().__repr__().removesuffix(")")
        if denials := len(self.denials) + self.denials_dropped:
            told += f", {denials} denial{'s' if denials > 1 else ''}"
        if self.exceeded:
            told += f", exceeded={self.exceeded!r}"
        if self.truncated:
            told += ", truncated=True"
        return f"{told})"


class CalledProcessError(subprocess.CalledProcessError):
    """A program of `run(check=True)` gave another return code than 0; `denials` and `exceeded` as in its `Result` may say why."""

    def __init__(
        self,
        returncode: int,
        cmd: Any,
        output: Any = None,
        stderr: Any = None,
        denials: Sequence[Denial] = (),
        exceeded: Sequence[str] = (),
    ) -> None:
        super().__init__(returncode, cmd, output, stderr)
        self.denials = tuple(denials)
        self.exceeded = tuple(exceeded)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.returncode, self.cmd, self.output, self.stderr, self.denials, self.exceeded)


class Timeout(subprocess.TimeoutExpired, TimeoutError):
    """A run took longer than its `timeout` or the VM's `Limits.wall_seconds`: everything it started was killed.

    `output` and `stderr` hold what it wrote so far. Raised by `Process.wait` and `communicate` it kills nothing.
    """

    def __init__(
        self,
        cmd: Any,
        timeout: float,
        output: Any = None,
        stderr: Any = None,
        denials: Sequence[Denial] = (),
    ) -> None:
        super().__init__(cmd, timeout, output=output, stderr=stderr)
        self.errno = errno.ETIMEDOUT
        self.denials = tuple(denials)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.cmd, self.timeout, self.output, self.stderr, self.denials)
