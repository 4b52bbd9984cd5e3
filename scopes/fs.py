"""The fs scope: patterns are absolute path globs, subjects are resolved absolute paths in the VM (SPEC 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

from callgate.scopes.errors import shown_value

# Rules that the kernel writes from literal paths cannot quote these, for the grammar has no escapes.
_GLOB_CHARACTERS = frozenset("*?")


def mistake(pattern: str) -> str | None:
    """What is wrong with a pattern, or None."""
    if pattern.startswith("/") or pattern in ("*", "**"):
        return None
    if pattern.startswith("~"):
        return f"{shown_value(pattern)} is not an absolute path: '~' is not expanded, write the directory out"
    suggestion = "/**/" + pattern.removeprefix("**/").removeprefix("./")
    return (
        f'{shown_value(pattern)} is neither an absolute path nor "*" or "**";'
        f" to match it anywhere write {shown_value(suggestion)}"
    )


def globs(pattern: str) -> tuple[str, ...]:
    """The pattern as globs over subjects."""
    return ("**",) if pattern == "*" else (normalised(pattern),)


def never_matches(pattern: str, operations: Sequence[str]) -> str | None:  # noqa: ARG001 - the shape all scopes share
    """Why the pattern can match no subject of these operations, or None."""
    return None


def canonical_subject(subject: str, operation: str) -> str:  # noqa: ARG001 - the shape all scopes share
    """The path in the one spelling that is judged. Symlinks and ``..`` are the kernel's to resolve, not done here."""
    return normalised(subject)


def unclear(subject: str) -> str | None:
    """Why a subject that somebody asks about is none, or None. Empty and ``.`` components mean nothing; ``..`` may, at a link."""
    if not subject.startswith("/"):
        return f"{shown_value(subject)} is not an absolute path, which is what is judged"
    if ".." in subject.split("/"):
        return f"{shown_value(subject)} holds '..': what is judged is the resolved path, and only the VM knows where '..' leads"
    return None


def normalised(path: str) -> str:
    """A path or path glob without empty and ``.`` components and without a trailing slash."""
    if "//" not in path and "/." not in path and not path.endswith("/"):
        return path
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def exactly(path: str) -> str:
    """The glob of one literal path, for rules that the kernel adds; ValueError when the path holds ``*`` or ``?``."""
    if not path.startswith("/") or _GLOB_CHARACTERS & set(path):
        raise ValueError(f"{path!r} cannot be written as a glob of itself: it must be absolute and hold no '*' or '?'")
    return normalised(path)


def subtree(path: str) -> str:
    """The glob of a literal directory and everything below it; ValueError as `exactly`."""
    return exactly(path).removesuffix("/") + "/**"
