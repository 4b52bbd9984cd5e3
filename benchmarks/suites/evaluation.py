"""What one verdict costs by number of rules: in C, in Python, and as part of a notified open."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.loops import in_vm, loop_vm
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant, interleave
from callgate import Policy, PolicyWarning
from callgate.kernel.native import _core
from callgate.kernel.policy_blob import policy_blob
from callgate.scopes.operations import SCOPES, operation_number
from callgate.scopes.request import Request

RULES: Final = (1, 10, 100, 1000)
SUBJECT: Final = "/home/agentos/bench/src/package/module.py"
SCOPE, OPERATION = "fs", "read"


def _permissions(rules: int) -> Mapping[str, Any]:
    """Rules that do not match the subject, so that every one of them is tried: half subtrees, half names at any depth."""
    paths = [f"/home/agentos/project-{i}/**" if i % 2 else f"/home/**/secret-{i}.pem" for i in range(rules)]
    return {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": [path]} for path in paths]}}


def _policy(permissions: Mapping[str, Any]) -> Policy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyWarning)
        return Policy.parse(permissions)


def _each(action: Callable[[], object], count: int) -> Variant:
    """Nanoseconds of one call of *action*, the loop around it included."""

    def sample() -> float:
        turns = range(count)
        before = time.perf_counter_ns()
        for _ in turns:
            action()
        return (time.perf_counter_ns() - before) / count

    return sample


def _in_c(policy: Policy) -> Callable[[], object]:
    blob = policy_blob(policy.compiled())
    out = _core.ffi.new("struct cg_policy **")
    if _core.lib.cg_policy_load(blob, len(blob), out) != 0:
        raise RuntimeError("the C evaluator refuses the policy")
    loaded = _core.ffi.gc(out[0], _core.lib.cg_policy_free)
    decide, rule = _core.lib.cg_policy_decide, _core.ffi.new("int32_t *")
    scope, operation = SCOPES.index(SCOPE), operation_number(SCOPE, OPERATION)
    subject = _core.ffi.from_buffer(SUBJECT.encode())
    length = len(subject)
    return lambda: decide(loaded, scope, operation, subject, length, rule)


def _in_python(policy: Policy) -> Callable[[], object]:
    request = Request.canonical(SCOPE, OPERATION, SUBJECT)
    return lambda: policy.authorize(request)


def measure(bench: Bench) -> SuiteResult:
    """Nanoseconds of one decision where no rule matches; microseconds of the opens."""
    result = SuiteResult("evaluation", "one fs.read verdict where every rule is tried")
    mode = "bare mode, C through cffi"
    decisions: dict[str, Variant] = {mode: _each(_in_c(_policy({"fs": "allow"})), bench.count(20_000))}
    for rules in RULES:
        policy = _policy(_permissions(rules))
        plural = "s" if rules > 1 else ""
        decisions[f"{rules} rule{plural}, C through cffi"] = _each(_in_c(policy), bench.count(max(20_000 // rules, 100)))
        decisions[f"{rules} rule{plural}, Python"] = _each(_in_python(policy), bench.count(max(10_000 // rules, 50)))
    result.add(interleave(decisions, rounds=bench.rounds(21)), "ns")
    for rules in RULES:
        plural = "s" if rules > 1 else ""
        result.compare(f"{rules} rule{plural}, C through cffi", f"{rules} rule{plural}, Python")
    result.notes.append(f"'{mode}' evaluates nothing: it is what the call from Python costs, and part of the other C figures")

    vms = {f"open and close under {rules} rule{'s' if rules > 1 else ''}": loop_vm(bench, _permissions(rules)) for rules in RULES}
    allow = "open and close under a bare allow"
    vms[allow] = loop_vm(bench, {"fs": "allow"})
    try:
        opens = {name: in_vm(vm, "open", bench.count(1000)) for name, vm in vms.items()}
        result.add(interleave(opens, rounds=bench.rounds(21)), "us", scale=1e-3)
    finally:
        for vm in vms.values():
            vm.close()
    one, *more = [name for name in vms if name != allow]
    result.compare(allow, one, target=1.0)
    for name in more:
        result.compare(name, one)
    return result
