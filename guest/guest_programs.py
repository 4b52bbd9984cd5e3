"""What guests reach the host's services with, as it lies in a VM: one command under many names, and Python modules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from callgate.kernel.confinement.host_service import COMMAND, COMMANDS, PYTHON, HostPrograms
from callgate.kernel.supervisor_process import EXECUTABLE
from callgate.scopes.errors import InternalError

_COMMAND = EXECUTABLE.with_name(COMMAND)  # where the build puts what it compiles
_INSIDE = Path(__file__).with_name("inside")
_MODULES = ("callgate_guest.py", "callgate_fetch.py")
_FETCH = "callgate-fetch"  # the command starts the module of that name


@lru_cache(maxsize=1)
def _command_and_modules() -> tuple[bytes, dict[str, bytes]]:
    """Their content. `InternalError` if the package was not built completely."""
    try:
        return _COMMAND.read_bytes(), {f"{PYTHON}/{name}": (_INSIDE / name).read_bytes() for name in _MODULES}
    except OSError as error:
        raise InternalError(f"{error.filename} is missing: the C part of callgate was not built; reinstall it") from error


def link(name: str) -> tuple[str, str]:
    """The link (path, text) that makes a binding or a group a command."""
    return f"{COMMANDS}/{name}", COMMAND


def programs(names: Iterable[str]) -> HostPrograms:
    """Everything, with a link for each of *names*."""
    command, modules = _command_and_modules()
    return HostPrograms(str(_COMMAND), command, modules, [link(name) for name in (_FETCH, *names)])
