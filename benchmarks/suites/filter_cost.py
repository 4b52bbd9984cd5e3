"""Calls that the filter allows by itself, against the same program under a filter of one instruction."""

from __future__ import annotations

from typing import Final

from benchmarks.bench import Bench
from benchmarks.loops import DENY_ONE_SUBTREE, bare, in_vm, loop_vm, one_instruction
from benchmarks.report import SuiteResult

AGAINST_ONE_INSTRUCTION: Final = 1.05
OPERATIONS: Final = {
    "getpid": ("getpid", 200_000),
    "pipe": ("write to and read from a pipe", 20_000),
    "fstat": ("fstat", 50_000),
    "read": ("pread of 4 KiB", 50_000),
}
DEFAULT, RULES, SINGLE, BARE = "default policy", "one subtree denied", "one-instruction filter", "bare"


def measure(bench: Bench) -> SuiteResult:
    """Nanoseconds of one operation."""
    result = SuiteResult("filter", "calls that the filter allows")
    with loop_vm(bench) as default, loop_vm(bench, DENY_ONE_SUBTREE) as rules:
        for operation, (title, full) in OPERATIONS.items():
            count = bench.count(full)
            variants = {
                DEFAULT: in_vm(default, operation, count),
                RULES: in_vm(rules, operation, count),
                SINGLE: one_instruction(bench, operation, count),
                BARE: bare(bench, operation, count),
            }
            case = result.case(title)
            case.add(bench.interleave(variants, rounds=31), "ns")
            case.compare(DEFAULT, SINGLE, target=AGAINST_ONE_INSTRUCTION)
            case.compare(RULES, SINGLE, target=AGAINST_ONE_INSTRUCTION)
            case.compare(SINGLE, BARE)
    result.notes += bench.scratch_note()
    return result
