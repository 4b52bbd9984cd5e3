"""mount, umount2, pivot_root, chroot and the newer calls on mounts: judged as mount_sensitive, and never made."""

from __future__ import annotations

from collections.abc import Callable
from errno import EACCES, EFAULT, EPERM
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import AT_FDCWD, Probe, Raw, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

BIND, DETACH, CLONE = 4096, 2, 1
BY_PATH = {
    "mount": call("mount", "/w/a", "/w/b", "none", BIND, 0),
    "umount2": call("umount2", "/w/b", DETACH),
    "pivot_root": call("pivot_root", "/w/b", "/w/b"),
    "chroot": call("chroot", "/w/b"),
}
BY_DESCRIPTOR = {
    "open_tree": call("open_tree", AT_FDCWD, "/w/a", CLONE),
    "open_tree_attr": call("open_tree_attr", AT_FDCWD, "/w/a", CLONE, Raw(bytes(32)), 32),
    "move_mount": call("move_mount", AT_FDCWD, "/w/a", AT_FDCWD, "/w/b", 0),
    "fsopen": call("fsopen", "tmpfs", 0),
    "fsconfig": call("fsconfig", 3, 6, 0, 0, 0),
    "fsmount": call("fsmount", 3, 0, 0),
    "fspick": call("fspick", AT_FDCWD, "/w/b", 0),
    "mount_setattr": call("mount_setattr", AT_FDCWD, "/w/b", 0, Raw(bytes(32)), 32),
}
FILES = {"/w/a/file": b"", "/w/b/file": b""}


def test_an_ordinary_user_of_the_host_may_not_either(probe: Probe, host_dir: Path) -> None:
    lines = [line.replace(b"/w/".hex(), f"{host_dir}/".encode().hex()) for line in BY_PATH.values()]
    for name in ("a", "b"):
        (host_dir / name).mkdir()
    assert results(probe.on_host(lines, cwd=host_dir)) == [-EPERM] * 4


@pytest.mark.parametrize("permissions", [None, judged_but_allowed()], ids=["default", "judged"])
def test_it_is_never_made(vm_factory: Callable[..., VM], probe: Probe, permissions: dict[str, object] | None) -> None:
    vm = vm_factory(permissions=permissions, files=probe.files | FILES)
    mounted = vm.run(["cat", "/proc/self/mountinfo"]).stdout
    lines = [*BY_PATH.values(), *BY_DESCRIPTOR.values()]
    assert results(probe.in_vm(vm, lines)) == [-EPERM] * len(lines)
    assert vm.run(["cat", "/proc/self/mountinfo"]).stdout == mounted


@pytest.mark.parametrize("name", BY_PATH)
def test_it_is_refused_where_the_place_is_denied(vm_factory: Callable[..., VM], probe: Probe, name: str) -> None:
    vm = vm_factory(permissions=deny("/w/b", operations=["mount_sensitive"]), files=probe.files | FILES)
    assert results(probe.in_vm(vm, [BY_PATH[name]])) == [-EACCES]
    assert [(denial.operation, denial.subject) for denial in vm.denials] == [("mount_sensitive", "/w/b")]


@pytest.mark.parametrize("name", BY_DESCRIPTOR)
def test_what_names_no_place_is_judged_as_the_root(vm_factory: Callable[..., VM], probe: Probe, name: str) -> None:
    vm = vm_factory(permissions=deny("/", operations=["mount_sensitive"]), files=probe.files | FILES)
    assert results(probe.in_vm(vm, [BY_DESCRIPTOR[name]])) == [-EACCES]
    assert [(denial.operation, denial.subject) for denial in vm.denials] == [("mount_sensitive", "/")]


def test_a_place_that_is_not_there_is_refused_as_one_that_is(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=deny("/w/**", operations=["mount_sensitive"]), files=probe.files | FILES)
    lines = [call("umount2", "/w/b", 0), call("umount2", "/w/absent", 0), call("umount2", 4096, 0)]
    assert results(probe.in_vm(vm, lines)) == [-EACCES, -EACCES, -EFAULT]
