"""What every suite is given: how much to measure, the compiled programs, and scratch space on the kind of filesystem a VM has."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.machine import is_busy
from benchmarks.native_programs import NativePrograms
from benchmarks.sampling import Variant, interleave

TMPFS = Path("/dev/shm")
SHORT_DIVISOR = 50  # a short run checks that everything works, not how fast


@dataclass
class Bench:
    """One run of the benchmarks. A context manager: scratch space and programs are gone afterwards."""

    short: bool = False
    patience: float = 0.0  # seconds that a round may wait for other programs to be done
    rounds_taken: int = field(init=False, default=0)
    rounds_begun_busy: int = field(init=False, default=0)
    scratch: Path = field(init=False)  # a tmpfs where the host has one: a VM's files are on one
    on_tmpfs: bool = field(init=False)
    programs: NativePrograms = field(init=False)
    _stack: ExitStack = field(init=False, default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.on_tmpfs = _is_tmpfs(TMPFS) and os.access(TMPFS, os.W_OK | os.X_OK)
        parent = TMPFS if self.on_tmpfs else None
        self.scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="callgate-bench-", dir=parent)))
        # Not on the tmpfs, which may be mounted noexec.
        self.programs = NativePrograms(Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="callgate-bench-"))))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stack.close()

    def rounds(self, full: int) -> int:
        """How many rounds to take where a full run takes *full*."""
        return 2 if self.short else full

    def count(self, full: int) -> int:
        """How often to repeat within a sample where a full run repeats *full* times."""
        return max(full // SHORT_DIVISOR, 10) if self.short else full

    def interleave(self, variants: Mapping[str, Variant], *, rounds: int, warm_up: int = 1) -> dict[str, list[float]]:
        """`sampling.interleave` for *rounds* of a full run, each begun when the machine is quiet or patience is at its end."""
        return interleave(variants, rounds=self.rounds(rounds), warm_up=warm_up, before_round=self._await_quiet)

    def _await_quiet(self) -> None:
        self.rounds_taken += 1
        deadline = time.monotonic() + self.patience
        busy = self.patience > 0 and is_busy()
        while busy and time.monotonic() < deadline:
            busy = is_busy()
        self.rounds_begun_busy += busy

    def scratch_note(self) -> list[str]:
        """What to say of the baseline's filesystem when it is not the VM's kind."""
        return [] if self.on_tmpfs else [f"{TMPFS} is no writable tmpfs: the bare runs used {self.scratch}"]


def own_figure(command: Sequence[str | Path]) -> Variant:
    """A variant that runs a program on the bare host and takes the number that it prints. CalledProcessError if it fails."""
    words = [os.fspath(word) for word in command]

    def sample() -> float:
        return float(subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout)

    return sample


def _is_tmpfs(path: Path) -> bool:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        _, point, kind, *_ = line.split()
        if point == str(path):
            return kind == "tmpfs"
    return False
