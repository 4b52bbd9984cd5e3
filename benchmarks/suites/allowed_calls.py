"""File calls under the default policy, which notifies none of them, against the bare host."""

from __future__ import annotations

from typing import Final

from benchmarks.bench import Bench
from benchmarks.loops import bare, in_vm, loop_vm, one_instruction
from benchmarks.report import SuiteResult
from benchmarks.sampling import interleave

AGAINST_BARE: Final = 1.15
OPERATIONS: Final = {
    "open": ("open and close", 10_000),
    "stat": ("stat", 20_000),
    "fstatat": ("fstat as an empty path", 20_000),
    "read": ("pread of 4 KiB", 20_000),
    "list": ("open, getdents and close of a directory", 5_000),
    "create": ("create, close and unlink", 5_000),
    "mkdir": ("mkdir and rmdir", 5_000),
}


def measure(bench: Bench) -> SuiteResult:
    """Nanoseconds of one operation, both on a tmpfs."""
    result = SuiteResult("allowed", "file calls under the default policy")
    with loop_vm(bench) as vm:
        for operation, (title, full) in OPERATIONS.items():
            count = bench.count(full)
            ours, single, without = f"{title}, in a VM", f"{title}, one-instruction filter", f"{title}, bare"
            samples = interleave(
                {
                    ours: in_vm(vm, operation, count),
                    single: one_instruction(bench, operation, count),
                    without: bare(bench, operation, count),
                },
                rounds=bench.rounds(31),
            )
            result.add(samples, "ns")
            result.compare(ours, without, target=AGAINST_BARE)
            result.compare(ours, single)
        result.notes.append(f"notified under this policy: {', '.join(vm.status().notified) or 'nothing'}")
    result.notes += bench.scratch_note()
    return result
