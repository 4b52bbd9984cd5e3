"""Starting a VM, and starting a program in one that runs, against bubblewrap and against nothing in between."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import Final

from benchmarks.bench import Bench, own_figure
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant, interleave, seconds
from callgate import VM

TRUE: Final = "/bin/true"
BUBBLEWRAP: Final = ("bwrap", "--unshare-all", "--ro-bind", "/", "/", TRUE)
AGAINST_BUBBLEWRAP: Final = 1.0
AGAINST_BARE: Final = 2.0

WITH_CLOSE, WITHOUT_CLOSE = "VM, run, close", "VM, run"
SECOND = "run in the same VM"
BARE, WRAPPED, BARE_C = "subprocess.run", "subprocess.run of bwrap", "vfork and exec in C"


def _outside(*argv: str) -> None:
    """With the pipes that a run in a VM has, so that both move the same bytes."""
    subprocess.run(argv, input=b"", capture_output=True, check=True)


def _inside(vm: VM) -> None:
    vm.run([TRUE], check=True)


def _with_close() -> None:
    with VM() as vm:
        _inside(vm)


def _without_close() -> float:
    before = time.perf_counter()
    vm = VM()
    try:
        _inside(vm)
        return time.perf_counter() - before
    finally:
        vm.close()


def measure(bench: Bench) -> SuiteResult:
    """Milliseconds of wall time, seen by a Python process that is already running."""
    result = SuiteResult("startup", "starting a VM and running /bin/true in it, from a running process")
    spawn = own_figure([bench.programs["spawn"], "1", TRUE])
    with VM() as running:
        variants: dict[str, Variant] = {
            WITH_CLOSE: seconds(_with_close),
            WITHOUT_CLOSE: _without_close,
            SECOND: seconds(lambda: _inside(running)),
            BARE: seconds(lambda: _outside(TRUE)),
            BARE_C: lambda: spawn() / 1e9,
        }
        wrapped = shutil.which(BUBBLEWRAP[0]) is not None
        if not wrapped:
            result.notes.append("bwrap is not installed: start-up is not compared with it (Debian: apt-get install bubblewrap)")
        elif subprocess.run(BUBBLEWRAP, capture_output=True, check=False).returncode != 0:
            wrapped = False
            result.notes.append("bwrap does not work here: start-up is not compared with it")
        else:
            variants[WRAPPED] = seconds(lambda: _outside(*BUBBLEWRAP))
        result.add(interleave(variants, rounds=bench.rounds(80), warm_up=3), "ms", scale=1e3)
    if wrapped:
        result.compare(WITHOUT_CLOSE, WRAPPED, target=AGAINST_BUBBLEWRAP)
        result.compare(WITH_CLOSE, WRAPPED, target=AGAINST_BUBBLEWRAP)
    result.compare(SECOND, BARE, target=AGAINST_BARE)
    result.compare(SECOND, BARE_C)
    return result
