"""How a run ended: a `subprocess.CompletedProcess` that also tells what was refused and what was used."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from callgate.kernel.audit import Denial

_Output = TypeVar("_Output")

#: What `run` takes as a program: an argument vector, or a command line for /bin/sh.
Command = str | Sequence[str | bytes]


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
