"""The process scope: a pattern is ``<action>`` or ``<action>:<pid>``; an action covers every pid (SPEC 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from callgate.scopes.errors import shown_value
from callgate.scopes.operations import did_you_mean

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
    return (pattern,) if ":" in pattern else (pattern, f"{pattern}:*")


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
