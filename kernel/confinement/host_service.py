"""What a VM has of the host's services: a socket to reach them, and the programs with which guests call host functions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from callgate.kernel.confinement.root import Root, bind, directory, regular_file, symlink
from callgate.kernel.launch_blob import BindFlag, Listener, ListenKind, SetupStep
from callgate.scopes.fs import exactly, subtree
from callgate.scopes.operations import operation_mask
from callgate.scopes.rules import RULE_HOST_SERVICE, CompiledRule

DIRECTORY = "/run/callgate"
SOCKET = f"{DIRECTORY}/host.sock"
COMMAND = "callgate-bindings"  # every binding's command is a link to it
COMMANDS = f"{DIRECTORY}/bin"  # on the guests' PATH
PYTHON = f"{DIRECTORY}/python"  # on the guests' PYTHONPATH

LISTENER = Listener(ListenKind.UNIX, os.fsencode(SOCKET))

_READING = ("read", "stat", "readdir", "readlink")


class HostPrograms(NamedTuple):
    """What the directory of the socket holds beside it."""

    command: str  # the program on the host with which guests call bindings
    content: bytes  # of the command
    files: Mapping[str, bytes]  # content by path
    links: Iterable[tuple[str, str]] = ()  # path and text of symbolic links


def add_host_service(root: Root, programs: HostPrograms, *, noexec: bool) -> Root:
    """*root* with the directory of the socket and *programs*."""
    path = f"{COMMANDS}/{COMMAND}"
    if noexec:
        # What lies in the root's own filesystem cannot be executed then. A mount costs more than the copy of a small file.
        command = bind(path, programs.command, BindFlag.READ_ONLY | BindFlag.OPERATOR)
    else:
        command = _program(path, programs.content, 0o755)
    return root._replace(
        steps=(
            *root.steps,
            *_directories(),
            command,
            *(_program(path, content, 0o644) for path, content in programs.files.items()),
            *(symlink(path, text) for path, text in programs.links),
        )
    )


@lru_cache(maxsize=1)
def rules() -> tuple[CompiledRule, ...]:
    """Rules after the user's: reaching the host's services is never a matter of the fs policy. What they do is judged there."""
    reading = operation_mask("fs", _READING)
    return (
        CompiledRule(True, reading, RULE_HOST_SERVICE, (subtree(DIRECTORY),)),
        CompiledRule(True, operation_mask("fs", ("write",)), RULE_HOST_SERVICE, (exactly(SOCKET),)),
        CompiledRule(True, operation_mask("fs", ("stat",)), RULE_HOST_SERVICE, (exactly("/run"),)),
    )


def refuse_inside(path: str, what: str) -> None:
    """`ValueError` if something of the operator's would cover or replace what is here."""
    if path == DIRECTORY or path.startswith(DIRECTORY + "/") or DIRECTORY.startswith(path.rstrip("/") + "/"):
        raise ValueError(f"{what} {path!r}: {DIRECTORY} is the VM's own and cannot be covered")


# Made once: every VM has them, and a step keeps its own wire form.


@lru_cache(maxsize=1)
def _directories() -> tuple[SetupStep, ...]:
    return directory(DIRECTORY), directory(COMMANDS), directory(PYTHON)


@lru_cache(maxsize=16)
def _program(path: str, content: bytes, mode: int) -> SetupStep:
    return regular_file(path, content, mode)
