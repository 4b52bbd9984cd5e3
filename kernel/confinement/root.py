"""The private root of a VM as a list of set-up steps: nothing here touches the host beyond looking at how it is laid out.

Every step costs start-up time (a mount about 30 us, a file or directory a few), so the root holds what programs need to run and
no more. Everything that is not a bind belongs to the guest user and lives in the root's tmpfs, which ends with the VM.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from callgate.kernel.egress.listeners import RESOLVER_ADDRESS
from callgate.kernel.launch_blob import BindFlag, SetupStep, StepKind

#: Top-level names that are links into /usr on a merged host and directories of their own on others.
TOP_LEVEL_SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")

#: Character devices that are always there, bound from the host because a user namespace cannot make device nodes.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_DIRECTORIES = ("/etc", "/dev", "/home", "/root", "/run", "/opt", "/srv", "/mnt", "/media", "/var")
_SHARED_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")

#: Where distributions keep certificate bundles, and the targets of the links in them.
_CERTIFICATES = ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted")

_READ_ONLY_TREES = ("/etc/alternatives", *_CERTIFICATES)
_COPIED_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/os-release", "/etc/ssl/openssl.cnf")
_COPY_LIMIT = 4 << 20


class User(NamedTuple):
    """The account that every guest program runs as, as seen inside the VM."""

    name: str
    uid: int
    gid: int
    home: str


class Root(NamedTuple):
    """The root before anything of the operator's is added."""

    steps: tuple[SetupStep, ...]
    links: dict[str, str]  # top-level links, such as /bin -> /usr/bin
    read_only: tuple[str, ...]  # host trees bound read-only


def directory(path: str, mode: int = 0o755) -> SetupStep:
    """A directory of the guest user's."""
    return SetupStep(StepKind.DIRECTORY, os.fsencode(path), mode=mode)


def regular_file(path: str, content: bytes, mode: int = 0o644) -> SetupStep:
    """A file of the guest user's."""
    return SetupStep(StepKind.FILE, os.fsencode(path), content, mode)


def symlink(path: str, target: str) -> SetupStep:
    """A symbolic link; its text is *target*."""
    return SetupStep(StepKind.SYMLINK, os.fsencode(path), os.fsencode(target))


def bind(path: str, source: str, flags: BindFlag) -> SetupStep:
    """A host file or directory, mounts below it included."""
    return SetupStep(StepKind.BIND, os.fsencode(path), os.fsencode(source), flags=flags)


def parents(path: str) -> Iterator[str]:
    """The directories above an absolute path, outermost first and without the root: `/a/b/c` gives `/a` and `/a/b`."""
    position = path.find("/", 1)
    while position > 0:
        yield path[:position]
        position = path.find("/", position + 1)


def interpreter_prefix() -> str | None:
    """Where the running interpreter's installation lies when that is not below /usr, so that a guest can run the same Python."""
    return _prefix_outside_usr(sys.base_prefix)


@lru_cache(maxsize=4)
def _prefix_outside_usr(prefix: str) -> str | None:
    prefix = os.path.realpath(prefix)
    if prefix == "/" or prefix == "/usr" or prefix.startswith("/usr/"):
        return None
    return prefix


def base_root(user: User, hostname: str) -> Root:
    """The root that every VM of this *user* on this host starts from; worked out once per process and host layout."""
    return _base_root(user, hostname, interpreter_prefix(), tuple(map(_signature, _COPIED_FILES)))


@lru_cache(maxsize=8)
def _base_root(user: User, hostname: str, prefix: str | None, copied: tuple[_Signature | None, ...]) -> Root:
    steps = [directory(path) for path in _DIRECTORIES]
    steps += [directory(path, 0o1777) for path in _SHARED_DIRECTORIES]
    if user.home not in _DIRECTORIES:
        steps.append(directory(user.home))
    steps += _devices()
    steps.append(bind("/usr", "/usr", BindFlag.READ_ONLY))
    links: dict[str, str] = {}
    read_only = ["/usr"]
    for name in TOP_LEVEL_SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):  # noqa: PTH114 - a Path per look-up would cost more than the look-up
            target = os.readlink(path)  # noqa: PTH115
            steps.append(symlink(path, target))
            links[path] = os.path.normpath(os.path.join("/", target))  # noqa: PTH118
        elif os.path.isdir(path):  # noqa: PTH112
            steps.append(bind(path, path, BindFlag.READ_ONLY))
            read_only.append(path)
    made: set[str] = set(_DIRECTORIES)
    for tree in _READ_ONLY_TREES:
        if os.path.isdir(tree):  # noqa: PTH112
            steps += _missing_parents(tree, made)
            steps.append(bind(tree, tree, BindFlag.READ_ONLY | BindFlag.OPTIONAL))
            read_only.append(tree)
    if prefix is not None:
        # Opened with the operator's rights: the installation may lie below a directory that only root can search.
        steps += _missing_parents(prefix, made)
        steps.append(bind(prefix, prefix, BindFlag.READ_ONLY | BindFlag.OPERATOR))
        read_only.append(prefix)
    for path, signature in zip(_COPIED_FILES, copied, strict=True):
        if signature is not None:
            steps += _missing_parents(path, made)
            steps.append(_copy(path))
    steps += _accounts(user, hostname)
    return Root(tuple(steps), links, tuple(read_only))


def _devices() -> Iterator[SetupStep]:
    flags = BindFlag.READ_ONLY | BindFlag.DEVICE
    for name in DEVICES:
        yield bind(f"/dev/{name}", f"/dev/{name}", flags)
    yield SetupStep(StepKind.DEVPTS, b"/dev/pts")
    yield SetupStep(StepKind.PROC, b"/proc")
    yield symlink("/dev/ptmx", "pts/ptmx")
    yield symlink("/dev/fd", "/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield symlink(f"/dev/{name}", f"/proc/self/fd/{number}")


def _accounts(user: User, hostname: str) -> Iterator[SetupStep]:
    """What the C library's name services read: there are no accounts but these, and names go to the VM's own resolver."""
    passwd = ["root:x:0:0:root:/root:/bin/sh", "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin"]
    group = ["root:x:0:", "tty:x:5:", "nogroup:x:65534:"]
    if user.uid != 0:
        passwd.insert(1, f"{user.name}:x:{user.uid}:{user.gid}:{user.name}:{user.home}:/bin/sh")
        group.insert(1, f"{user.name}:x:{user.gid}:")
    texts = {
        "passwd": passwd,
        "group": group,
        "hosts": [f"127.0.0.1 localhost {hostname}", "::1 localhost ip6-localhost ip6-loopback"],
        "hostname": [hostname],
        # An answer comes within two seconds or, where a guest floods the resolver and its packets are lost, never.
        "resolv.conf": [f"nameserver {RESOLVER_ADDRESS}", "options timeout:3 attempts:2"],
        "nsswitch.conf": [
            *(f"{base}: files" for base in ("passwd", "group", "shadow", "services", "protocols", "ethers", "rpc")),
            "hosts: files dns",
        ],
    }
    for name, lines in texts.items():
        yield regular_file(f"/etc/{name}", "".join(f"{line}\n" for line in lines).encode())
    yield symlink("/etc/mtab", "/proc/self/mounts")


class _Signature(NamedTuple):
    device: int
    inode: int
    size: int
    changed_ns: int


def _signature(path: str) -> _Signature | None:
    """What tells one content of a host file from another; None if there is no such regular file, or it is too big to copy."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > _COPY_LIMIT:
        return None
    return _Signature(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _copy(path: str) -> SetupStep:
    """The host's file: a link where it leads into /usr, which the VM has too, and the content otherwise."""
    resolved = os.path.realpath(path)
    if resolved.startswith("/usr/"):
        return symlink(path, resolved)
    return regular_file(path, Path(path).read_bytes())


def _missing_parents(path: str, made: set[str]) -> Iterator[SetupStep]:
    for parent in parents(path):
        if parent not in made:
            made.add(parent)
            yield directory(parent)
