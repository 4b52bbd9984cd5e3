"""Whatever lies at a denied name, or nothing at all: every call, by every way to that name, gives one answer (SPEC 3.1).

A link in a denied place that leads out of it is left out where it is followed: then another name is judged, which is not denied.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from callgate import HostDir
from callgate.scopes import OPERATIONS
from tests.escapes.addresses import unix
from tests.vm_fixtures import AT_FDCWD, ORDINARY_USER, Out, Probe, Raw, Words, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R, W, RW, CREAT, EXCL, TRUNC = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_EXCL, os.O_TRUNC
DIRECTORY, NOFOLLOW, NONBLOCK, PATH, TMPFILE = os.O_DIRECTORY, os.O_NOFOLLOW, os.O_NONBLOCK, os.O_PATH, os.O_TMPFILE
AT, AT_NOFOLLOW, REMOVEDIR, KEEP = AT_FDCWD, 0x100, 0x200, 0xFFFF_FFFF
NO_MAGIC = 2  # RESOLVE_NO_MAGICLINKS
THEN, VALUE, ATTRIBUTES = Raw(struct.pack("<qqqq", 1, 0, 1, 0)), Words((Raw(b"v"), 1)), Raw(bytes(24))

KINDS: Final = ("absent", "file", "dir", "empty", "fifo", "socket", "closed", "shut")
LINKS: Final = ("absent", "file", "to-plain", "dangling", "loop")
WAYS: Final = (
    *("vault/{}", "vault/{}/", "vault/{}/.", "vault/{}/..", "vault/{}/x", "vault/{}/x/y", "vault/{}/../../plain"),
    *("vault/../vault/{}", "open/../vault/{}", "via/{}", "via/{}/", "via/../vault/{}", "here/vault/{}"),
)


def how(flags: int, mode: int = 0, resolve: int = 0) -> Raw:
    return Raw(struct.pack("<QQQ", flags, mode, resolve))


def following(path: str) -> dict[str, list[str]]:
    """Calls that follow a link, by the operation that alone decides, whatever is there."""
    stat, buffer = Out(144), Out(256)
    return {
        "stat": [
            call("stat", path, stat),
            call("newfstatat", AT, path, stat, 0),
            call("statx", AT, path, 0, 0x7FF, buffer),
            *(call("access", path, mode) for mode in (0, 1, 2, 4)),
            call("faccessat", AT, path, 0),
            call("faccessat2", AT, path, 4, 0x200),
            call("statfs", path, buffer),
            call("chdir", path),
            call("open", path, PATH),
            call("open", path, PATH | DIRECTORY),
            call("name_to_handle_at", AT, path, Raw(b"\x80" + bytes(135)), Out(4), 0x400),
            call("file_getattr", AT, path, Out(24), 24, 0),
        ],
        "read": [
            call("getxattr", path, "user.x", buffer, 256),
            call("listxattr", path, buffer, 256),
            call("getxattrat", AT, path, 0, "user.x", VALUE, 16),
            call("listxattrat", AT, path, 0, buffer, 256),
            call("open", path, RW | NONBLOCK),
        ],
        "readdir": [call("open", path, R | DIRECTORY), call("openat2", AT, path, how(R | DIRECTORY), 24)],
        "write": [
            call("open", path, W | NONBLOCK),
            call("open", path, W | NONBLOCK | TRUNC),
            call("open", path, RW | TMPFILE, 0o600),
            call("open", path, W | CREAT | NONBLOCK, 0o600),
            call("creat", path, 0o600),
            *(call("openat2", AT, path, how(W | CREAT | NONBLOCK, 0o600, by), 24) for by in (0, NO_MAGIC)),
            call("chown", path, KEEP, KEEP),
            call("fchownat", AT, path, KEEP, KEEP, 0),
            call("utime", path, 0),
            call("utimes", path, THEN),
            call("futimesat", AT, path, THEN),
            call("utimensat", AT, path, THEN, 0),
            call("setxattr", path, "user.x", Raw(b"v"), 1, 0),
            call("setxattrat", AT, path, 0, "user.x", VALUE, 16),
            call("removexattr", path, "user.x"),
            call("removexattrat", AT, path, 0, "user.x"),
            call("file_setattr", AT, path, ATTRIBUTES, 24, 0),
            call("linkat", AT, path, AT, "/m/open/new", 0x400),
        ],
        "truncate": [call("truncate", path, 0), call("truncate", path, 100), call("open", path, R | TRUNC | NONBLOCK)],
        "chmod": [call("chmod", path, 0o700), call("fchmodat", AT, path, 0o700), call("fchmodat2", AT, path, 0o700, 0)],
        "mount_sensitive": [call("mount", "x", path, "tmpfs", 0, 0), call("umount2", path, 0), call("chroot", path)],
    }


def not_following(path: str) -> dict[str, list[str]]:
    """Calls that do not."""
    stat, buffer, other = Out(144), Out(256), "/m/open/new"
    return {
        "stat": [
            call("lstat", path, stat),
            call("newfstatat", AT, path, stat, AT_NOFOLLOW),
            call("statx", AT, path, AT_NOFOLLOW, 0x7FF, buffer),
            call("faccessat2", AT, path, 0, AT_NOFOLLOW),
            call("open", path, PATH | NOFOLLOW),
            call("openat2", AT, path, how(PATH | NOFOLLOW), 24),
        ],
        "read": [call("lgetxattr", path, "user.x", buffer, 256), call("llistxattr", path, buffer, 256)],
        "write": [
            call("open", path, W | NOFOLLOW | NONBLOCK),
            call("open", path, W | CREAT | EXCL, 0o600),
            call("open", path, W | CREAT | NOFOLLOW | NONBLOCK, 0o600),
            call("openat2", AT, path, how(W | CREAT | EXCL, 0o600), 24),
            call("openat2", AT, path, how(W | NOFOLLOW | NONBLOCK, 0, NO_MAGIC), 24),
            call("mknod", path, 0o100600, 0),
            call("mknodat", AT, path, 0o010600, 0),
            call("lchown", path, KEEP, KEEP),
            call("utimensat", AT, path, THEN, AT_NOFOLLOW),
            call("lsetxattr", path, "user.x", Raw(b"v"), 1, 0),
            call("lremovexattr", path, "user.x"),
            call("link", path, other),
            call("link", "/m/plain", path),
            call("linkat", AT, path, AT, other, 0),
        ],
        "chmod": [call("fchmodat2", AT, path, 0o700, AT_NOFOLLOW)],
        "create_dir": [call("mkdir", path, 0o755), call("mkdirat", AT, path, 0o755)],
        "rm": [call("unlink", path), call("rmdir", path), call("unlinkat", AT, path, 0), call("unlinkat", AT, path, REMOVEDIR)],
        "rename": [
            call("rename", path, other),
            call("rename", "/m/plain", path),
            call("rename", "/m/open", path),
            *(call("renameat2", AT, path, AT, other, flags) for flags in (1, 2)),
            *(call("renameat2", AT, "/m/plain", AT, path, flags) for flags in (1, 2)),
            call("rename", path, path),
        ],
        "symlink": [call("symlink", "text", path), call("symlinkat", "text", AT, path)],
        "readlink": [call("readlink", path, buffer, 256), call("readlinkat", AT, path, buffer, 256)],
    }


def sockets(path: str) -> list[str]:
    """Binding and connecting to a name; lines 3 and 4 are sockets."""
    name = unix(path.encode() + b"\0")
    return [call("bind", 3, name, len(name.content)), call("connect", 4, name, len(name.content))]


SOCKETS = [call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0), call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)]


@pytest.fixture
def folder(host_dir: Path) -> Path:
    """A folder with something of every kind in its vault."""
    vault = host_dir / "vault"
    for name in ("dir", "empty", "closed"):
        (vault / name).mkdir(parents=True)
    (host_dir / "open").mkdir()
    for path in (
        vault / "file",
        vault / "shut",
        vault / "dir/x",
        vault / "closed/x",
        host_dir / "plain",
        host_dir / "open/inner",
    ):
        path.write_bytes(b"content")
    os.mkfifo(vault / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(vault / "socket"))
    for name, text in {"to-plain": "../plain", "dangling": "../nothing", "loop": "loop"}.items():
        (vault / name).symlink_to(text)
    (host_dir / "via").symlink_to("vault")
    (host_dir / "here").symlink_to("/m")
    if os.geteuid() == 0:
        for path in (host_dir, *host_dir.rglob("*")):
            os.chown(path, ORDINARY_USER, ORDINARY_USER, follow_symlinks=False)
    for path in (vault / "closed", vault / "shut"):
        path.chmod(0)
    return host_dir


def look(folder: Path) -> dict[str, tuple[int, int]]:
    """Mode and time of change of everything."""
    return {str(path): (path.lstat().st_mode, path.lstat().st_ctime_ns) for path in (folder, *folder.rglob("*"))}


def answers_by_kind(vm: VM, probe: Probe, lines_of: Callable[[str], list[str]], kinds: tuple[str, ...]) -> dict[str, list[int]]:
    """What the calls on each kind of thing gave."""
    lines = {kind: lines_of(kind) for kind in kinds}
    answers = iter(results(probe.in_vm(vm, [line for kind in kinds for line in lines[kind]], cwd="/m/open")))
    return {kind: [next(answers) for _ in lines[kind]] for kind in kinds}


def flat(calls: dict[str, list[str]]) -> list[str]:
    return [line for lines in calls.values() for line in lines]


@pytest.mark.parametrize("base", ["/m/", "../"], ids=["absolute", "relative"])
@pytest.mark.parametrize("way", WAYS)
def test_where_everything_is_denied_everything_is_eacces(
    vm_factory: Callable[..., VM], probe: Probe, folder: Path, way: str, base: str
) -> None:
    vm = vm_factory(permissions=deny("/m/vault/**"), mounts={"/m": HostDir(folder, mode="rw")}, files=probe.files)
    before = look(folder)
    all_followed = answers_by_kind(vm, probe, lambda kind: flat(following(base + way.format(kind))), KINDS)
    by_itself = answers_by_kind(vm, probe, lambda kind: flat(not_following(base + way.format(kind))), KINDS)
    if way.endswith("{}"):
        by_itself |= answers_by_kind(vm, probe, lambda kind: flat(not_following(base + way.format(kind))), LINKS)
    for answers in (*all_followed.values(), *by_itself.values()):
        assert set(answers) == {-EACCES}
    assert look(folder) == before


@pytest.mark.parametrize("way", ["vault/{}", "via/{}", "here/vault/{}"])
@pytest.mark.parametrize("operation", OPERATIONS["fs"])
def test_where_one_operation_is_denied_the_calls_that_need_it_are_eacces(
    vm_factory: Callable[..., VM], probe: Probe, folder: Path, operation: str, way: str
) -> None:
    permissions = deny("/m/vault/**", operations=[operation])
    vm = vm_factory(permissions=permissions, mounts={"/m": HostDir(folder, mode="rw")}, files=probe.files)
    before = look(folder)
    for form, kinds in ((following, KINDS), (not_following, (*KINDS, *LINKS[2:]))):
        found = answers_by_kind(vm, probe, lambda kind, form=form: form(f"/m/{way.format(kind)}").get(operation, []), kinds)  # type: ignore[misc]
        for answers in found.values():
            assert set(answers) <= {-EACCES}
    assert look(folder) == before


@pytest.mark.parametrize("way", ["vault/{}", "via/{}"])
def test_where_nothing_is_denied_there_is_a_difference_to_be_told(
    vm_factory: Callable[..., VM], probe: Probe, folder: Path, way: str
) -> None:
    """The control: of looking alone, which changes nothing."""
    vm = vm_factory(permissions=judged_but_allowed(), mounts={"/m": HostDir(folder)}, files=probe.files)
    found = answers_by_kind(vm, probe, lambda kind: following(f"/m/{way.format(kind)}")["stat"], KINDS)
    assert found["absent"] != found["file"] != found["dir"]
    assert found["file"] != found["shut"]


def test_a_socket_is_bound_and_connected_to_at_no_denied_name(vm_factory: Callable[..., VM], probe: Probe, folder: Path) -> None:
    vm = vm_factory(permissions=deny("/m/vault/**"), mounts={"/m": HostDir(folder, mode="rw")}, files=probe.files)
    before = look(folder)
    lines = [*SOCKETS, *(line for kind in (*KINDS, *LINKS[2:]) for line in sockets(f"/m/vault/{kind}"))]
    answers = results(probe.in_vm(vm, lines))
    assert answers[:2] == [3, 4]
    connected_by_a_link = {len(SOCKETS) + 2 * (len(KINDS) + n) + 1 for n in range(3)}
    assert {answer for n, answer in enumerate(answers[2:], 2) if n not in connected_by_a_link} == {-EACCES}
    assert look(folder) == before
