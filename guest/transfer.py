"""Copies trees between the host and a VM without ever following a link that a guest chose on the host."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

_CHUNK = 1 << 20
_DEEPEST = 200  # a descriptor is held for each level, and a guest can nest as deep as paths are long
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Files(Protocol):
    """What of `vm.fs` a copy needs."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int: ...
    def listdir(self, path: str) -> list[str]: ...
    def stat(self, path: str, *, follow_symlinks: bool = True) -> os.stat_result: ...
    def mkdir(self, path: str, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False) -> None: ...
    def chmod(self, path: str, mode: int) -> None: ...
    def symlink(self, target: str, path: str) -> None: ...
    def readlink(self, path: str) -> str: ...


class Upload:
    """From the host into the VM."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def copy(self, source: Path, destination: str) -> None:
        """Copy *source*, and everything below it if it is a directory. A link given as *source* itself is followed."""
        self._copy(source.resolve(strict=True), destination)

    def _copy(self, source: Path, destination: str) -> None:
        mode = source.lstat().st_mode
        if stat.S_ISLNK(mode):
            self._files.symlink(str(source.readlink()), destination)
        elif stat.S_ISDIR(mode):
            self._files.mkdir(destination, exist_ok=True)
            for entry in sorted(source.iterdir()):
                self._copy(entry, f"{destination.rstrip('/')}/{entry.name}")
            self._files.chmod(destination, stat.S_IMODE(mode) & 0o777)
        elif stat.S_ISREG(mode):
            with source.open("rb", buffering=0) as reader:
                target = self._files.open(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                with open(target, "wb", buffering=0) as writer:
                    _copy_content(reader.fileno(), writer.fileno())
            self._files.chmod(destination, stat.S_IMODE(mode) & 0o777)
        else:
            raise OSError(f"{source} is neither a file, a directory nor a link")


class Download:
    """From the VM onto the host, every new name made relative to a directory descriptor of ours."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._left_out: list[str] = []

    def copy(self, source: str, destination: Path) -> list[str]:
        """Copy *source* to the new name *destination*; returns the VM paths left out."""
        self._left_out = []
        with _directory(os.fspath(destination.parent)) as parent:
            self._copy(source, destination.name, parent, depth=0)
        return self._left_out

    def _copy(self, source: str, name: str, parent: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise OSError(errno.ELOOP, f"directories nested more than {_DEEPEST} deep", source)
        found = self._files.stat(source, follow_symlinks=depth == 0)
        if stat.S_ISDIR(found.st_mode):
            os.mkdir(name, 0o700, dir_fd=parent)
            with _directory(name, parent) as here:
                for entry in sorted(self._files.listdir(source)):
                    self._copy(f"{source.rstrip('/')}/{entry}", entry, here, depth + 1)
                os.fchmod(here, stat.S_IMODE(found.st_mode) & 0o777)
        elif stat.S_ISREG(found.st_mode):
            self._copy_file(source, name, parent)
        elif stat.S_ISLNK(found.st_mode) and _stays_inside(target := self._files.readlink(source), depth):
            os.symlink(target, name, dir_fd=parent)
        else:
            self._left_out.append(source)

    def _copy_file(self, source: str, name: str, parent: int) -> None:
        with open(self._files.open(source, os.O_RDONLY), "rb", buffering=0) as reader:
            mode = stat.S_IMODE(os.fstat(reader.fileno()).st_mode) & 0o777
            with open(os.open(name, _NEW_FILE, 0o600, dir_fd=parent), "wb", buffering=0) as writer:
                _copy_content(reader.fileno(), writer.fileno())
                os.fchmod(writer.fileno(), mode)


def _stays_inside(target: str, depth: int) -> bool:
    """Whether a link *depth* levels below the top of a tree leads to somewhere in the tree, by its text alone.

    It may go up only at its start, from the directory that holds it: after a name, which may be another link, `..` can lead
    anywhere.
    """
    components = [component for component in target.split("/") if component not in ("", ".")]
    up = 0
    while up < len(components) and components[up] == "..":
        up += 1
    return not target.startswith("/") and up < depth and ".." not in components[up:]


def _copy_content(source: int, target: int) -> None:
    while chunk := os.read(source, _CHUNK):
        view = memoryview(chunk)
        while view:
            view = view[os.write(target, view) :]


@contextmanager
def _directory(path: str, parent: int | None = None) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if parent is not None else 0), dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)
