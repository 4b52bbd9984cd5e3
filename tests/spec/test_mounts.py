"""Host directories in a VM: what is judged is the VM's path, and the host sees no more than it was opened for (SPEC 3.1)."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES, EBUSY, EISDIR, ENOTDIR, EROFS, EXDEV
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import HostDir
from tests.vm_fixtures import ORDINARY_USER, Out, Probe, Raw, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R, W, CREAT = os.O_RDONLY, os.O_WRONLY, os.O_CREAT
POLICIES = {"default": None, "judged": judged_but_allowed()}


@pytest.fixture
def shared(host_dir: Path) -> Path:
    """A host directory with a file, a folder and links, all of one owner."""
    folder = host_dir / "shared"
    (folder / "d").mkdir(parents=True)
    (folder / "f").write_bytes(b"content")
    (folder / "d/inner").write_bytes(b"inner")
    (folder / "to-etc").symlink_to("/etc/hostname")
    (folder / "to-outside").symlink_to("../outside")
    (host_dir / "outside").write_bytes(b"not shared")
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, ORDINARY_USER, ORDINARY_USER, follow_symlinks=False)
    return folder


def look(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, mtime and content of everything in a host folder."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found


WRITERS = [
    call("open", "/m/f", W),
    call("open", "/m/f", os.O_RDWR),
    call("open", "/m/f", R | os.O_TRUNC),
    call("open", "/m/new", W | CREAT, 0o600),
    call("creat", "/m/new", 0o600),
    call("mkdir", "/m/new", 0o755),
    call("mknod", "/m/new", 0o010600, 0),
    call("symlink", "x", "/m/new"),
    call("link", "/m/f", "/m/new"),
    call("rename", "/m/f", "/m/new"),
    call("rename", "/tmp/own", "/m/new"),
    call("unlink", "/m/f"),
    call("rmdir", "/m/d"),
    call("chmod", "/m/f", 0o600),
    call("chown", "/m/f", -1, -1),
    call("truncate", "/m/f", 0),
    call("utimensat", -100, "/m/f", 0, 0),
    call("setxattr", "/m/f", "user.x", Raw(b"v"), 1, 0),
    call("open", "/m", os.O_TMPFILE | os.O_RDWR, 0o600),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_writer_of_a_read_only_mount_gets_eacces(
    vm_factory: Callable[..., VM], probe: Probe, shared: Path, policy: str
) -> None:
    before = look(shared)
    vm = vm_factory(permissions=POLICIES[policy], mounts={"/m": HostDir(shared)}, files=probe.files | {"/tmp/own": b""})
    assert results(probe.in_vm(vm, WRITERS)) == [-EACCES] * len(WRITERS)
    assert look(shared) == before
    assert {denial.rule for denial in vm.denials} == {"mount"}


def test_no_rule_makes_a_read_only_mount_writable(vm_factory: Callable[..., VM], probe: Probe, shared: Path) -> None:
    rules = [{"mode": "allow", "paths": ["/m/**"]}]
    vm = vm_factory(permissions={"fs": {"rules": rules}}, mounts={"/m": HostDir(shared)}, files=probe.files)
    assert results(probe.in_vm(vm, [call("open", "/m/f", W), call("open", "/m/f", R)])) == [-EACCES, 3]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_writable_mount_is_written(vm_factory: Callable[..., VM], shared: Path, policy: str) -> None:
    vm = vm_factory(permissions=POLICIES[policy], mounts={"/m": HostDir(shared, mode="rw")})
    script = (
        "echo more >> /m/f; mkdir /m/new; echo x > /m/new/y; mv /m/d/inner /m/moved; rmdir /m/d;"
        " chmod 600 /m/moved; stat -c %U /m/new/y"
    )
    assert vm.run(script).stdout == "agentos\n"
    assert (shared / "f").read_bytes() == b"contentmore\n"
    assert (shared / "new/y").stat().st_uid == shared.stat().st_uid
    assert ((shared / "moved").read_bytes(), (shared / "moved").stat().st_mode & 0o777) == (b"inner", 0o600)
    assert not (shared / "d").exists()


@pytest.mark.parametrize("policy", POLICIES)
def test_links_in_a_mount_lead_through_the_vm_not_the_host(vm_factory: Callable[..., VM], shared: Path, policy: str) -> None:
    vm = vm_factory(permissions=POLICIES[policy], mounts={"/m": HostDir(shared)})
    assert vm.run(["cat", "/m/to-etc"]).stdout == vm.run(["cat", "/etc/hostname"]).stdout
    assert vm.run(["cat", "/m/to-outside"]).returncode == 1
    assert vm.run("cd /m; cat ../outside || ls ..").stdout == vm.run("ls /").stdout
    assert vm.fs.unchecked.exists("/m/to-outside") is False


def test_each_alias_of_a_directory_has_its_own_verdict(vm_factory: Callable[..., VM], probe: Probe, shared: Path) -> None:
    mounts = {"/one": HostDir(shared, mode="rw"), "/two": HostDir(shared, mode="rw")}
    vm = vm_factory(permissions=deny("/one/d/**"), mounts=mounts, files=probe.files)
    lines = [
        call("open", "/one/d/inner", R),
        call("open", "/two/d/inner", R),
        call("link", "/two/d/inner", "/one/alias"),
        call("rename", "/two/d/inner", "/one/d/moved"),
        call("open", "/one/f", R),
    ]
    assert results(probe.in_vm(vm, lines)) == [-EACCES, 3, -EXDEV, -EACCES, 4]


def test_a_hard_link_made_by_the_host_has_the_verdict_of_its_name(
    vm_factory: Callable[..., VM], probe: Probe, shared: Path
) -> None:
    """Rules are on paths: a second name that the operator's directory already has is another path."""
    os.link(shared / "d/inner", shared / "alias")
    vm = vm_factory(permissions=deny("/m/d/**"), mounts={"/m": HostDir(shared)}, files=probe.files)
    assert results(probe.in_vm(vm, [call("open", "/m/d/inner", R), call("open", "/m/alias", R)])) == [-EACCES, 3]


def test_a_mount_over_a_mount_is_what_is_seen(vm_factory: Callable[..., VM], shared: Path, host_dir: Path) -> None:
    other = host_dir / "other"
    other.mkdir()
    (other / "o").write_text("other")
    vm = vm_factory(permissions=deny("/m/d/o", operations=["write"]), mounts={"/m": HostDir(shared), "/m/d": HostDir(other)})
    assert vm.run("cat /m/d/o; ls /m/d").stdout == "othero\n"
    assert vm.run("cat /m/d/../f").stdout == "content"


def test_a_directory_cannot_be_moved_out_of_its_mount(vm_factory: Callable[..., VM], probe: Probe, shared: Path) -> None:
    for permissions in POLICIES.values():
        vm = vm_factory(permissions=permissions, mounts={"/m": HostDir(shared, mode="rw")}, files=probe.files)
        lines = [
            call("rename", "/m/d", "/tmp/d"),
            call("rename", "/m", "/n"),
            call("rmdir", "/m"),
            call("link", "/m/f", "/tmp/f"),
        ]
        answers = results(probe.in_vm(vm, lines))
        assert answers[0] == -EXDEV
        assert set(answers[1:3]) == {-16}
        assert answers[3] == -EXDEV
    assert (shared / "d/inner").read_bytes() == b"inner"


@pytest.mark.parametrize("policy", POLICIES)
def test_no_mount_point_is_moved_or_removed(vm_factory: Callable[..., VM], probe: Probe, shared: Path, policy: str) -> None:
    vm = vm_factory(permissions=POLICIES[policy], mounts={"/m": HostDir(shared, mode="rw")}, files=probe.files)
    mounted = vm.run(["cat", "/proc/self/mountinfo"]).stdout
    points = {line.split()[4] for line in mounted.splitlines()} - {"/"}
    assert {"/m", "/proc", "/usr", "/dev/null", "/dev/pts"} <= points
    for point in points:
        lines = [
            call("rename", point, "/elsewhere"),
            call("rename", "/tmp", point),
            call("renameat2", -100, point, -100, "/tmp", 2),
            call("renameat2", -100, "/tmp", -100, point, 2),
            call("unlink", point),
            call("rmdir", point),
            call("unlinkat", -100, point, 0x200),
        ]
        for answer in results(probe.in_vm(vm, lines)):
            # A file where a directory is wanted and the like; and a name that is in a read-only file system.
            assert (point, answer) in [(point, -one) for one in (EBUSY, ENOTDIR, EISDIR, EROFS, EXDEV)]
    assert vm.run(["cat", "/proc/self/mountinfo"]).stdout == mounted


def test_changes_by_the_host_are_judged_when_they_are_met(vm_factory: Callable[..., VM], probe: Probe, shared: Path) -> None:
    vm = vm_factory(permissions=deny("/m/d/**"), mounts={"/m": HostDir(shared)}, files=probe.files)
    assert results(probe.in_vm(vm, [call("open", "/m/link", R)])) == [-2]
    (shared / "link").symlink_to("d/inner")
    assert results(probe.in_vm(vm, [call("open", "/m/link", R), call("stat", "/m/link", Out(144))])) == [-EACCES, -EACCES]
