"""A directory of the host to be mounted into a VM."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from callgate.scopes.errors import Unsupported

MODES = ("ro", "rw")


@dataclass(frozen=True, slots=True)
class HostDir:
    """A host directory, as a value of `VM(mounts={destination: HostDir(...)})`.

    With mode `ro` every write below the destination fails with EACCES; with `rw` it changes the host's files, as far as the
    policy lets the guest write at all. In the VM the owner of the directory is shown as the guest's user. The path is made
    absolute at once; `FileNotFoundError` or `NotADirectoryError` if there is no such directory.
    """

    path: str
    mode: Literal["ro", "rw"] = "ro"

    def __init__(self, path: str | os.PathLike[str], mode: Literal["ro", "rw", "cow"] = "ro") -> None:
        if mode == "cow":
            raise Unsupported("mode 'cow' (copy on write) is not yet supported: use 'ro', or 'rw' on a copy of the directory")
        if mode not in MODES:
            raise ValueError(f"mode {mode!r} is not one of {', '.join(MODES)}")
        resolved = Path(path).resolve(strict=True)
        if not resolved.is_dir():
            raise NotADirectoryError(f"{os.fspath(path)!r} is not a directory")
        object.__setattr__(self, "path", str(resolved))
        object.__setattr__(self, "mode", mode)
