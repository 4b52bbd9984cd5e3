"""File calls under the default policy, which notifies none of them, against the bare host."""

from __future__ import annotations

from typing import Final

from benchmarks.bench import Bench
from benchmarks.loops import bare, in_vm, loop_vm, one_instruction
from benchmarks.report import SuiteResult

AGAINST_BARE: Final = 1.15
OPERATIONS: Final = {
    "open": ("open and close", 10_000),
    "stat": ("stat", 20_000),
    "fstatat": ("fstat, as newfstatat of an empty path", 20_000),
    "read": ("pread of 4 KiB", 20_000),
    "list": ("open, getdents and close of a directory", 5_000),
    "create": ("create, close and unlink", 5_000),
    "mkdir": ("mkdir and rmdir", 5_000),
}
OURS, SINGLE, BARE = "in a VM", "one-instruction filter", "bare"


def measure(bench: Bench) -> SuiteResult:
    """Nanoseconds of one operation, all on a tmpfs."""
    result = SuiteResult("allowed", "file calls under the default policy")
    with loop_vm(bench) as vm:
        for operation, (title, full) in OPERATIONS.items():
            count = bench.count(full)
            variants = {
                OURS: in_vm(vm, operation, count),
                SINGLE: one_instruction(bench, operation, count),
                BARE: bare(bench, operation, count),
            }
            case = result.case(title)
            case.add(bench.interleave(variants, rounds=31), "ns")
            case.compare(OURS, BARE, target=AGAINST_BARE)
            case.compare(OURS, SINGLE)
        result.notes.append(f"notified under this policy: {', '.join(vm.status().notified) or 'nothing'}")
    result.notes += bench.scratch_note()
    return result
