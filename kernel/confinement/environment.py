"""The environment guest programs start with: the VM's own, never the host's, without the names whose `env.read` is denied."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from callgate.kernel.confinement.host_service import COMMANDS, PYTHON
from callgate.kernel.confinement.root import User, interpreter_prefix

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment(user: User) -> dict[str, str]:
    """The variables every VM of *user* has before the operator adds any."""
    prefix = interpreter_prefix()
    return {
        # The bindings' commands last: none of them takes the place of a program of the system's.
        "PATH": ":".join((_SEARCH_PATH, *([] if prefix is None else [f"{prefix}/bin"]), COMMANDS)),
        "PYTHONPATH": PYTHON,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "TMPDIR": "/tmp",
    }


def checked(env: Mapping[str, str]) -> dict[str, str]:
    """A copy of *env*; `ValueError` or `TypeError` for what execve(2) could not pass on as it is."""
    if not isinstance(env, Mapping):
        raise TypeError(f"env is {type(env).__name__}, not a mapping of names to values")
    copy: dict[str, str] = {}
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"environment variable {name!r}: name and value must be str")
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{name!r} cannot be the name of an environment variable")
        if "\0" in value:
            raise ValueError(f"environment variable {name!r} holds a NUL character")
        copy[name] = value
    return copy


def visible(env: Mapping[str, str], may_read: Callable[[str], bool]) -> dict[str, str]:
    """*env* without the names a guest may not read: those are absent, not empty (SPEC 3.5)."""
    return {name: value for name, value in env.items() if may_read(name)}
