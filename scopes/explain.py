"""Says in a sentence why a request gets the verdict it gets."""

from __future__ import annotations

from callgate.scopes import errors
from callgate.scopes.dialects import DIALECTS, patterns_key
from callgate.scopes.glob import compile_glob
from callgate.scopes.request import Request, Verdict
from callgate.scopes.rules import Rule, ScopeRules

_KERNEL_REASONS = {
    "runtime image": "the path belongs to the runtime image, which programs need in order to start",
    "mount": "the path lies in a read-only mount",
    "device": "the path is a device that is always usable",
    "host service": "the path leads to the host's services in the VM, which judge what is asked of them",
    "unsupported": "one program would act with the rights of another, which only a rule that names ptrace allows",
    "local address": "the address is local to the host or its networks, and no rule names it",
}


def explanation(request: Request, verdict: Verdict, written: ScopeRules, *, given: bool) -> str:
    """The verdict, what decided it, and why nothing else did."""
    parts = (request.scope, request.operation, request.subject)
    outcome = "allowed" if verdict.allowed else "denied"
    reason = _reason(request, verdict, written, given)
    return f"{errors.shown_subject(*parts)} is {outcome} by {errors.policy_name(*parts)}: {reason}."


def _reason(request: Request, verdict: Verdict, written: ScopeRules, given: bool) -> str:
    mode = "allow" if written.allow else "deny"
    if verdict.rule == "mode":
        origin = "the policy sets" if given else "the policy says nothing about it, and the secure default sets"
        return f'{origin} the whole {request.scope} scope to "{mode}"'
    if verdict.rule == "default":
        rules = "it has no rules" if not written.rules else f"none of its {len(written.rules)} rules matches"
        if len(written.rules) == 1:
            rules = "its one rule does not match"
        return f'{rules}, so the default, "{mode}", applies'
    if isinstance(verdict.rule, str):
        return _KERNEL_REASONS[verdict.rule]
    rule = written.rules[verdict.rule]
    operations = "every operation" if rule.every_operation else ", ".join(rule.operations)
    pattern = _matching_pattern(request, rule)
    after = "no later rule matches" if verdict.rule + 1 < len(written.rules) else "it is the last rule"
    does = "allows" if rule.allow else "denies"
    kind = patterns_key(request.scope).removesuffix("s")
    return f"{request.scope}.rules[{verdict.rule}] {does} {operations} on {kind} {errors.shown_value(pattern)}, and {after}"


def _matching_pattern(request: Request, rule: Rule) -> str:
    globs = DIALECTS[request.scope].globs
    return next(
        pattern for pattern in rule.patterns if any(compile_glob(glob).matches(request.subject) for glob in globs(pattern))
    )
