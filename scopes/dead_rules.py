"""Finds the rules of a valid policy that do nothing: those that can never match and those that can never matter."""

from __future__ import annotations

from collections.abc import Iterator

from callgate.scopes.dialects import DIALECTS, patterns_key
from callgate.scopes.errors import Problem
from callgate.scopes.glob import covers
from callgate.scopes.operations import OPERATIONS
from callgate.scopes.rules import CompiledRule, CompiledScope, ScopeRules

# The modes of a rule that only repeats the default and so cannot matter. The gaps are rules that do matter although the
# policy's verdict is the same without them: a deny in fs also takes paths out of the runtime image (SPEC 3.1), a network
# rule also names addresses that are otherwise judged by their name or refused as local (SPEC 3.2), and ptrace wants an
# explicit allow (SPEC 3.4).
_REPEATS_DEFAULT = {
    "fs": (True,),
    "network": (),
    "childProcess": (True, False),
    "process": (False,),
    "env": (True, False),
    "binding": (True, False),
}

# Scopes in which a rule may matter, for the reasons above, although a later one of the same mode covers it.
_EXPLICIT_COUNTS = frozenset({"network", "process"})


def dead_rules(scope: str, written: ScopeRules, compiled: CompiledScope) -> Iterator[Problem]:
    """One problem for each pattern that can never match and each rule that can never matter."""
    for i, rule in enumerate(written.rules):
        place = f"{scope}.rules[{i}]"
        never = [DIALECTS[scope].never_matches(pattern, rule.operations) for pattern in rule.patterns]
        for j, reason in enumerate(never):
            if reason is not None:
                yield Problem(f"{place}.{patterns_key(scope)}[{j}]", f"can never match: {reason}")
        if None in never:
            reason = _never_matters(scope, i, compiled)
            if reason is not None:
                yield Problem(place, f"can never matter: {reason}")


def _never_matters(scope: str, index: int, compiled: CompiledScope) -> str | None:
    rule = compiled.rules[index]
    if rule.allow == compiled.default_allow and rule.allow in _REPEATS_DEFAULT[scope]:
        earlier = [other for other in compiled.rules[:index] if other.allow != rule.allow]
        if not any(other.operations & rule.operations for other in earlier):
            mode = "allow" if rule.allow else "deny"
            return f'it repeats the default, "{mode}", and no rule before it says otherwise'
    later = [(j, other) for j, other in enumerate(compiled.rules) if j > index]
    if scope in _EXPLICIT_COUNTS:
        later = [(j, other) for j, other in later if other.allow != rule.allow]
    numbers = [number for number in range(len(OPERATIONS[scope])) if rule.operations >> number & 1]
    covering = {_covered_by(number, glob, later) for number in numbers for glob in rule.globs}
    if None in covering:
        return None
    names = ", ".join(f"rules[{j}]" for j in sorted(j for j in covering if j is not None))
    return f"the last matching rule wins, and whatever it matches is matched again by {names}"


def _covered_by(number: int, glob: str, later: list[tuple[int, CompiledRule]]) -> int | None:
    """The later rule that matches everything the glob does, for one operation."""
    for j, other in later:
        if other.operations >> number & 1 and any(covers(wide, glob) for wide in other.globs):
            return j
    return None
