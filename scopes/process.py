"""The process scope: a pattern is ``<action>`` or ``<action>:<pid>``; an action covers every pid (SPEC 3.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from callgate.scopes.errors import shown_value
from callgate.scopes.glob import compile_glob
from callgate.scopes.operations import EVERY_OPERATION, did_you_mean, operation_mask
from callgate.scopes.rules import RULE_UNSUPPORTED, CompiledRule, CompiledScope, Rule

ACTIONS: Final = (
    "kill",
    "setpriority",
    "setaffinity",
    "setscheduler",
    "prlimit",
    "ptrace",
    "setpgid",
    "setsid",
    "pidfd_open",
    "inspect",
)


def mistake(pattern: str) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """What is wrong with a pattern, or None: one that names no action is harmless, and `never_matches` says so."""
    return None


def globs(pattern: str) -> tuple[str, ...]:
    """The pattern as globs over subjects. Both subject strings of an operation are covered: ``kill`` and ``kill:42``."""
    if pattern in ("*", "**"):
        return ("**",)
    return (pattern,) if ":" in pattern else (pattern, f"{pattern}:**")


def never_matches(pattern: str, operations: Sequence[str]) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """Why the pattern can match no subject of these operations, or None."""
    action, colon, pid = pattern.partition(":")
    if "*" in pattern or "?" in pattern:
        return None
    if action not in ACTIONS:
        return f"{shown_value(action)} is not an action of the process scope{did_you_mean(action, ACTIONS)}"
    if colon and not (pid.isascii() and pid.isdigit() and pid == str(int(pid))):
        return f"{shown_value(pid)} is not a process id"
    return None


def canonical_subject(subject: str, operation: str) -> str:  # noqa: ARG001 - the shape all scopes share
    """The subject as it is judged: unchanged."""
    return subject


# -- tracing -----------------------------------------------------------------------------------------------------------

TRACE: Final = "ptrace"
_EVERY_TRACE: Final = (TRACE, f"{TRACE}:**")


def is_tracing(subject: str) -> bool:
    """Whether the subject is about one process acting with the rights of another: ptrace and its kin."""
    return subject.partition(":")[0] == TRACE


def refusing_tracing(scope: CompiledScope, written: Sequence[Rule]) -> CompiledScope:
    """The scope with tracing refused unless the rule that decides names it: neither a default nor a wildcard does (SPEC 3.4)."""
    mask = operation_mask("process", [EVERY_OPERATION])
    rules = [CompiledRule(False, mask, RULE_UNSUPPORTED, _EVERY_TRACE)] if scope.default_allow else []
    for rule, source in zip(scope.rules, written, strict=True):
        rules.append(rule)
        if not rule.allow or not (swept := tuple(glob for pattern in source.patterns for glob in _sweeps_in(pattern))):
            continue
        rules.append(CompiledRule(False, mask, RULE_UNSUPPORTED, swept))
        if named := tuple(glob for pattern in source.patterns if is_tracing(pattern) for glob in globs(pattern)):
            rules.append(replace(rule, globs=named))
    return replace(scope, rules=tuple(rules))


def _sweeps_in(pattern: str) -> Iterator[str]:
    """Globs over the subjects of tracing that a pattern covers by wildcards alone; may be too many, never too few."""
    action, colon, pid = pattern.partition(":")
    first = min((action.find(sign) for sign in "*?" if sign in action), default=-1)
    if first < 0:
        return
    if colon and "**" not in action:
        if compile_glob(action).matches(TRACE):
            yield f"{TRACE}:{pid}"
    elif TRACE.startswith(action[:first]) or action.startswith(TRACE):
        yield from _EVERY_TRACE
