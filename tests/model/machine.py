"""The model: what each call answers and does to the tree, by POSIX and Linux for one user, and by the policy (SPEC 3.1).

A call is refused if any operation it implies is denied on what its names mean; only then does its errno tell what is there. The
answers have the form in which tests/syscalls/driver.py gives those of a real system.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import Any, Final

from callgate.scopes import OPERATIONS, Policy
from tests.model.lookup import Found, Last, Walk
from tests.model.nodes import Directory, File, Link, Node, filemode, tree
from tests.vm_fixtures import Entry

UMASK: Final = 0o022
NOREPLACE, EXCHANGE = 1, 2
TMPFILE: Final = os.O_TMPFILE & ~os.O_DIRECTORY


class Failed(Exception):
    """The call gives this errno."""

    def __init__(self, number: int) -> None:
        super().__init__(errno.errorcode[number])
        self.number = number


class Machine:
    """A tree, a working directory, and a policy."""

    def __init__(self, root: Directory, cwd: Directory, policy: Policy) -> None:
        self.root = root
        self.cwd = cwd
        self.policy = policy
        self.refusals: list[tuple[str, str]] = []  # operation and path of each
        self._fs = policy.compiled()["fs"]
        self._known: dict[tuple[str, str], bool] = {}

    def tree(self) -> dict[str, Entry]:
        """Every path there is."""
        return tree(self.root)

    def answer(self, call: str, *arguments: Any) -> object:
        """The answer to one call, which is done."""
        try:
            return getattr(self, call)(*arguments)
        except Failed as failure:
            return errno.errorcode[failure.number]

    # -- verdicts ----------------------------------------------------------------------------------------------------

    def allows(self, operation: str, path: str) -> bool:
        """The verdict on one operation."""
        key = operation, path
        if key not in self._known:
            self._known[key] = self.policy.decide("fs", operation, path).allowed
        return self._known[key]

    def _refuse(self, operation: str, path: str) -> Failed:
        self.refusals.append((operation, path))
        return Failed(errno.EACCES)

    def _find(self, path: str, operations: Iterable[str], *, follow: bool = True, keep_name: bool = False) -> Found:
        """Where *path* leads, for a call that is judged as *operations*.

        Of a call whose operations are allowed on every path the way is not judged: the guest may ask it about the name itself.
        """
        is_judged = any(self._fs.constant(operation) is not True for operation in operations)
        walk = Walk(self.root, self.cwd, lambda on_the_way: not is_judged or self.allows("stat", on_the_way))
        return walk.run(path, follow=follow, keep_name=keep_name)

    def _judge(self, found: Found, *operations: str) -> None:
        if found.refused is not None and self.allows(operations[0], found.judged):
            raise self._refuse("stat", found.refused)  # not for the name itself, but for one on the way to it
        for operation in operations:
            if found.judged and not self.allows(operation, found.judged):
                raise self._refuse(operation, found.judged)

    def _object(self, path: str, operation: str, *, follow: bool = True) -> Node:
        found = self._find(path, [operation], follow=follow)
        self._judge(found, operation)
        if found.error or found.node is None:
            raise Failed(found.error)
        return found.node

    # -- looking -----------------------------------------------------------------------------------------------------

    def stat(self, path: str) -> object:
        return _status(self._object(path, "stat"))

    def lstat(self, path: str) -> object:
        return _status(self._object(path, "stat", follow=False))

    def access(self, path: str) -> object:
        self._object(path, "stat")
        return 0

    def readlink(self, path: str) -> object:
        node = self._object(path, "readlink", follow=False)
        if not isinstance(node, Link):
            raise Failed(errno.EINVAL)
        return node.text

    def listdir(self, path: str) -> object:
        self.open(path, os.O_RDONLY | os.O_DIRECTORY, b"")
        directory = self._find(path, ["readdir"]).node
        assert isinstance(directory, Directory)
        if directory.is_removed:
            raise Failed(errno.ENOENT)
        return sorted([*directory.entries, ".", ".."])

    def chdir(self, path: str) -> object:
        node = self._object(path, "stat")
        if not isinstance(node, Directory):
            raise Failed(errno.ENOTDIR)
        self.cwd = node
        return 0

    # -- files -------------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, content: bytes) -> object:
        """Opens, says what was opened, and writes *content* if the descriptor can."""
        create, exclusive = bool(flags & os.O_CREAT), flags & os.O_CREAT and flags & os.O_EXCL
        own_name = bool(flags & os.O_NOFOLLOW or exclusive)
        found = self._find(path, _could_imply(flags), follow=not own_name, keep_name=create and own_name)
        creates = create and found.node is None and found.directory is not None
        self._judge(found, *_opening(found, flags, creates))
        if create and found.directory and found.has_slash:
            raise Failed(errno.EISDIR)
        if found.error and not creates:
            raise Failed(found.error)
        if creates and found.directory:
            if found.directory.is_removed:
                raise Failed(errno.ENOENT)
            found.node = File(b"", 0o666 & ~UMASK)
            found.directory.adopt(found.name, found.node)
        elif error := _cannot_open(found.node, flags):
            raise Failed(error)
        if flags & TMPFILE:
            return _opened(File(b"", 0o666 & ~UMASK), flags, content)
        assert found.node is not None
        return _opened(found.node, flags, content)

    def truncate(self, path: str, length: int) -> object:
        node = self._object(path, "truncate")
        if not isinstance(node, File):
            raise Failed(errno.EISDIR)
        node.content = node.content[:length].ljust(length, b"\0")
        return 0

    def chmod(self, path: str, mode: int) -> object:
        node = self._object(path, "chmod")
        assert not isinstance(node, Link)
        node.mode = mode
        return 0

    # -- names -------------------------------------------------------------------------------------------------------

    def _new_name(self, found: Found, *, directory: bool = False) -> Directory:
        """Where the free name is to be made; as filename_create() of the kernel."""
        if found.node is not None:
            raise Failed(errno.EEXIST)
        if found.directory is None or (found.has_slash and not directory) or found.directory.is_removed:
            raise Failed(found.error)
        return found.directory

    def mkdir(self, path: str, mode: int) -> object:
        found = self._find(path, ["create_dir"], follow=False, keep_name=True)
        self._judge(found, "create_dir")
        self._new_name(found, directory=True).adopt(found.name, Directory(mode=mode & ~UMASK))
        return 0

    def symlink(self, text: str, path: str) -> object:
        found = self._find(path, ["symlink"], follow=False, keep_name=True)
        self._judge(found, "symlink")
        self._new_name(found).adopt(found.name, Link(text))
        return 0

    def link(self, old: str, new: str) -> object:
        source = self._find(old, OPERATIONS["fs"], follow=False)
        target = self._find(new, OPERATIONS["fs"], follow=False, keep_name=True)
        self._judge(source, "write")
        self._judge(target, "write")
        if source.error:
            raise Failed(source.error)
        directory = self._new_name(target)
        if not isinstance(source.node, File | Link):
            raise Failed(errno.EPERM)
        if self.policy.widens(source.judged, target.judged, is_directory=False):
            raise self._refuse("write", source.judged)
        directory.adopt(target.name, source.node)
        source.node.links += 1
        return 0

    def unlink(self, path: str) -> object:
        found = self._find(path, ["rm"], follow=False, keep_name=True)
        self._judge(found, "rm")
        if found.error or found.last is not Last.NAME:
            raise Failed(found.error or errno.EISDIR)
        if isinstance(found.node, Directory):
            raise Failed(errno.EISDIR)
        if found.has_slash:
            raise Failed(errno.ENOTDIR)
        _remove(found)
        return 0

    def rmdir(self, path: str) -> object:
        found = self._find(path, ["rm"], follow=False, keep_name=True)
        self._judge(found, "rm")
        if found.error:
            raise Failed(found.error)
        if found.last is not Last.NAME:
            raise Failed({Last.DOT: errno.EINVAL, Last.DOT_DOT: errno.ENOTEMPTY, Last.ROOT: errno.EBUSY}[found.last])
        if not isinstance(found.node, Directory):
            raise Failed(errno.ENOTDIR)
        if found.node.entries:
            raise Failed(errno.ENOTEMPTY)
        _remove(found)
        return 0

    def rename(self, old: str, new: str, flags: int) -> object:
        """As do_renameat2() of the kernel, once all names are known to be allowed."""
        source = self._find(old, OPERATIONS["fs"], follow=False, keep_name=True)
        target = self._find(new, OPERATIONS["fs"], follow=False, keep_name=True)
        self._judge(source, "rename")
        self._judge(target, "rename", *(["rm"] if target.node and not flags & (NOREPLACE | EXCHANGE) else []))
        for found in (source, target):
            if found.error and found.directory is None:
                raise Failed(found.error)
        if source.last is not Last.NAME:
            raise Failed(errno.EBUSY)
        if target.last is not Last.NAME:
            raise Failed(errno.EEXIST if flags & NOREPLACE else errno.EBUSY)
        if source.node is None or (target.node is None and flags & EXCHANGE):
            raise Failed(errno.ENOENT)
        self._judge_widening(source, target)
        if flags & EXCHANGE:
            self._judge_widening(target, source)
        if error := _cannot_rename(source, target, flags):
            raise Failed(error)
        assert source.directory is not None
        assert target.directory is not None
        if source.node is target.node:
            return 0
        if flags & EXCHANGE and target.node is not None:
            source.directory.adopt(source.name, target.node)
        else:
            if target.node is not None:
                _remove(target)
            del source.directory.entries[source.name]
        target.directory.adopt(target.name, source.node)
        return 0

    def _judge_widening(self, source: Found, target: Found) -> None:
        if self.policy.widens(source.judged, target.judged, is_directory=isinstance(source.node, Directory)):
            raise self._refuse("rename", source.judged)


def _status(node: Node) -> object:
    kind = filemode(node)
    match node:
        case File(content, _, links):
            return {"kind": kind, "links": links, "size": len(content)}
        case Link(text, links):
            return {"kind": kind, "links": links, "size": len(text)}
        case Directory():
            return {"kind": kind}


def _opening(found: Found, flags: int, creates: bool) -> list[str]:
    """The operations that an open implies (SPEC 3.1)."""
    access = flags & os.O_ACCMODE
    if flags & TMPFILE:
        return ["read", "write"] if access == os.O_RDWR else ["write"]
    lists = access == os.O_RDONLY and (isinstance(found.node, Directory) or flags & os.O_DIRECTORY)
    operations = [] if access == os.O_WRONLY else ["readdir" if lists else "read"]
    if access != os.O_RDONLY or creates or flags & os.O_TRUNC:
        operations.append("write")
    return [*operations, "truncate"] if flags & os.O_TRUNC else operations


def _could_imply(flags: int) -> set[str]:
    """The operations that an open with these flags implies on one file or another."""
    nothing, some_file, directory = Found(""), Found("", File(b"")), Found("", Directory())
    cases = [(some_file, False), (directory, False), (nothing, False), (nothing, bool(flags & os.O_CREAT))]
    return {operation for found, creates in cases for operation in _opening(found, flags, creates)}


def _cannot_open(node: Node | None, flags: int) -> int:
    """The errno of opening what is there, as do_open() of the kernel; 0 if it can be opened."""
    is_directory = isinstance(node, Directory)
    if flags & os.O_CREAT and flags & os.O_EXCL:
        return errno.EEXIST
    if flags & os.O_CREAT and is_directory:
        return errno.EISDIR
    if flags & os.O_DIRECTORY and not is_directory:
        return errno.ENOTDIR
    if isinstance(node, Link):
        return errno.ELOOP
    if is_directory and not flags & TMPFILE and (flags & os.O_ACCMODE or flags & os.O_TRUNC):
        return errno.EISDIR
    return 0


def _opened(node: Node, flags: int, content: bytes) -> object:
    access = flags & os.O_ACCMODE
    if not isinstance(node, File):
        return {"opened": filemode(node), "read": None, "written": "EBADF"}
    if flags & os.O_TRUNC:
        node.content = b""
    read = None if access == os.O_WRONLY else node.content.decode("latin-1")
    if access == os.O_RDONLY:
        return {"opened": filemode(node), "read": read, "written": "EBADF"}
    at = len(node.content) if flags & os.O_APPEND else 0
    node.content = node.content[:at] + content + node.content[at + len(content) :]
    return {"opened": filemode(node), "read": read, "written": len(content)}


def _cannot_rename(source: Found, target: Found, flags: int) -> int:
    """The errno that the kernel has for two names that are there and may be renamed; 0 if they are renamed."""
    old, new = source.node, target.node
    exchange = flags & EXCHANGE
    assert source.directory is not None
    assert target.directory is not None
    if new is not None and flags & NOREPLACE:
        return errno.EEXIST
    if exchange and not isinstance(new, Directory) and target.has_slash:
        return errno.ENOTDIR
    if not isinstance(old, Directory) and (source.has_slash or (target.has_slash and not exchange)):
        return errno.ENOTDIR
    if target.directory.is_within(old) and isinstance(old, Directory):
        return errno.EINVAL
    if source.directory.is_within(new) and isinstance(new, Directory):
        return errno.EINVAL if exchange else errno.ENOTEMPTY
    if old is new:
        return 0
    if target.directory.is_removed:
        return errno.ENOENT
    if new is None or exchange:
        return 0
    if isinstance(old, Directory) != isinstance(new, Directory):
        return errno.ENOTDIR if isinstance(old, Directory) else errno.EISDIR
    return errno.ENOTEMPTY if isinstance(new, Directory) and new.entries else 0


def _remove(found: Found) -> None:
    assert found.directory is not None
    del found.directory.entries[found.name]
    if isinstance(found.node, Directory):
        found.node.is_removed = True
    elif found.node is not None:
        found.node.links -= 1
