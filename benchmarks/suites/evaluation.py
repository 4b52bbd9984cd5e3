"""What one verdict costs by number of rules: in C, in Python, and as part of a notified open."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.loops import in_vm, loop_vm
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant, seconds
from callgate import Policy, PolicyWarning
from callgate.kernel.native import _core
from callgate.kernel.policy_blob import policy_blob
from callgate.scopes.operations import SCOPES, operation_number
from callgate.scopes.request import Request

SCOPE, OPERATION, SUBJECT = "fs", "read", "/home/agentos/bench/src/package/module.py"
BARE_ALLOW: Final = "a bare allow"


def measure(bench: Bench) -> SuiteResult:
    """Nanoseconds of a decision in which no rule matches, so that all are tried; microseconds of opens; milliseconds to parse."""
    result = SuiteResult("evaluation", "verdicts by number of rules")
    counts = (1, 10) if bench.short else (1, 10, 100, 1000)
    policies = {_rules(n): _permissions(n) for n in counts}

    parsing = result.case("Policy.parse")
    parses = {name: seconds(partial(_parse, permissions)) for name, permissions in policies.items()}
    parsing.add(bench.interleave(parses, rounds=2, warm_up=0), "ms", scale=1e3)

    parsed = {name: _parse(permissions) for name, permissions in policies.items()}
    loops = {name: bench.count(max(20_000 // n, 100)) for name, n in zip(policies, counts, strict=True)}
    native = {name: _each(_in_c(policy), loops[name]) for name, policy in parsed.items()}
    native[BARE_ALLOW] = _each(_in_c(_parse({"fs": "allow"})), bench.count(20_000))
    result.case("decision, C called through cffi").add(bench.interleave(native, rounds=21), "ns")
    python = {name: _each(_in_python(policy), max(loops[name] // 10, 5)) for name, policy in parsed.items()}
    result.case("decision, Python").add(bench.interleave(python, rounds=21), "ns")
    result.notes.append(
        f"{BARE_ALLOW} evaluates nothing: it is what the call through cffi costs, and part of the other C figures"
    )

    vms = {name: loop_vm(bench, permissions) for name, permissions in policies.items()}
    vms[BARE_ALLOW] = loop_vm(bench, {"fs": "allow"})
    opens = result.case("open and close in a VM")
    try:
        samples = bench.interleave({name: in_vm(vm, "open", bench.count(1000)) for name, vm in vms.items()}, rounds=21)
    finally:
        for vm in vms.values():
            vm.close()
    opens.add(samples, "us", scale=1e-3)
    opens.compare(BARE_ALLOW, _rules(1), target=1.0)
    for n in counts[1:]:
        opens.compare(_rules(n), _rules(1))
    return result


def _rules(number: int) -> str:
    return f"{number} rule{'s' if number > 1 else ''}"


def _permissions(rules: int) -> Mapping[str, Any]:
    """Half subtrees, half names at any depth."""
    paths = [f"/home/agentos/project-{i}/**" if i % 2 else f"/home/**/secret-{i}.pem" for i in range(rules)]
    return {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": [path]} for path in paths]}}


def _parse(permissions: Mapping[str, Any]) -> Policy:
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
