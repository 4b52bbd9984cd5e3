"""Runs programs in a VM and prints, for each, what it was allowed and what it was refused, and by which rule."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from callgate import VM, Denial, PermissionDenied


@dataclass
class Tally:
    """Counts what the report has shown so far."""

    worked: int = 0
    failed: int = 0


TALLY = Tally()


def show(main: Callable[[], int | None]) -> NoReturn:
    """Runs an example as a program. A reader of its output that leaves early (`| head`) ends it without a word."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the interpreter still writes at its end
        code = 141  # 128 + SIGPIPE, as the shell has it
    sys.exit(code)


def title(text: str, permissions: Mapping[str, Any]) -> None:
    """The heading of a part of the report, with the policy it is about."""
    print(f"\n  {text}")
    for scope, value in permissions.items():
        print(f"  policy {scope}: {value}")


def run(vm: VM, command: str | Sequence[str], note: str = "") -> None:
    """Runs a command in the VM and prints its outcome; `note` is shown in place of a command too long to show."""
    result = vm.run(command, timeout=30)
    words = command if isinstance(command, str) else " ".join(command)
    asked, incidental = split(result.denials, words)
    lines = [*result.stdout.splitlines(), *result.stderr.splitlines()[-1:]]
    _print(f"$ {note or words}", result.returncode == 0, lines, asked)
    if incidental:
        looks = f"{incidental} look{'s' if incidental > 1 else ''}"
        print(f"             (while starting it was also refused {looks} around that it can do without)")


def split(denials: Sequence[Denial], command: str) -> tuple[list[Denial], int]:
    """The refusals of what the command is about, and how many others: loaders and interpreters look around as they start."""
    asked = [d for d in denials if d.scope != "fs" or d.requested in command or d.requested.startswith("/home/agentos")]
    asked = [d for d in asked if "/.local/" not in d.requested]
    return asked, len(denials) - len(asked)


def call(shown: str, operation: Callable[[], object]) -> None:
    """Does something through the VM's Python API and prints its outcome."""
    try:
        value = operation()
    except PermissionDenied as error:
        _print(f"> {shown}", False, [], [error])
    else:
        _print(f"> {shown}", True, [repr(value)], [])


def _print(what: str, worked: bool, lines: Sequence[str], refusals: Sequence[Denial | PermissionDenied]) -> None:
    TALLY.worked += worked
    TALLY.failed += not worked
    print(f"    {'worked' if worked else 'failed'}   {what}")
    for line in lines:
        print(f"             {line}")
    messages = dict.fromkeys(f"{refusal} ({decided_by(refusal)})" for refusal in refusals)
    for message in messages:
        print(f"             {message}")


def decided_by(refusal: Denial | PermissionDenied) -> str:
    """What in the policy decided, in words."""
    rule = refusal.rule
    return f"rule {rule}" if isinstance(rule, int) else {"mode": "the scope's mode", "default": "the default"}.get(rule, rule)
