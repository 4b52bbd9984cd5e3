"""Whether a rename would give an object, or anything below it, an operation it did not have (SPEC 3.1, LEDGER A6).

Below a directory there may be any names, so the question is about all of them at once. Feeding a rule's globs the two
directories leaves two states of the same automaton, and from these it shows whether the rule can still tell the two
subtrees apart. kernel/native/policy.c answers the same question in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

from callgate.scopes.glob import compile_glob
from callgate.scopes.rules import CompiledRule, CompiledScope


class _View(NamedTuple):
    """How a rule sees the names below A and B.

    "May" and "must" are about any one name; ``a_in_b`` says that whenever the rule matches A/x it matches B/x.
    """

    a_may: bool
    a_must: bool
    b_may: bool
    b_must: bool
    a_in_b: bool
    b_in_a: bool


# What may be true of some name x below, once the rules from the last down to some rule have been applied. Cases that can no
# longer become a gain (A/x allowed, or B/x denied, or both decided by one rule) are dropped.
_OPEN, _B_ALLOWED, _A_DENIED, _GAIN = 1, 2, 4, 8


def may_widen(fs: CompiledScope, source: str, target: str, *, is_directory: bool) -> bool:
    """False only if nothing is allowed on ``target`` (or, for a directory, below it) that is denied on ``source``.

    Both are normalised absolute paths. True may be a false alarm, never the other way round.
    """
    numbers = range(len(fs.operations))
    if any(fs.judge(number, target)[0] and not fs.judge(number, source)[0] for number in numbers):
        return True
    return is_directory and bool(fs.rules) and _below_may_gain(fs, source, target)


def _below_may_gain(fs: CompiledScope, source: str, target: str) -> bool:
    cases = [_OPEN] * len(fs.operations)
    for rule in reversed(fs.rules):
        view = _view(rule, source.removesuffix("/") + "/", target.removesuffix("/") + "/")
        for number in range(len(cases)):
            if rule.operations >> number & 1:
                cases[number] = _after_rule(cases[number], rule.allow, view)
    gain = _GAIN | (_A_DENIED if fs.default_allow else _B_ALLOWED)
    return any(case & gain for case in cases)


def _view(rule: CompiledRule, a: str, b: str) -> _View:
    a_may = a_must = b_may = b_must = False
    a_in_b = b_in_a = True
    for text in rule.globs:
        glob = compile_glob(text)
        at_a, at_b = glob.feed(glob.start(), a), glob.feed(glob.start(), b)
        a_may, b_may = a_may or at_a != 0, b_may or at_b != 0
        a_must, b_must = a_must or glob.universal(at_a), b_must or glob.universal(at_b)
        # A state is a set of places to go on from: from more places at least as much matches.
        a_in_b, b_in_a = a_in_b and not at_a & ~at_b, b_in_a and not at_b & ~at_a
    return _View(a_may, a_must, b_may, b_must, a_in_b, b_in_a)


def _after_rule(cases: int, allow: bool, view: _View) -> int:
    after = cases & _GAIN
    if cases & _OPEN:
        if not view.a_must and not view.b_must:
            after |= _OPEN
        if not allow and view.a_may and not view.b_must and not view.a_in_b:
            after |= _A_DENIED
        if allow and view.b_may and not view.a_must and not view.b_in_a:
            after |= _B_ALLOWED
    if cases & _B_ALLOWED:
        after |= (0 if view.a_must else _B_ALLOWED) | (_GAIN if not allow and view.a_may else 0)
    if cases & _A_DENIED:
        after |= (0 if view.b_must else _A_DENIED) | (_GAIN if allow and view.b_may else 0)
    return after
