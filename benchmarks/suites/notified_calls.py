"""File calls that the supervisor judges and makes, against the bare host and against the least a supervisor could do."""

from __future__ import annotations

from typing import Final

from benchmarks.bench import Bench
from benchmarks.loops import DENY_ONE_SUBTREE, bare, floor, in_vm, loop_vm
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant, interleave

AGAINST_FLOOR: Final = 1.5
OPERATIONS: Final = {
    "open": "open and close",
    "stat": "stat",
    "access": "access",
    "readlink": "readlink",
    "chmod": "chmod",
    "mkdir": "mkdir and rmdir",
    "create": "create, close and unlink",
    "rename": "rename, there and back",
}
COUNT: Final = 1000
THREADS: Final = 8


def measure(bench: Bench) -> SuiteResult:
    """Microseconds of one operation under a policy that allows everything but one subtree."""
    result = SuiteResult("notified", "file calls under a policy that denies one subtree")
    count = bench.count(COUNT)
    with loop_vm(bench, DENY_ONE_SUBTREE) as vm:

        def take(variants: dict[str, Variant], rounds: int) -> None:
            result.add(interleave(variants, rounds=bench.rounds(rounds)), "us", scale=1e-3)

        for operation, title in OPERATIONS.items():
            ours, least, without = f"{title}, in a VM", f"{title}, floor", f"{title}, bare"
            variants = {ours: in_vm(vm, operation, count), least: floor(bench, vm, operation, count)}
            take({**variants, without: bare(bench, operation, count)}, 25)
            result.compare(ours, least, target=AGAINST_FLOOR)
            result.compare(ours, without)

        ours, least, without = (f"open and close by {THREADS} threads, {where}" for where in ("in a VM", "floor", "bare"))
        many = count * 2
        take(
            {
                ours: in_vm(vm, "open", many, THREADS),
                least: floor(bench, vm, "open", many, threads=THREADS, workers=THREADS),
                without: bare(bench, "open", many, THREADS),
            },
            25,
        )
        result.compare(ours, least, target=AGAINST_FLOOR)
        result.compare(ours, without)

        # How the floor itself depends on how the two sides wake each other.
        shapes: dict[str, Variant] = {}
        for workers in (1, 2, THREADS):
            for sync in (True, False):
                name = f"floor of open and close, {workers} worker{'s' if workers > 1 else ''}, {'with' if sync else 'without'} SYNC_WAKE_UP"
                shapes[name] = floor(bench, vm, "open", count, workers=workers, sync=sync)
        take(shapes, 15)

        allowed, refused = "open and close, allowed", "open, refused"
        take({allowed: in_vm(vm, "open", count), refused: in_vm(vm, "denied", count)}, 15)
        result.compare(refused, allowed)
        if "sync_wake_up" not in vm.status().features:
            result.notes.append("this kernel has no SYNC_WAKE_UP: the supervisor runs without it and the floor with it fails")
    result.notes += bench.scratch_note()
    return result
