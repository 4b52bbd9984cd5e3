"""Starting a program from a guest: where nothing is judged, under a rule on names, and under one on the environment."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from benchmarks.bench import Bench, own_figure
from benchmarks.loops import DENY_ONE_SUBTREE, DIRECTORY, PROGRAM, bare, floor
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant
from callgate import VM

SPAWN: Final = f"{DIRECTORY}/spawn"
STARTED: Final = {"a static program": f"{DIRECTORY}/nothing", "/bin/true": "/bin/true"}
COUNT: Final = 200
ROUND_TRIPS: Final = 4
WITHOUT_RULES: Final = 1.1

NAMES: Final[Mapping[str, Any]] = {
    "childProcess": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["nothing-so-called"]}]}
}
VARIABLES: Final[Mapping[str, Any]] = {
    "env": {"default": "allow", "rules": [{"mode": "deny", "operations": ["read"], "patterns": ["AWS_*"]}]}
}
BARE, FREE, BY_NAME, BY_VARIABLE = "bare", "no rules", "a rule on names", "a rule on variables"
BUDGET: Final = f"bare and {ROUND_TRIPS} round trips"
LEAST, ALONE = "stat under the floor", "stat alone"


def measure(bench: Bench) -> SuiteResult:
    """Microseconds of one vfork, exec and wait in C. A round trip is what the least supervisor adds to a stat in that round."""
    result = SuiteResult("exec", "starting a program from a program")
    count = bench.count(COUNT)
    files = {
        SPAWN: bench.programs["spawn"].read_bytes(),
        STARTED["a static program"]: bench.programs["nothing"].read_bytes(),
        PROGRAM: bench.programs["loop"].read_bytes(),
    }
    with ExitStack() as stack:
        free, names, variables = (stack.enter_context(VM(policy, files=files)) for policy in (None, NAMES, VARIABLES))
        judged = stack.enter_context(VM(DENY_ONE_SUBTREE))
        trips = {
            LEAST: floor(bench, judged, "stat", bench.count(1000), sync="sync_wake_up" in judged.status().features),
            ALONE: bare(bench, "stat", bench.count(1000)),
        }
        for title, program in STARTED.items():
            on_host = str(bench.programs["nothing"]) if program == STARTED["a static program"] else program
            variants: dict[str, Variant] = {
                BARE: own_figure([bench.programs["spawn"], str(count), on_host]),
                FREE: _inside(free, count, program),
                BY_NAME: _inside(names, count, program),
                BY_VARIABLE: _inside(variables, count, program),
            }
            samples = bench.interleave(variants | trips, rounds=40)
            rounds = zip(samples[BARE], samples[LEAST], samples[ALONE], strict=True)
            samples[BUDGET] = [alone + ROUND_TRIPS * (least - stat) for alone, least, stat in rounds]
            case = result.case(title)
            case.add(samples, "us", scale=1e-3)
            case.compare(FREE, BARE, target=WITHOUT_RULES)
            case.compare(BY_NAME, BUDGET, target=1.0)
            case.compare(BY_NAME, BARE)
            case.compare(BY_VARIABLE, BARE)
    return result


def _inside(vm: VM, count: int, program: str) -> Variant:
    def sample() -> float:
        return float(vm.run([SPAWN, str(count), program], check=True).stdout)

    return sample
