"""The two policies that everybody writes first: deny one folder, or allow only to read another (AOS-43, AOS-44, U4 to U8)."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from callgate import HostDir
from tests.vm_fixtures import AT_FDCWD, ORDINARY_USER, Out, Probe, Raw, call, deny, judged_but_allowed, results, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

HOME: Final = "/home/agentos"
VAULT: Final = f"{HOME}/vault"
R, W, RW, CREAT, DIRECTORY = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_DIRECTORY
AT, BIND, EXCHANGE = AT_FDCWD, 4096, 2
FILES: Final = {f"{VAULT}/key": b"s3cret", f"{VAULT}/deep/key": b"s3cret", f"{HOME}/x": b"plain", f"{HOME}/data/table": b"a,b"}

# -- deny one folder -----------------------------------------------------------------------------------------------------

DENY_VAULT: Final = deny(f"{VAULT}/**")
OPERATIONS: Final[dict[str, list[str]]] = {
    "read": [call("open", f"{VAULT}/key", R), call("openat2", AT, f"{VAULT}/key", Raw(bytes(24)), 24)],
    "write": [
        call("open", f"{VAULT}/key", W),
        call("open", f"{VAULT}/new", W | CREAT, 0o600),
        call("mknod", f"{VAULT}/n", 0o100600, 0),
    ],
    "stat": [call("stat", f"{VAULT}/key", Out(144)), call("stat", VAULT, Out(144)), call("stat", f"{VAULT}/absent", Out(144))],
    "readdir": [call("open", VAULT, R | DIRECTORY), call("open", f"{VAULT}/deep", R | DIRECTORY)],
    "create_dir": [call("mkdir", f"{VAULT}/new", 0o755)],
    "rm": [call("unlink", f"{VAULT}/key"), call("rmdir", f"{VAULT}/deep")],
    "rename": [
        call("rename", f"{VAULT}/key", f"{HOME}/key"),
        call("rename", f"{HOME}/x", f"{VAULT}/x"),
        call("rename", VAULT, f"{HOME}/v"),
    ],
    "symlink": [call("symlink", "x", f"{VAULT}/link")],
    "readlink": [call("readlink", f"{VAULT}/key", Out(64), 64)],
    "chmod": [call("chmod", f"{VAULT}/key", 0o777), call("chmod", VAULT, 0o777)],
    "truncate": [call("truncate", f"{VAULT}/key", 0)],
    "mount_sensitive": [call("mount", VAULT, VAULT, "none", BIND, 0), call("umount2", VAULT, 0)],
}
#: Other ways there, from a working directory in HOME, with line 0 a descriptor of it and line 1 a link to the vault.
WAYS: Final[dict[str, str]] = {
    "up and down": call("open", f"{HOME}/data/../vault/key", R),
    "relative": call("open", "vault/key", R),
    "by a link": call("open", f"{HOME}/link/key", R),
    "by the working directory in /proc": call("open", "/proc/self/cwd/vault/key", R),
    "by the root in /proc": call("open", f"/proc/self/root{VAULT}/key", R),
    "by a thread's root in /proc": call("open", f"/proc/thread-self/root{VAULT}/key", R),
    "by a descriptor in /proc": call("open", "/proc/self/fd/3/vault/key", R),
    "by a directory's descriptor": call("openat", 3, "vault/key", R),
    "by a hard link": call("link", f"{VAULT}/key", f"{HOME}/alias"),
    "by a link to a link": call("linkat", AT, f"{HOME}/link/key", AT, f"{HOME}/alias", 0x400),
    "by its parent's new name": call("rename", HOME, "/home/moved"),
    "by an exchange": call("renameat2", AT, VAULT, AT, f"{HOME}/data", EXCHANGE),
    "by openat2": call("openat2", 3, "vault/key", Raw(bytes(16) + b"\x08" + bytes(7)), 24),
    "by openat2 in a root": call("openat2", 3, "/vault/key", Raw(bytes(16) + b"\x10" + bytes(7)), 24),
    "by a handle": call("name_to_handle_at", AT, f"{VAULT}/key", Raw(b"\x80" + bytes(135)), Out(4), 0),
    "by a watch": call("inotify_add_watch", 5, VAULT, 1),
    "as a place": call("open", f"{VAULT}/key", os.O_PATH),
}
READY: Final = [
    call("open", HOME, R | DIRECTORY),
    call("symlink", "vault", f"{HOME}/link"),
    call("open", f"{HOME}/x", RW),
    call("inotify_init1", 0),
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_reaches_the_vault(vm_factory: Callable[..., VM], probe: Probe, operation: str) -> None:
    vm = vm_factory(permissions=DENY_VAULT, files=probe.files | FILES)
    before = tree_of(vm, HOME)
    lines = OPERATIONS[operation]
    assert results(probe.in_vm(vm, lines)) == [-EACCES] * len(lines)
    assert tree_of(vm, HOME) == before
    assert {denial.operation for denial in vm.denials} == {operation}


@pytest.mark.parametrize("way", WAYS)
def test_no_other_way_leads_there(vm_factory: Callable[..., VM], probe: Probe, way: str) -> None:
    vm = vm_factory(permissions=DENY_VAULT, files=probe.files | FILES)
    before = tree_of(vm, VAULT)
    assert results(probe.in_vm(vm, [*READY, WAYS[way]], cwd=HOME)) == [3, 0, 4, 5, -EACCES]
    assert tree_of(vm, VAULT) == before


def test_a_vault_that_is_mounted_is_none_the_less_denied(vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> None:
    (host_dir / "key").write_bytes(b"s3cret")
    if os.geteuid() == 0:
        os.chown(host_dir / "key", ORDINARY_USER, ORDINARY_USER)
    vm = vm_factory(permissions=DENY_VAULT, mounts={VAULT: HostDir(host_dir, mode="rw")}, files=probe.files)
    lines = [line for operation in ("read", "stat", "readdir", "chmod", "truncate", "rm") for line in OPERATIONS[operation][:1]]
    assert results(probe.in_vm(vm, lines)) == [-EACCES] * len(lines)
    assert (host_dir / "key").read_bytes() == b"s3cret"


def test_everything_beside_the_vault_is_open(vm_factory: Callable[..., VM], probe: Probe) -> None:
    """And the same calls reach the vault where it is not denied, which is the control of all others."""
    beside = [
        line.replace(VAULT.encode().hex(), f"{HOME}/data".encode().hex())
        for line in OPERATIONS["write"][1:] + OPERATIONS["stat"][1:2]
    ]
    vm = vm_factory(permissions=DENY_VAULT, files=probe.files | FILES)
    assert results(probe.in_vm(vm, [*beside, call("open", f"{HOME}/x", RW)])) == [3, 0, 0, 4]
    vm = vm_factory(permissions=judged_but_allowed(), files=probe.files | FILES)
    open_ways = [WAYS[way] for way in WAYS if WAYS[way].split()[0] in ("2", "257", "437")]
    assert min(results(probe.in_vm(vm, [*READY, *open_ways], cwd=HOME))) >= 0


def test_what_is_refused_does_not_exist_to_who_only_asks(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os; print(*(os.path.exists(p) for p in ('vault', 'vault/key', 'vault/absent', 'x')), os.path.isfile('vault/key'))"
    )
    vm = vm_factory(permissions=DENY_VAULT, files=FILES)
    assert vm.run(["python3", "-c", program], cwd=HOME).stdout == "False False False True False\n"


# -- allow nothing but reading a folder --------------------------------------------------------------------------------------

DATA: Final = f"{HOME}/data"
ALLOW_ONLY_DATA: Final = {
    "fs": {"default": "deny", "rules": [{"mode": "allow", "operations": ["read", "readdir", "stat"], "paths": [f"{DATA}/**"]}]}
}
REFUSED: Final[dict[str, str]] = {
    "creating": call("open", f"{DATA}/new", W | CREAT, 0o600),
    "writing": call("open", f"{DATA}/table", W),
    "both": call("open", f"{DATA}/table", RW),
    "truncating": call("truncate", f"{DATA}/table", 0),
    "truncating by open": call("open", f"{DATA}/table", R | os.O_TRUNC),
    "the mode": call("chmod", f"{DATA}/table", 0o600),
    "the times": call("utimensat", AT, f"{DATA}/table", 0, 0),
    "an attribute": call("setxattr", f"{DATA}/table", "user.x", Raw(b"v"), 1, 0),
    "removing": call("unlink", f"{DATA}/table"),
    "a directory": call("mkdir", f"{DATA}/new", 0o755),
    "moving": call("rename", f"{DATA}/table", f"{DATA}/new"),
    "linking": call("link", f"{DATA}/table", f"{DATA}/new"),
    "a symbolic link": call("symlink", "table", f"{DATA}/new"),
    "reading a link": call("readlink", f"{DATA}/table", Out(9), 9),
    "the folder above": call("open", HOME, R | DIRECTORY),
    "the folder above, looked at": call("stat", HOME, Out(144)),
    "beside": call("open", f"{HOME}/x", R),
    "beside by a detour": call("open", f"{DATA}/../x", R),
    "the vault": call("open", f"{VAULT}/key", R),
    "the host's name": call("open", "/etc/hostname", R),
    "nothing elsewhere": call("open", "/absent", R),
}


def test_data_is_read_and_listed(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=ALLOW_ONLY_DATA, files=probe.files | FILES)
    lines = [
        call("open", f"{DATA}/table", R),
        call("read", 3, Out(9), 9),
        call("open", DATA, R | DIRECTORY),
        call("getdents64", 4, Out(500), 500),
        call("stat", f"{DATA}/table", Out(144)),
        call("stat", DATA, Out(144)),
        call("open", f"{DATA}/absent", R),
        call("getxattr", f"{DATA}/table", "user.x", Out(9), 9),
        call("statfs", DATA, Out(120)),
    ]
    answers = results(probe.in_vm(vm, lines, cwd=DATA))
    assert answers[:3] == [3, 3, 4]
    assert answers[3] > 0
    assert answers[4:] == [0, 0, -ENOENT, -61, 0]
    assert vm.denials == ()


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_else_is_allowed(vm_factory: Callable[..., VM], probe: Probe, what: str) -> None:
    vm = vm_factory(permissions=ALLOW_ONLY_DATA, files=probe.files | FILES)
    before = tree_of(vm, HOME)
    assert results(probe.in_vm(vm, [REFUSED[what]], cwd=DATA)) == [-EACCES]
    assert tree_of(vm, HOME) == before


@pytest.mark.parametrize(
    ("operation", "path"),
    [(operation, path) for operation in ("read", "write", "stat") for path in ("/dev/null", "/dev/zero", "/dev/urandom")],
)
def test_standard_devices_are_outside_the_policy(vm_factory: Callable[..., VM], probe: Probe, operation: str, path: str) -> None:
    line = {"read": call("open", path, R), "write": call("open", path, RW), "stat": call("stat", path, Out(144))}[operation]
    vm = vm_factory(permissions={"fs": "deny"}, files=probe.files)
    assert results(probe.in_vm(vm, [line]))[0] >= 0
