"""What the supervisor of a VM keeps in memory: at rest, and after many notified calls from one thread and from eight."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.loops import DENY_ONE_SUBTREE, in_vm, loop_vm
from benchmarks.report import Measurement, SuiteResult

TARGET_KIB: Final = 4096
CALLS: Final = 100_000
THREADS: Final = 8


def _rss_kib(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"process {pid} has no resident set")
    return float(found[1])


def _pss_kib(pid: int) -> float | None:
    """None where the kernel keeps it from us: the supervisor is not dumpable, so only root may ask."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except PermissionError:
        return None
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return float(found[1]) if found else None


def measure(bench: Bench) -> SuiteResult:
    """KiB of resident set (shared pages counted whole) and of proportional set (shared pages counted by their share)."""
    result = SuiteResult("memory", "the supervisor process of one VM")

    def look(when: str, pid: int) -> None:
        result.measurements.append(Measurement(f"resident set, {when}", "KiB", [_rss_kib(pid)], TARGET_KIB))
        if (pss := _pss_kib(pid)) is not None:
            result.measurements.append(Measurement(f"proportional set, {when}", "KiB", [pss]))

    with loop_vm(bench, DENY_ONE_SUBTREE) as vm:
        pid = vm.status().supervisor_pid
        look("at rest", pid)
        for threads in (1, THREADS):
            before = vm.status().calls_notified
            in_vm(vm, "stat", bench.count(CALLS), threads)()
            calls = vm.status().calls_notified - before
            look(f"after {calls} more calls from {threads} thread{'s' if threads > 1 else ''}", pid)
    if _pss_kib is None:
        result.notes.append("the proportional set is readable by root alone")
    return result
