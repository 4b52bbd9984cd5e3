"""Calls that the filter allows by itself, against the same program under a filter of one instruction."""

from __future__ import annotations

from typing import Final

from benchmarks.bench import Bench
from benchmarks.loops import DENY_ONE_SUBTREE, bare, in_vm, loop_vm, one_instruction
from benchmarks.report import SuiteResult
from benchmarks.sampling import interleave

AGAINST_ONE_INSTRUCTION: Final = 1.05
OPERATIONS: Final = {
    "getpid": ("getpid", 200_000),
    "pipe": ("write and read of a pipe", 20_000),
    "fstat": ("fstat", 50_000),
    "read": ("pread of 4 KiB", 50_000),
}


def measure(bench: Bench) -> SuiteResult:
    """Nanoseconds of one operation."""
    result = SuiteResult("filter", "calls that the filter allows")
    with loop_vm(bench) as default, loop_vm(bench, DENY_ONE_SUBTREE) as rules:
        for operation, (title, full) in OPERATIONS.items():
            count = bench.count(full)
            ours, ruled = f"{title}, default policy", f"{title}, one subtree denied"
            single, without = f"{title}, one-instruction filter", f"{title}, bare"
            samples = interleave(
                {
                    ours: in_vm(default, operation, count),
                    ruled: in_vm(rules, operation, count),
                    single: one_instruction(bench, operation, count),
                    without: bare(bench, operation, count),
                },
                rounds=bench.rounds(31),
            )
            result.add(samples, "ns")
            result.compare(ours, single, target=AGAINST_ONE_INSTRUCTION)
            result.compare(ruled, single, target=AGAINST_ONE_INSTRUCTION)
            result.compare(single, without)
    result.notes += bench.scratch_note()
    return result
