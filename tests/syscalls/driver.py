"""Makes the system calls of a list of cases, each in a fresh tree of its own, and says what they gave and what the tree became.

Run with the same list on the bare host and in a VM; the answers must be equal. It therefore uses nothing but the standard
library of any Python 3 and knows nothing of callgate. In, as JSON: {"top", "fresh", "cases": [[step, ...], ...]}; out: a list of
{"steps": [...], "tree": {...}}. Without "fresh" the steps run in the working directory, on whatever is there.

A step is [call, argument, ...]. An argument is a number, null, or text (a path; "{top}" in it is the case's own directory), or
  {"fd": N}      the descriptor that step N of the case gave          {"raw": HEX}   bytes
  {"out": SIZE}  a buffer whose content is part of the answer         {"bad": 1}     an address where nothing is mapped
  {"path": N}    /proc/self/fd/ and the number of that descriptor    {"words": [ARGUMENT, ...]}   64-bit words in memory

Beside system calls a step may be "times" or "attributes" of a path: what utimes and setxattr change, and stat does not show.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import stat
import struct
import sys
from contextlib import suppress
from typing import Any

NUMBERS = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "ioctl": 16, "access": 21, "sendfile": 40,
    "truncate": 76, "ftruncate": 77, "getdents": 78, "chdir": 80, "fchdir": 81, "rename": 82, "mkdir": 83, "rmdir": 84,
    "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "readlink": 89, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93,
    "lchown": 94, "umask": 95, "utime": 132, "mknod": 133, "statfs": 137, "fstatfs": 138, "pivot_root": 155, "chroot": 161,
    "mount": 165, "umount2": 166, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "getxattr": 191, "lgetxattr": 192,
    "fgetxattr": 193, "listxattr": 194, "llistxattr": 195, "flistxattr": 196, "removexattr": 197, "lremovexattr": 198,
    "fremovexattr": 199, "getdents64": 217, "utimes": 235, "inotify_add_watch": 254, "openat": 257, "mkdirat": 258,
    "mknodat": 259, "fchownat": 260, "futimesat": 261, "newfstatat": 262, "unlinkat": 263, "renameat": 264, "linkat": 265,
    "symlinkat": 266, "readlinkat": 267, "fchmodat": 268, "faccessat": 269, "utimensat": 280, "fallocate": 285,
    "inotify_init1": 294, "prlimit64": 302, "name_to_handle_at": 303, "renameat2": 316, "copy_file_range": 326, "statx": 332,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "openat2": 437,
    "faccessat2": 439, "mount_setattr": 442, "fchmodat2": 452, "setxattrat": 463, "getxattrat": 464, "listxattrat": 465,
    "removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469,
}  # fmt: skip
OPENING = ("open", "creat", "openat", "openat2")
LONG_AGO = 10**9 + 10**6  # seconds; what utimes set is below, what happens now above
CHAIN = 42  # symbolic links each leading to the one before: c39 is resolved with 40 of them, c40 with 41
UNSEEN_FLAGS = 0o100000 | os.O_NOFOLLOW  # O_LARGEFILE, which libraries add, and a flag without effect once the file is open
UNMAPPED = 4096
WORD = 2**64 - 1

DIRECTORIES = {"dir": 0o755, "dir/sub": 0o755, "empty-dir": 0o755, "closed": 0o755, "sticky": 0o1777}
FILES = {"file": 0o644, "dir/inner": 0o644, "read-only": 0o444, "write-only": 0o222, "program": 0o755, "closed/hidden": 0o644}
LINKS = {
    "link": "file", "link-to-link": "link", "dir-link": "dir", "dangling": "absent", "dangling-deep": "absent/deeper",
    "loop": "loop", "up": "..", "link-slash": "dir/", "file-slash": "file/", "into": "dir/inner", "to-closed": "closed/hidden",
    "self": ".",
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def make_tree(top: str, *, chain: bool) -> None:
    """What every case starts from, in its own directory."""
    os.umask(0)
    os.mkdir(top, 0o755)
    for name, mode in DIRECTORIES.items():
        os.mkdir(f"{top}/{name}", mode)
    for name, mode in FILES.items():
        fd = os.open(f"{top}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        os.write(fd, f"content of {name}\n".encode())
        os.close(fd)
    os.close(os.open(f"{top}/empty", os.O_WRONLY | os.O_CREAT, 0o644))
    for name, text in LINKS.items():
        os.symlink(text, f"{top}/{name}")
    os.symlink(f"{top}/file", f"{top}/absolute")
    for number in range(CHAIN if chain else 0):
        os.symlink(f"c{number - 1}" if number else "file", f"{top}/c{number}")
    os.link(f"{top}/file", f"{top}/hard")
    os.mkfifo(f"{top}/fifo", 0o644)
    os.chmod(f"{top}/closed", 0)


def snapshot(top: str) -> dict[str, list[object]]:
    """Everything below, as far as it can be seen."""
    found: dict[str, list[object]] = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            mine = [status.st_uid == os.geteuid(), status.st_gid == os.getegid()]
            entry: list[object] = [stat.filemode(status.st_mode), status.st_nlink, *mine]
            if stat.S_ISLNK(status.st_mode):
                entry.append(os.readlink(path).replace(top, "{top}"))
            elif stat.S_ISREG(status.st_mode):
                entry.append(status.st_size)
                if status.st_mode & stat.S_IRUSR:
                    with open(path, "rb") as file:
                        entry.append(file.read(100).decode("latin-1"))
            found[os.path.relpath(path, top)] = entry
    return found


def look_at(fd: int) -> dict[str, object]:
    """What a new descriptor is."""
    status = os.fstat(fd)
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    seen: dict[str, object] = {"fd": stat.filemode(status.st_mode), "flags": flags & ~UNSEEN_FLAGS}
    seen["cloexec"] = not os.get_inheritable(fd)
    if stat.S_ISREG(status.st_mode) and flags & os.O_ACCMODE != os.O_WRONLY and not flags & os.O_PATH:
        with suppress(OSError):  # O_DIRECT wants an aligned buffer
            seen["content"] = os.pread(fd, 100, 0).decode("latin-1")
    return seen


def names_in(entries: bytes, name_at: int) -> list[str]:
    """The names in a buffer of getdents; the kernel's order means nothing."""
    names, at = [], 0
    while at < len(entries):
        (length,) = struct.unpack_from("<H", entries, at + 16)
        start = at + name_at
        names.append(entries[start : entries.index(b"\0", start)].decode("latin-1"))
        at += length
    return sorted(names)


class Case:
    """One list of steps in its directory."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.results: list[int] = []
        self.opened: list[int] = []
        self.names: dict[int, str] = {}  # by inode: so that an answer says which file it is about
        self.kept: list[ctypes.Array[ctypes.c_char]] = []

    def run(self, steps: list[list[Any]]) -> list[object]:
        for folder, folders, files in os.walk(self.top):
            for name in folders + files:
                path = os.path.join(folder, name)
                self.names.setdefault(os.lstat(path).st_ino, os.path.relpath(path, self.top))
        os.chdir(self.top)
        return self.steps(steps)

    def steps(self, steps: list[list[Any]]) -> list[object]:
        os.umask(0o022)
        answers = [self.step(*step) for step in steps]
        for fd in self.opened:
            with suppress(OSError):
                os.close(fd)
        return answers

    def step(self, name: str, *arguments: Any) -> object:
        if name in ("times", "attributes"):
            self.results.append(0)
            return getattr(self, name)(arguments[0].replace("{top}", self.top))
        words = [self.word(argument) for argument in arguments]
        ctypes.set_errno(0)
        result: int = libc.syscall(ctypes.c_long(NUMBERS[name]), *(ctypes.c_long(word) for word, _ in words))
        if result < 0:
            self.results.append(-ctypes.get_errno())
            return errno.errorcode[ctypes.get_errno()]
        self.results.append(result)
        if name in OPENING:
            self.opened.append(result)
            return look_at(result)
        shown = next((buffer.raw for _, buffer in words if buffer is not None), None)
        return result if shown is None else self.decoded(name, result, shown)

    def word(self, argument: Any) -> tuple[int, ctypes.Array[ctypes.c_char] | None]:
        """An argument as a 64-bit word, and its buffer if that is to be shown."""
        if argument is None:
            return 0, None
        if isinstance(argument, int):
            return argument, None
        if isinstance(argument, str):
            content = argument.replace("{top}", self.top).encode("utf-8", "surrogateescape") + b"\0"
        elif "fd" in argument:
            return self.results[argument["fd"]], None
        elif "path" in argument:
            content = b"/proc/self/fd/%d\0" % self.results[argument["path"]]
        elif "raw" in argument:
            content = bytes.fromhex(argument["raw"])
        elif "words" in argument:
            content = struct.pack(f"<{len(argument['words'])}Q", *(self.word(one)[0] & WORD for one in argument["words"]))
        elif "out" in argument:
            content = bytes(argument["out"])
        else:
            return UNMAPPED, None
        buffer = ctypes.create_string_buffer(content, len(content) or 1)
        self.kept.append(buffer)
        return ctypes.addressof(buffer), buffer if isinstance(argument, dict) and "out" in argument else None

    def times(self, path: str) -> list[object]:
        """Access and change of content, in nanoseconds, or "now"."""
        status = os.lstat(path)
        return [time if time < LONG_AGO * 10**9 else "now" for time in (status.st_atime_ns, status.st_mtime_ns)]

    def attributes(self, path: str) -> dict[str, str]:
        names = os.listxattr(path, follow_symlinks=False)
        return {name: os.getxattr(path, name, follow_symlinks=False).hex() for name in names if name.startswith("user.")}

    def decoded(self, name: str, result: int, shown: bytes) -> object:
        if name in ("stat", "fstat", "lstat", "newfstatat"):
            _, inode, links, mode, uid, gid, _, _, size = struct.unpack_from("<QQQIIIiQq", shown)
            return self.status(mode, links, uid, gid, size, inode)
        if name == "statx":
            mask, _, _, links, uid, gid, mode = struct.unpack_from("<IIQIIIH", shown)
            inode, size = struct.unpack_from("<QQ", shown, 32)
            return {"mask": mask & 0x7FF, **self.status(mode, links, uid, gid, size, inode)}
        if name.startswith("getdents"):
            return names_in(shown[:result], 19 if name == "getdents64" else 18)
        if name in ("statfs", "fstatfs"):
            return "filled" if any(shown) else "empty"
        if name.endswith("listxattr") or name == "listxattrat":
            names = shown[:result].split(b"\0")
            return sorted(one.decode() for one in names if one.startswith(b"user."))
        if name == "file_getattr":
            return shown.hex()
        return [shown[:result].replace(self.top.encode(), b"{top}").decode("latin-1"), any(shown[result:])]

    def status(self, mode: int, links: int, uid: int, gid: int, size: int, inode: int) -> dict[str, object]:
        mine = [uid == os.geteuid(), gid == os.getegid()]
        is_directory = stat.S_ISDIR(mode)
        file = self.names.get(inode)
        return {"kind": stat.filemode(mode), "links": links, "mine": mine, "size": None if is_directory else size, "file": file}


def main() -> None:
    order = json.load(sys.stdin)
    answers: list[dict[str, object]] = []
    for number, steps in enumerate(order["cases"]):
        if not order["fresh"]:
            answers.append({"steps": Case(order["top"]).steps(steps)})
            continue
        top = f"{order['top']}/{number}"
        words = json.dumps(steps)
        make_tree(top, chain='"c39"' in words or '"c40"' in words)
        results = Case(top).run(steps)
        os.chdir("/")
        own_mode = stat.filemode(os.stat(top).st_mode)
        for closed in (top, f"{top}/closed"):
            with suppress(FileNotFoundError):
                os.chmod(closed, 0o700)  # so that the snapshot sees into it
        answers.append({"steps": results, "mode": own_mode, "tree": snapshot(top)})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
