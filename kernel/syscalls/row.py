"""One row of the table: what triggers a notification of a system call, who then handles it, and what happens otherwise."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .decision import ALLOW, NOTIFY, Decision, Outcome

# A trigger names what a policy may decide differently for different subjects. The fs operations are those of
# scopes/operations.py; they are spelled out because this package is also loaded by the build, before anything is installed.
FS_TRIGGERS = tuple(
    "fs." + operation
    for operation in (
        "read", "write", "stat", "readdir", "create_dir", "rm", "rename", "symlink", "readlink", "chmod", "truncate",
        "mount_sensitive",
    )
)  # fmt: skip
ANY_FS = "fs.*"  # holds whenever one of FS_TRIGGERS does
SETID = "setid"  # of no policy: a directory of the host is writable, and no set-user-ID or set-group-ID file may come to be there
NOEXEC = "noexec"  # of no policy: nothing that guests can write may be executed
TRIGGERS = frozenset({*FS_TRIGGERS, ANY_FS, "network", "childProcess", "process", "env", SETID, NOEXEC})


class ArgumentRule(Protocol):
    """Decides by the argument registers; the first paragraph of its docstring is what docs/syscalls.md says about it."""

    def decide(self, notified: frozenset[str], /) -> Decision:
        """The decision under these notified triggers (complete: see `complete_triggers`)."""
        ...


class Syscall(NamedTuple):
    """What becomes of one x86-64 system call.

    It is notified, for `handler` to judge and perform, when any trigger in `judged` is; otherwise `otherwise` holds. A rule
    in `otherwise` is always asked, and says itself when to notify.
    """

    number: int
    name: str
    judged: tuple[str, ...] = ()
    handler: str | None = None  # the C function of the supervisor
    otherwise: Outcome | ArgumentRule = ALLOW
    why: str = ""

    def decide(self, notified: frozenset[str]) -> Decision:
        """What the filter does with this call under these notified triggers (complete: see `complete_triggers`)."""
        if not isinstance(self.otherwise, Outcome):
            return self.otherwise.decide(notified)
        return NOTIFY if notified.intersection(self.judged) else self.otherwise


def complete_triggers(notified: frozenset[str]) -> frozenset[str]:
    """The triggers with `fs.*` added when it follows from the others. ValueError for a name that is no trigger."""
    if unknown := notified - TRIGGERS:
        raise ValueError(f"unknown triggers: {', '.join(sorted(unknown))}")
    return notified | {ANY_FS} if notified.intersection(FS_TRIGGERS) else notified
