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
from callgate.scopes.operations import SCOPES, operation_mask, operation_number
from callgate.scopes.request import Request
from callgate.scopes.rules import CompiledRule

SCOPE, OPERATION, SUBJECT = "fs", "read", "/home/agentos/bench/src/package/module.py"
BARE_ALLOW: Final = "a bare allow"


def measure(bench: Bench) -> SuiteResult:
    """Nanoseconds of a decision in which no rule matches, so that all are tried; milliseconds to parse; microseconds of opens."""
    result = SuiteResult("evaluation", "verdicts by number of rules")
    _decisions(bench, result)
    permissions = {_rules(n): _permissions(n) for n in ((1, 10) if bench.short else (1, 10, 100))}
    parses = {name: seconds(partial(_parse, written)) for name, written in permissions.items()}
    result.case("Policy.parse").add(bench.interleave(parses, rounds=5), "ms", scale=1e3)
    _opens(bench, result, permissions)
    return result


def _decisions(bench: Bench, result: SuiteResult) -> None:
    counts = (1, 10, 100, 1000)
    policies = {_rules(n): _parse({"fs": "allow"}).with_rules(after=_compiled(n)) for n in counts}
    native = {_rules(n): _each(_in_c(policies[_rules(n)]), bench.count(max(20_000 // n, 100))) for n in counts}
    native[BARE_ALLOW] = _each(_in_c(_parse({"fs": "allow"})), bench.count(20_000))
    result.case("decision, C called through cffi").add(bench.interleave(native, rounds=21), "ns")
    python = {_rules(n): _each(_in_python(policies[_rules(n)]), bench.count(max(2_000 // n, 10))) for n in counts}
    result.case("decision, Python").add(bench.interleave(python, rounds=21), "ns")
    result.notes.append(
        f"{BARE_ALLOW} evaluates nothing: it is what the call through cffi costs, and part of the other C figures"
    )


def _opens(bench: Bench, result: SuiteResult, permissions: Mapping[str, Mapping[str, Any]]) -> None:
    vms = {name: loop_vm(bench, written) for name, written in {**permissions, BARE_ALLOW: {"fs": "allow"}}.items()}
    try:
        variants = {name: in_vm(vm, "open", bench.count(1000)) for name, vm in vms.items()}
        samples = bench.interleave(variants, rounds=21)
    finally:
        for vm in vms.values():
            vm.close()
    opens = result.case("open and close in a VM")
    opens.add(samples, "us", scale=1e-3)
    opens.compare(BARE_ALLOW, _rules(1), target=1.0)
    for name in permissions:
        if name != _rules(1):
            opens.compare(name, _rules(1))


def _rules(number: int) -> str:
    return f"{number} rule{'s' if number > 1 else ''}"


def _paths(number: int) -> list[str]:
    """Half subtrees, half names at any depth; none is the subject's."""
    return [f"/home/agentos/project-{i}/**" if i % 2 else f"/home/**/secret-{i}.pem" for i in range(number)]


def _permissions(rules: int) -> Mapping[str, Any]:
    written = [{"mode": "deny", "operations": ["*"], "paths": [path]} for path in _paths(rules)]
    return {"fs": {"default": "allow", "rules": written}}


def _compiled(rules: int) -> list[CompiledRule]:
    """The same as they are evaluated: no time goes to finding rules that do nothing."""
    every = operation_mask(SCOPE, ["*"])
    return [CompiledRule(False, every, index, (path,)) for index, path in enumerate(_paths(rules))]


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
