"""The childProcess scope: a pattern with a slash matches a program's resolved path, one without its basename (SPEC 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from callgate.scopes import fs
from callgate.scopes.errors import shown_value


def mistake(pattern: str) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """What is wrong with a pattern, or None: any text can be part of a file's name."""
    return None


def globs(pattern: str) -> tuple[str, ...]:
    """The pattern as globs over subjects."""
    if pattern in ("*", "**"):
        return ("**",)
    if "/" in pattern:
        return (fs.normalised(pattern),)
    # A basename holds no slash, so ** says no more than * there; left as it is, it would reach into directories.
    name = pattern
    while "**" in name:
        name = name.replace("**", "*")
    # The second glob is for callers who ask about a command that has not been looked up.
    return ("**",) if name == "*" else (f"**/{name}", name)


def never_matches(pattern: str, operations: Sequence[str]) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """Why the pattern can match no subject of these operations, or None."""
    if "/" in pattern and not pattern.startswith(("/", "*")):
        return f'{shown_value(pattern)} holds a slash, so it is compared with absolute paths; write "/..." or "**/..."'
    return None


def canonical_subject(subject: str, operation: str) -> str:  # noqa: ARG001 - the shape all scopes share
    """The program's path in the one spelling that is judged."""
    return fs.normalised(subject) if "/" in subject else subject
