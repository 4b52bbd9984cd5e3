"""File calls that the supervisor judges and makes, against the bare host and against the least a supervisor could do."""

from __future__ import annotations

from typing import Final

from benchmarks.bench import Bench
from benchmarks.loops import DENY_ONE_SUBTREE, bare, floor, in_vm, loop_vm
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant

#: The targets for two operations; the others are told without one.
AGAINST_FLOOR: Final = {"open": 1.3, "stat": 1.2}
#: How many workers the floor is fastest with: where a descriptor is injected, one alone is waited for while it wakes up.
FLOOR_WORKERS: Final = {"open": 2, "create": 2}
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
OURS, LEAST, BARE = "in a VM", "floor", "bare"


def measure(bench: Bench) -> SuiteResult:
    """Microseconds of one operation under a policy that allows everything but one subtree."""
    result = SuiteResult("notified", "file calls under a policy that denies one subtree")
    count = bench.count(COUNT)

    def take(title: str, variants: dict[str, Variant], rounds: int, target: float | None = None) -> None:
        case = result.case(title)
        case.add(bench.interleave(variants, rounds=rounds), "us", scale=1e-3)
        if LEAST in variants:
            case.compare(OURS, LEAST, target=target)
            case.compare(OURS, BARE)

    with loop_vm(bench, DENY_ONE_SUBTREE) as vm:
        sync = "sync_wake_up" in vm.status().features
        for operation, title in OPERATIONS.items():
            least = floor(bench, vm, operation, count, workers=FLOOR_WORKERS.get(operation, 1), sync=sync)
            variants = {OURS: in_vm(vm, operation, count), LEAST: least, BARE: bare(bench, operation, count)}
            take(title, variants, 25, AGAINST_FLOOR.get(operation))

        many = count * 2
        least = floor(bench, vm, "open", many, threads=THREADS, workers=2, sync=sync)
        variants = {OURS: in_vm(vm, "open", many, THREADS), LEAST: least, BARE: bare(bench, "open", many, THREADS)}
        take(f"open and close, {THREADS} threads at once", variants, 25)

        shapes: dict[str, Variant] = {}
        for workers in (1, 2, THREADS):
            for on in (True, False) if sync else (False,):
                name = f"{workers} worker{'s' if workers > 1 else ''}, {'with' if on else 'without'} SYNC_WAKE_UP"
                shapes[name] = floor(bench, vm, "open", count, workers=workers, sync=on)
        take("open and close, the floor by how its two sides wake each other", shapes, 15)

        take(
            "open and close against a refused open",
            {"allowed": in_vm(vm, "open", count), "refused": in_vm(vm, "denied", count)},
            15,
        )
        result.cases[-1].compare("refused", "allowed")
        if not sync:
            result.notes.append("this kernel has no SYNC_WAKE_UP: supervisor and floor run without it")
    result.notes += bench.scratch_note()
    return result
