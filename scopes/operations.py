"""The six scopes and their operations, in the order in which kernel/native/protocol.h numbers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from callgate.scopes.errors import shown_value

EVERY_OPERATION: Final = "*"

# An operation's number is its position here; its bit in a rule's mask is 1 << number. A scope whose only operation is "*"
# is selected by pattern alone (LEDGER AOS-55, AOS-56).
OPERATIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "fs": (
            "read",
            "write",
            "stat",
            "readdir",
            "create_dir",
            "rm",
            "rename",
            "symlink",
            "readlink",
            "chmod",
            "truncate",
            "mount_sensitive",
        ),
        "network": ("fetch", "http", "dns", "listen"),
        "childProcess": ("spawn",),
        "process": (EVERY_OPERATION,),
        "env": ("read", "write"),
        "binding": (EVERY_OPERATION,),
    }
)

SCOPES: Final[tuple[str, ...]] = tuple(OPERATIONS)


def operation_number(scope: str, operation: str) -> int:
    """The number of an operation; ValueError with a hint for a scope or operation that does not exist."""
    operations = OPERATIONS.get(scope)
    if operations is None:
        raise ValueError(f"unknown scope {shown_value(scope)}{did_you_mean(scope, SCOPES)}; the scopes are {', '.join(SCOPES)}")
    if operation not in operations:
        raise ValueError(
            f"unknown operation {shown_value(operation)} of scope {scope}{did_you_mean(operation, operations)};"
            f" its operations are {', '.join(operations)}"
        )
    return operations.index(operation)


def operation_mask(scope: str, operations: Iterable[str]) -> int:
    """The bits of the named operations; ``"*"`` is all of the scope's."""
    mask = 0
    for operation in operations:
        if operation == EVERY_OPERATION:
            return (1 << len(OPERATIONS[scope])) - 1
        mask |= 1 << operation_number(scope, operation)
    return mask


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean "childProcess"?`` for a near miss, else nothing. Case, ``_`` and ``-`` are not held against the word."""
    from difflib import get_close_matches  # not at the top: only a mistake pays for the import

    candidates = {_plain(candidate): candidate for candidate in known}
    close = get_close_matches(_plain(word), candidates, n=1, cutoff=0.6)
    return f"; did you mean {shown_value(candidates[close[0]])}?" if close else ""


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()
