"""The programs that guests call host functions with, as they lie in a VM: one command under many names, and a Python module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from callgate.kernel.confinement.host_service import COMMANDS, PYTHON, HostPrograms
from callgate.kernel.supervisor_process import EXECUTABLE
from callgate.scopes.errors import InternalError

COMMAND = "callgate-bindings"

_MODULE = Path(__file__).with_name("inside") / "callgate_guest.py"


@lru_cache(maxsize=1)
def _files() -> dict[str, bytes]:
    """Their content by path in the VM. `InternalError` if the package was not built completely."""
    command = EXECUTABLE.with_name(COMMAND)  # where the build puts what it compiles
    try:
        return {f"{COMMANDS}/{COMMAND}": command.read_bytes(), f"{PYTHON}/{_MODULE.name}": _MODULE.read_bytes()}
    except OSError as error:
        raise InternalError(f"{error.filename} is missing: the C part of callgate was not built; reinstall it") from error


def link(name: str) -> tuple[str, str]:
    """The link (path, text) that makes a binding or a group a command."""
    return f"{COMMANDS}/{name}", COMMAND


def programs(names: Iterable[str]) -> HostPrograms:
    """Everything, with a link for each of *names*."""
    return HostPrograms(_files(), [link(name) for name in names])
