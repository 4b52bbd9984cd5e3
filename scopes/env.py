"""The env scope: a pattern matches the name of an environment variable, case and all (SPEC 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

from callgate.scopes.errors import shown_value


def mistake(pattern: str) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """What is wrong with a pattern, or None: nearly any text can be a variable's name."""
    return None


def globs(pattern: str) -> tuple[str, ...]:
    """The pattern as globs over subjects."""
    return ("**",) if pattern == "*" else (pattern,)


def never_matches(pattern: str, operations: Sequence[str]) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """Why the pattern can match no subject of these operations, or None."""
    if "=" in pattern:
        return f"{shown_value(pattern)} holds '=', which no variable's name does; patterns match the name alone"
    return None


def canonical_subject(subject: str, operation: str) -> str:  # noqa: ARG001 - the shape all scopes share
    """The subject as it is judged: unchanged."""
    return subject
