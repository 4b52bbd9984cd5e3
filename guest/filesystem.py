"""The guest's filesystem seen from the host (`vm.fs`): the supervisor judges and does every operation, like the guest's own.

Files are opened by the supervisor, which passes the descriptor of the very object it judged; nothing is looked up by name on
the host, so a guest that swaps names meanwhile gains nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from callgate.guest.arguments import kind
from callgate.guest.interface import Recorder
from callgate.guest.transfer import Download, Upload
from callgate.kernel.audit import Denial
from callgate.kernel.launch import FsReply, Refused, Supervisor
from callgate.kernel.protocol import FsCall
from callgate.kernel.wire import U64, ProtocolError, Reader
from callgate.scopes.errors import InternalError

#: A path in the VM; a relative one is meant from the VM's default working directory.
VmPath: TypeAlias = str | os.PathLike[str]

#: Most that one `read_bytes` takes into memory, because a guest can make a sparse file of any size.
READ_LIMIT = 1 << 30

# O_NONBLOCK: opening a fifo that the guest put there must not wait for the guest to open the other end.
_SAFE = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP))


class GuestFiles:
    """Files of the VM. What is refused raises `PermissionDenied` and is recorded; the rest fails as it would for the guest."""

    def __init__(self, supervisor: Supervisor, workdir: str, record: Recorder, *, is_unchecked: bool = False) -> None:
        self._supervisor = supervisor
        self._workdir = workdir
        self._record = record
        self._is_unchecked = is_unchecked

    @property
    def unchecked(self) -> GuestFiles:
        """The operator's view: the same filesystem without the policy. What file modes forbid stays forbidden."""
        return GuestFiles(self._supervisor, self._workdir, self._record, is_unchecked=True)

    def read_bytes(self, path: VmPath, *, limit: int = READ_LIMIT) -> bytes:
        """The content of a regular file; `OSError` (EFBIG) if it is longer than *limit* bytes."""
        with open(self.open(path, os.O_RDONLY), "rb", buffering=0) as file:
            content = bytearray()
            while chunk := file.read(min(1 << 20, limit + 1 - len(content))):
                content += chunk
                if len(content) > limit:
                    raise OSError(errno.EFBIG, f"more than {limit} bytes", os.fspath(path))
            return bytes(content)

    def read_text(self, path: VmPath, encoding: str = "utf-8", errors: str = "strict", *, limit: int = READ_LIMIT) -> str:
        """The content of a regular file as text."""
        return self.read_bytes(path, limit=limit).decode(encoding, errors)

    def write_bytes(self, path: VmPath, content: bytes) -> int:
        """Replace the content of a regular file, or make it; returns the number of bytes."""
        if not isinstance(content, bytes | bytearray | memoryview):
            raise TypeError(f"content is {kind(content)}, not bytes; write_text takes str")
        view = memoryview(content).cast("B")
        with open(self.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb", buffering=0) as file:
            while view:
                view = view[file.write(view) :]
        return len(content)

    def write_text(self, path: VmPath, content: str, encoding: str = "utf-8", errors: str = "strict") -> int:
        """Replace the content of a regular file, or make it; returns the number of characters."""
        if not isinstance(content, str):
            raise TypeError(f"content is {kind(content)}, not str; write_bytes takes bytes")
        self.write_bytes(path, content.encode(encoding, errors))
        return len(content)

    def open(self, path: VmPath, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a regular file, opened with *flags* as open(2) has them; the caller closes it."""
        fd = self._descriptor(self._call(FsCall.OPEN, path, a=flags | _SAFE, b=mode))
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return fd

    def listdir(self, path: VmPath = ".") -> list[str]:
        """The names in a directory, in no particular order."""
        fd = self._open_directory(path)
        try:
            return os.listdir(fd)  # noqa: PTH208 - of a descriptor
        finally:
            os.close(fd)

    def walk(
        self, top: VmPath = ".", *, onerror: Callable[[OSError], None] | None = None
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """Directories below *top* as `os.walk` yields them, top down; links are listed with the files and never followed.

        Directories that cannot be listed are left out; *onerror* is told why.
        """
        waiting = [os.fspath(top)]
        while waiting:
            here = waiting.pop()
            try:
                directories, files = self._scan(here)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            yield here, directories, files
            waiting += [f"{here.rstrip('/')}/{name}" for name in reversed(directories)]

    def stat(self, path: VmPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """What stat(2), or lstat(2), says of *path*."""
        reader = Reader(self._call(FsCall.STAT, path, a=int(follow_symlinks)).data)
        try:
            fields = [U64.read(reader) for _ in range(10)]
            reader.finish()
        except ProtocolError as error:
            raise InternalError(f"the supervisor's answer to stat cannot be read: {error}") from error
        times = fields[7:]
        exact: dict[str, object] = {}
        for name, nanoseconds in zip(("st_atime", "st_mtime", "st_ctime"), times, strict=True):
            whole, rest = divmod(nanoseconds, 10**9)
            exact[name], exact[f"{name}_ns"] = whole + 1e-9 * rest, nanoseconds  # rounded as os.stat rounds
        return os.stat_result([*fields[:7], *(nanoseconds // 10**9 for nanoseconds in times)], exact)

    def exists(self, path: VmPath) -> bool:
        """Whether there is something at *path*; False where the policy refuses to tell."""
        try:
            self.stat(path)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise
        return True

    def mkdir(self, path: VmPath, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory, with *parents* those above it too."""
        try:
            self._call(FsCall.MKDIR, path, b=mode)
        except FileNotFoundError:
            above = os.path.dirname(os.fspath(path).rstrip("/"))  # noqa: PTH120 - PurePath would lose a trailing dot
            if not parents or not above:
                raise
            self.mkdir(above, parents=True, exist_ok=True)
            self.mkdir(path, mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not stat.S_ISDIR(self.stat(path).st_mode):
                raise

    def remove(self, path: VmPath, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory; with *recursive* a directory and everything below it."""
        if not stat.S_ISDIR(self.stat(path, follow_symlinks=False).st_mode):
            self._call(FsCall.UNLINK, path)
            return
        emptied: list[str] = [os.fspath(path)]
        if recursive:
            emptied = []
            for here, _, files in self.walk(path, onerror=_raise):
                emptied.append(here)
                for name in files:
                    self._call(FsCall.UNLINK, f"{here.rstrip('/')}/{name}")
        for directory in reversed(emptied):
            self._call(FsCall.UNLINK, directory, a=1)

    def rename(self, source: VmPath, destination: VmPath) -> None:
        """Rename, replacing what *destination* names as rename(2) does."""
        self._call(FsCall.RENAME, source, second=self._absolute(destination))

    def symlink(self, target: VmPath, path: VmPath) -> None:
        """Make *path* a symbolic link whose text is *target* (the order of `os.symlink`)."""
        self._call(FsCall.SYMLINK, path, second=_encoded(target))

    def readlink(self, path: VmPath) -> str:
        """The text of a symbolic link."""
        return os.fsdecode(self._call(FsCall.READLINK, path).data)

    def chmod(self, path: VmPath, mode: int) -> None:
        """Set the permission bits of a file or directory."""
        self._call(FsCall.CHMOD, path, b=mode)

    def upload(self, source: str | os.PathLike[str], destination: VmPath) -> None:
        """Copy a file or directory of the host to *destination* in the VM with its permission bits; links are copied as links."""
        Upload(self).copy(Path(source), os.fspath(destination))

    def download(self, source: VmPath, destination: str | os.PathLike[str]) -> list[str]:
        """Copy a file or directory of the VM to *destination* on the host, which must not exist.

        Returns the VM paths that were left out because a host has no use for them: links that lead out of the copied tree,
        fifos, sockets and devices.
        """
        return Download(self).copy(os.fspath(source), Path(destination))

    # -- below the public names --------------------------------------------------------------------------------------

    def _scan(self, path: VmPath) -> tuple[list[str], list[str]]:
        """Names of the directories, and of everything else, in a directory."""
        fd = self._open_directory(path)
        try:
            with os.scandir(fd) as entries:
                # Never following links: their text means something in the VM, and the host would look it up in its own root.
                kinds = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(fd)
        return [name for name, is_dir in kinds if is_dir], [name for name, is_dir in kinds if not is_dir]

    def _open_directory(self, path: VmPath) -> int:
        return self._descriptor(self._call(FsCall.OPEN, path, a=os.O_RDONLY | os.O_DIRECTORY | _SAFE))

    def _descriptor(self, reply: FsReply) -> int:
        if reply.fd is None:
            raise InternalError("the supervisor opened a file and passed no descriptor")
        return reply.fd

    def _call(self, operation: FsCall, path: VmPath, second: bytes = b"", *, a: int = 0, b: int = 0) -> FsReply:
        try:
            return self._supervisor.fs(operation, self._absolute(path), second, a=a, b=b, unchecked=self._is_unchecked)
        except Refused as refusal:
            denial = Denial.from_record(refusal.record)
        self._record(denial)
        raise denial.error()

    def _absolute(self, path: VmPath) -> bytes:
        """*path* from the root. Not normalised: what `..` means behind a link is for the supervisor to find out."""
        encoded = _encoded(path)
        return encoded if encoded.startswith(b"/") else os.fsencode(self._workdir).rstrip(b"/") + b"/" + encoded


def _raise(error: OSError) -> None:
    raise error


def _encoded(path: VmPath) -> bytes:
    encoded = os.fsencode(path)
    if not encoded:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "")
    if b"\0" in encoded:
        raise ValueError(f"path {os.fspath(path)!r} holds a NUL character")
    return encoded
