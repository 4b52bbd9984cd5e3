"""What a caller is told when a call gives no result: a code to act on, the error's type, and a message without the host in it."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from callgate.bindings.form import Mismatch

#: Codes of failures; docs/bindings.md explains each.
REFUSED: Final = "EACCES"
UNKNOWN: Final = "unknown"  # no such binding
ARGUMENTS: Final = "arguments"
FAILED: Final = "failed"  # the function raised
RESULT: Final = "result"  # the function's result cannot be sent
TIMEOUT: Final = "timeout"
CANCELLED: Final = "cancelled"
PROTOCOL: Final = "protocol"
BUSY: Final = "busy"

_MESSAGE_MAX = 4096  # characters


class Failure(NamedTuple):
    """Why there is no result."""

    code: str
    message: str
    type: str = "BindingError"

    def as_json(self) -> dict[str, Any]:
        """The error object of a reply."""
        return {"code": self.code, "type": self.type, "message": self.message}


def wrong_arguments(error: Mismatch) -> Failure:
    """The failure for arguments that a binding does not take."""
    return Failure(ARGUMENTS, str(error), "TypeError")


def raised(error: BaseException) -> Failure:
    """The failure for an exception of a host function's: its type and message, never where on the host it came from."""
    # An OSError's own words show file names besides.
    text = str(error.strerror) if isinstance(error, OSError) and error.strerror else _message(error)
    for path in _host_paths(str(Path.cwd()) if _has_cwd() else ""):
        if path in text:
            text = text.replace(path, "<host>")
    if len(text) > _MESSAGE_MAX:
        text = text[:_MESSAGE_MAX] + "..."
    return Failure(FAILED, text.encode("utf-8", "replace").decode(), type(error).__name__)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - __str__ is the operator's code too, and there is nobody to hear of its error
        return ""


def _has_cwd() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


@lru_cache(maxsize=8)
def _host_paths(cwd: str) -> tuple[str, ...]:
    """Directories of the host that messages of Python's own name, such as those of an ImportError; the longest first."""
    found = {cwd, os.path.expanduser("~"), sys.prefix, sys.base_prefix, *sys.path}  # noqa: PTH111
    return tuple(sorted((path for path in found if path.startswith("/") and path.count("/") > 1), key=len, reverse=True))
