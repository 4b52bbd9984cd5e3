"""Which module speaks for which scope: what its patterns may be, and the globs that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from callgate.scopes import binding, child_process, env, fs, network, process


class Dialect(Protocol):
    """What every scope's module offers. Patterns have passed the checks that all scopes share (validate.py)."""

    def mistake(self, pattern: str) -> str | None:
        """What is wrong with a pattern, or None."""
        ...

    def globs(self, pattern: str) -> tuple[str, ...]:
        """A pattern without mistake as globs over the scope's subjects."""
        ...

    def never_matches(self, pattern: str, operations: Sequence[str]) -> str | None:
        """Why a pattern without mistake can match no subject of the operations, or None."""
        ...

    def canonical_subject(self, subject: str, operation: str) -> str:
        """A subject in the one spelling that is judged."""
        ...


DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {
        "fs": fs,
        "network": network,
        "childProcess": child_process,
        "process": process,
        "env": env,
        "binding": binding,
    }
)

# The scope's subjects are compared without regard to letter case.
FOLDED_SCOPES: Final = frozenset({"network"})


def patterns_key(scope: str) -> str:
    """The key under which a rule of the scope lists its patterns."""
    return "paths" if scope == "fs" else "patterns"
