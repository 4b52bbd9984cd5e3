"""Starting a VM, and starting a program in one that runs, against bubblewrap and against nothing in between."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import Final

from benchmarks.bench import Bench, own_figure
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant, seconds
from callgate import VM

TRUE: Final = "/bin/true"
BUBBLEWRAP: Final = ("bwrap", "--unshare-all", "--ro-bind", "/", "/", TRUE)
AGAINST_BUBBLEWRAP: Final = 1.0
AGAINST_BARE: Final = 2.0

WITH_CLOSE: Final = "VM(), run, close"
WITHOUT_CLOSE: Final = "VM(), run"
SECOND: Final = "run in a running VM"
BARE: Final = "subprocess.run"
BARE_C: Final = "vfork and exec in C"
WRAPPED: Final = "subprocess.run of bwrap"


def measure(bench: Bench) -> SuiteResult:
    """Milliseconds of wall time, as a Python process that already runs sees them."""
    result = SuiteResult("startup", "running /bin/true")
    wrapped = _why_not_bubblewrap(result.notes) is None
    spawn = own_figure([bench.programs["spawn"], "1", TRUE])
    with VM() as running:
        variants: dict[str, Variant] = {
            WITH_CLOSE: seconds(_with_close),
            WITHOUT_CLOSE: _without_close,
            SECOND: seconds(lambda: _inside(running)),
            BARE: seconds(lambda: _outside(TRUE)),
            BARE_C: lambda: spawn() / 1e9,
        }
        if wrapped:
            variants[WRAPPED] = seconds(lambda: _outside(*BUBBLEWRAP))
        case = result.case("from a running process")
        case.add(bench.interleave(variants, rounds=100, warm_up=3), "ms", scale=1e3)
    if wrapped:
        case.compare(WITHOUT_CLOSE, WRAPPED, target=AGAINST_BUBBLEWRAP)
        case.compare(WITH_CLOSE, WRAPPED, target=AGAINST_BUBBLEWRAP)
    case.compare(SECOND, BARE, target=AGAINST_BARE)
    case.compare(SECOND, BARE_C)
    return result


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


def _why_not_bubblewrap(notes: list[str]) -> str | None:
    """None if bubblewrap can be compared with; the reason, which is also noted, if not."""
    if shutil.which(BUBBLEWRAP[0]) is None:
        reason = "bwrap is not installed (Debian: apt-get install bubblewrap)"
    elif (done := subprocess.run(BUBBLEWRAP, capture_output=True, text=True, check=False)).returncode != 0:
        reason = f"bwrap does not work here: {done.stderr.strip()}"
    else:
        return None
    notes.append(f"start-up is not compared with bubblewrap: {reason}")
    return reason
