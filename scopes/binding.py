"""The binding scope: a pattern matches the name of a registered host function, such as ``add`` or ``math:*`` (SPEC 3.6)."""

from __future__ import annotations

from collections.abc import Sequence


def mistake(pattern: str) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """What is wrong with a pattern, or None: the registry decides what may be a name, not the policy."""
    return None


def globs(pattern: str) -> tuple[str, ...]:
    """The pattern as globs over subjects."""
    return ("**",) if pattern == "*" else (pattern,)


def never_matches(pattern: str, operations: Sequence[str]) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """Why the pattern can match no subject of these operations, or None: which names exist is not known here."""
    return None


def canonical_subject(subject: str, operation: str) -> str:  # noqa: ARG001 - the shape all scopes share
    """The subject as it is judged: unchanged."""
    return subject
