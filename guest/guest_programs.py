"""The programs that guests call host functions with, as they lie in a VM: one command under many names, and a Python module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from callgate.kernel.confinement.host_service import COMMAND, COMMANDS, PYTHON, HostPrograms
from callgate.kernel.supervisor_process import EXECUTABLE
from callgate.scopes.errors import InternalError

_COMMAND = EXECUTABLE.with_name(COMMAND)  # where the build puts what it compiles
_MODULE = Path(__file__).with_name("inside") / "callgate_guest.py"


@lru_cache(maxsize=1)
def _command_and_module() -> tuple[bytes, bytes]:
    """Their content. `InternalError` if the package was not built completely."""
    try:
        return _COMMAND.read_bytes(), _MODULE.read_bytes()
    except OSError as error:
        raise InternalError(f"{error.filename} is missing: the C part of callgate was not built; reinstall it") from error


def link(name: str) -> tuple[str, str]:
    """The link (path, text) that makes a binding or a group a command."""
    return f"{COMMANDS}/{name}", COMMAND


def programs(names: Iterable[str]) -> HostPrograms:
    """Everything, with a link for each of *names*."""
    command, module = _command_and_module()
    return HostPrograms(str(_COMMAND), command, {f"{PYTHON}/{_MODULE.name}": module}, [link(name) for name in names])
