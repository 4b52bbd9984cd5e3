"""What the supervisor of a VM keeps in memory: at rest, and after many notified calls from one thread and from eight."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.loops import DENY_ONE_SUBTREE, in_vm, loop_vm
from benchmarks.report import Case, Figure, SuiteResult

TARGET_KIB: Final = 4096
CALLS: Final = 100_000
THREADS: Final = 8


def measure(bench: Bench) -> SuiteResult:
    """KiB of resident set (shared pages counted whole) and of proportional set (shared pages counted by their share)."""
    result = SuiteResult("memory", "the supervisor process of one VM")
    with loop_vm(bench, DENY_ONE_SUBTREE) as vm:
        pid = vm.status().supervisor_pid
        _look(result.case("at rest"), pid)
        for threads in (1, THREADS):
            before = vm.status().calls_notified
            in_vm(vm, "stat", bench.count(CALLS), threads)()
            calls = vm.status().calls_notified - before
            _look(result.case(f"after {calls} more calls, from {threads} thread{'s' if threads > 1 else ''}"), pid)
    if not all(len(case.measured) == 2 for case in result.cases):
        result.notes.append("the proportional set can be read by root alone: the supervisor is not dumpable")
    return result


def _look(case: Case, pid: int) -> None:
    case.measured.append(Figure("resident set", "KiB", [_kib(Path(f"/proc/{pid}/status"), "VmRSS")], TARGET_KIB))
    try:
        case.measured.append(Figure("proportional set", "KiB", [_kib(Path(f"/proc/{pid}/smaps_rollup"), "Pss")]))
    except PermissionError:
        return


def _kib(file: Path, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", file.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{file} has no line {name}")
    return float(found[1])
