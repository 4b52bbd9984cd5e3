"""Writes docs/syscalls.md from the table: `python -m callgate.kernel.syscalls.document > docs/syscalls.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from errno import errorcode

from .arguments import devices, network, processes
from .decision import ALLOW, Outcome
from .row import ArgumentRule, Syscall
from .table import GROUPS, SYSCALLS

INTRODUCTION = """\
# System calls

What becomes of every x86-64 system call a guest makes. This page is generated from `kernel/syscalls/table.py`
(`python -m callgate.kernel.syscalls.document > docs/syscalls.md`), and so are the filter and the table of the supervisor.

A policy is compiled into *triggers*: the operations whose verdict is not the same for every subject, and those that are
refused. A call with a trigger under **judged as** is handed to the supervisor (the **handler** is its C function), which judges
and performs it. Where no trigger holds, what stands under **otherwise** is done without asking anybody: *passes* means that the
kernel carries the call out, an errno that the call fails with it and does nothing. The name of a rule means that the arguments
decide; the rules are [below](#rules-on-arguments). `fs.*` stands for all operations of fs together. `setid` is no operation: it
holds when a directory of the host is mounted writable, and keeps files with the set-user-ID or set-group-ID bit out of it.

- Calls of another ABI (int 0x80, 32-bit programs) kill the process: their numbers mean other calls.
- x32 numbers (0x40000000 and up), -1 and every number not listed here fail with `ENOSYS`, so that a call added to Linux later is
  refused until it has been looked at.
- Calls that programs do not expect to fail with `EINTR` are never handed over: close, dup, fork, clone, read, write, exit, munmap
  and the handling of signals. A signal that arrives before the supervisor takes a call would make it fail that way.
- Everything that passes with certainty is decided by its number alone, which the Linux kernel remembers, so that such a call does
  not run the filter at all.
"""

RULES_INTRODUCTION = """\
Only registers are looked at. What they point to can be changed by another thread after the check; a register cannot.
Where the kernel takes an argument as 32 bits wide, so does the rule.
"""


def generate() -> str:
    """The text of docs/syscalls.md."""
    return "\n".join([INTRODUCTION, *_groups(), *_rules()])


def _groups() -> Iterator[str]:
    for group in GROUPS:
        name = group.__name__.rpartition(".")[2]
        yield f"## {name.capitalize()}\n\n{inspect.cleandoc(group.__doc__ or '')}\n"
        yield _table(
            ("number", "call", "judged as", "handler", "otherwise", "why"),
            (
                (str(row.number), f"`{row.name}`", _code(row.judged), _code([row.handler or ""]), _otherwise(row), row.why)
                for row in group.ROWS
            ),
        )


def _rules() -> Iterator[str]:
    yield f"## Rules on arguments\n\n{RULES_INTRODUCTION}"
    users: dict[type[ArgumentRule], list[str]] = {}
    for row in SYSCALLS:
        if not isinstance(row.otherwise, Outcome):
            users.setdefault(type(row.otherwise), []).append(row.name)
    for rule, calls in users.items():
        yield f"### {rule.__name__}\n\nFor {_code(calls)}. {inspect.cleandoc(rule.__doc__ or '')}\n"
        yield from _values(rule)


def _values(rule: type[ArgumentRule]) -> Iterator[str]:
    """The lists of values that the docstring of a rule refers to by name."""
    if rule is devices.IoctlCommands:
        for title in ("TERMINAL", "FILE", "SOCKET", "SIGNALLING", "TERMINAL_ATTACKS", "CONSOLE_GROUPS", "FILE_ATTRIBUTES"):
            yield f"{title}: {_code(getattr(devices, title))}\n"
    elif rule is processes.ProcessOptions:
        yield f"PRCTL_ALLOWED: {_code(processes.PRCTL_ALLOWED)}\n"
    elif rule is processes.CloneFlags:
        yield f"CLONE_NEW*: {_code(processes.NAMESPACE_FLAGS)}\n"
    elif rule is network.SocketOptions:
        reasons = [reason.split(" ", 1) for options in network.DANGEROUS_OPTIONS.values() for reason in options.values()]
        yield "DANGEROUS_OPTIONS:\n"
        yield _table(("option", "why"), ((f"`{option}`", why) for option, why in reasons))


def _otherwise(row: Syscall) -> str:
    if not isinstance(row.otherwise, Outcome):
        name = type(row.otherwise).__name__
        return f"[{name}](#{name.lower()})"
    return "passes" if row.otherwise == ALLOW else f"`{errorcode[row.otherwise.errno]}`"


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words if word)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(generate())
