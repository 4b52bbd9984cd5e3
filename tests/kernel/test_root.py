"""The private root as data: what it holds, what the operator can add, and what is refused before anything starts."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate.kernel.confinement import root as root_module
from callgate.kernel.confinement import runtime_image
from callgate.kernel.confinement.environment import base_environment, checked, visible
from callgate.kernel.confinement.operator_paths import Mount, add_files, add_mounts, vm_path
from callgate.kernel.confinement.root import DEVICES, Root, User, base_root, parents
from callgate.kernel.launch_blob import BindFlag, SetupStep, StepKind
from callgate.scopes.errors import Unsupported
from callgate.scopes.fs import mistake

AGENT = User("agentos", 1000, 1000, "/home/agentos")


@pytest.fixture
def base() -> Root:
    return base_root(AGENT, "callgate")


def step_at(root: Root, path: str) -> SetupStep:
    (found,) = [step for step in root.steps if step.destination == path.encode()]
    return found


def never(path: str) -> None:
    raise AssertionError(f"{path} was judged")


def mounted(root: Root, *mounts: Mount, judge: Callable[[str], None] = never) -> Root:
    return add_mounts(root, mounts, judge)[0]


# -- the base ----------------------------------------------------------------------------------------------------------


def test_every_step_stands_in_a_directory_made_before_it(base: Root) -> None:
    made = {"/"}
    for step in base.steps:
        path = os.fsdecode(step.destination)
        assert posixpath.dirname(path) in made, path
        assert path not in made, f"{path} is made twice"
        made.add(path)


def test_devices_are_bound_as_devices_and_cannot_be_changed(base: Root) -> None:
    for name in DEVICES:
        step = step_at(base, f"/dev/{name}")
        assert (step.kind, step.flags) == (StepKind.BIND, BindFlag.READ_ONLY | BindFlag.DEVICE)
        assert stat.S_ISCHR(os.stat(step.source).st_mode)
    assert not [step for step in base.steps if step.flags & BindFlag.DEVICE and not step.destination.startswith(b"/dev/")]


def test_everything_bound_from_the_host_is_read_only(base: Root) -> None:
    bound = [step for step in base.steps if step.kind is StepKind.BIND]
    assert b"/usr" in {step.destination for step in bound}
    assert all(step.flags & BindFlag.READ_ONLY for step in bound)


def test_nothing_private_of_the_host_is_in_the_root(base: Root) -> None:
    sources = {os.fsdecode(step.source) for step in base.steps if step.kind is StepKind.BIND}
    for private in ("/", "/home", "/root", "/etc", "/var", "/run", "/sys", "/proc", "/dev", "/tmp"):
        assert private not in sources
    copied = {os.fsdecode(step.destination) for step in base.steps if step.kind is StepKind.FILE}
    assert not copied & {"/etc/shadow", "/etc/machine-id"}
    assert b"root:x:0:0:root:/root:/bin/sh\nagentos:x:1000:1000:" in step_at(base, "/etc/passwd").source


def test_shared_directories_have_the_sticky_bit(base: Root) -> None:
    for path in ("/tmp", "/var/tmp", "/dev/shm"):
        assert step_at(base, path).mode == 0o1777


def test_a_merged_host_keeps_its_links_and_another_gets_read_only_binds(base: Root) -> None:
    for name in root_module.TOP_LEVEL_SYSTEM:
        path = Path("/", name)
        steps = [step for step in base.steps if step.destination == os.fsencode(path)]
        if path.is_symlink():
            assert [step.kind for step in steps] == [StepKind.SYMLINK]
            assert base.links[str(path)] == posixpath.normpath(posixpath.join("/", str(path.readlink())))
        else:
            assert [step.kind for step in steps] == ([StepKind.BIND] if path.is_dir() else [])


def test_names_are_looked_up_in_files_and_in_the_vms_own_resolver(base: Root) -> None:
    assert step_at(base, "/etc/resolv.conf").source.startswith(b"nameserver 127.0.0.53\n")
    assert b"hosts: files dns\n" in step_at(base, "/etc/nsswitch.conf").source
    assert step_at(base, "/etc/hostname").source == b"callgate\n"


def test_an_interpreter_outside_usr_comes_along_and_is_searched_after_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_module.sys, "base_prefix", "/opt/some/python")  # type: ignore[attr-defined]
    root = base_root(AGENT, "callgate")
    step = step_at(root, "/opt/some/python")
    assert (step.kind, step.flags) == (StepKind.BIND, BindFlag.READ_ONLY | BindFlag.OPERATOR)
    assert step_at(root, "/opt/some").kind is StepKind.DIRECTORY
    assert base_environment(AGENT)["PATH"].endswith(":/opt/some/python/bin:/run/callgate/bin")
    monkeypatch.setattr(root_module.sys, "base_prefix", "/usr")  # type: ignore[attr-defined]
    assert not [step for step in base_root(AGENT, "callgate").steps if step.flags & BindFlag.OPERATOR]
    assert not base_environment(AGENT)["PATH"].endswith("/usr/bin/bin")


def test_a_changed_loader_cache_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(b"one")
    monkeypatch.setattr(root_module, "_COPIED_FILES", (str(cache),))
    monkeypatch.setattr(root_module, "_copy", lambda path: root_module.regular_file("/etc/copied", Path(path).read_bytes()))
    assert step_at(base_root(AGENT, "a"), "/etc/copied").source == b"one"
    cache.write_bytes(b"two!")
    assert step_at(base_root(AGENT, "a"), "/etc/copied").source == b"two!"


def test_a_root_user_has_one_account() -> None:
    passwd = step_at(base_root(User("root", 0, 0, "/root"), "callgate"), "/etc/passwd").source
    assert passwd.count(b":0:0:") == 1


def test_the_runtime_image_is_made_of_valid_patterns_and_covers_the_loader() -> None:
    image = runtime_image.default_image()
    assert [glob for glob in image if mistake(glob)] == []
    assert {"/usr/lib/**", "/usr/bin/**", "/etc/ld.so.cache"} <= set(image)
    assert not [glob for glob in image if glob in ("/**", "/etc/**", "/home/**", "/usr/**")]


def test_the_directories_above_the_image_are_known_and_nothing_below_them_is_meant() -> None:
    above = runtime_image.ancestors(("/usr/share/perl*/**", "/opt/x/python/**", "/etc/ld.so.cache"))
    assert {"/", "/usr", "/usr/share", "/opt", "/opt/x", "/etc"} <= set(above)
    assert not {glob for glob in above if "*" in glob}
    assert "/etc/ld.so.cache" not in above
    assert runtime_image.ancestors(()) == ()


def test_parents_are_listed_outermost_first() -> None:
    assert list(parents("/a/b/c")) == ["/a", "/a/b"]
    assert list(parents("/a")) == []


# -- seeded files ------------------------------------------------------------------------------------------------------


def test_files_come_with_their_directories(base: Root) -> None:
    root = add_files(base, {"/home/agentos/a/b/c.txt": b"text", "/home/agentos/a/d": b""})
    assert [os.fsdecode(step.destination) for step in root.steps[len(base.steps) :]] == [
        "/home/agentos/a",
        "/home/agentos/a/b",
        "/home/agentos/a/b/c.txt",
        "/home/agentos/a/d",
    ]
    assert (step_at(root, "/home/agentos/a/b/c.txt").source, step_at(root, "/home/agentos/a/b/c.txt").mode) == (b"text", 0o644)


@pytest.mark.parametrize(("content", "mode"), [(b"#!/bin/sh\n", 0o755), (b"\x7fELF\2", 0o755), (b"plain", 0o644), (b"", 0o644)])
def test_scripts_and_programs_are_executable(base: Root, content: bytes, mode: int) -> None:
    assert step_at(add_files(base, {"/srv/x": content}), "/srv/x").mode == mode


def test_a_seeded_file_replaces_one_of_the_roots_own(base: Root) -> None:
    root = add_files(base, {"/etc/hosts": b"127.0.0.1 here\n", "/etc/mtab": b""})
    assert step_at(root, "/etc/hosts").source == b"127.0.0.1 here\n"
    assert step_at(root, "/etc/mtab").kind is StepKind.FILE


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("relative", "not absolute"),
        ("", "not absolute"),
        ("/a/../etc/x", "component"),
        ("/a\0b", "NUL"),
        ("/", "is a directory"),
        ("/a/", "is a directory"),
        ("/tmp", "is a directory"),
        ("/usr/bin/x", "which is mounted"),
        ("/bin/x", "which is mounted"),
        ("/proc/1/x", "which is mounted"),
        ("/dev/null", "which is mounted"),
        ("/dev/pts/0", "which is mounted"),
        ("/etc/hosts/x", "/etc/hosts is not a directory"),
        ("/dev/fd/9", "/dev/fd is not a directory"),
    ],
)
def test_a_file_that_cannot_be_there_is_refused(base: Root, path: str, text: str) -> None:
    if path == "/bin/x" and not base.links:
        pytest.skip("/bin is a directory of its own here")
    with pytest.raises(ValueError, match=re.escape(text)):
        add_files(base, {path: b""})


def test_a_file_below_another_file_is_refused(base: Root) -> None:
    with pytest.raises(ValueError, match="also the directory"):
        add_files(base, {"/srv/a": b"", "/srv/a/b": b""})


def test_a_file_below_a_mount_is_refused_because_it_would_be_written_to_the_host(base: Root, tmp_path: Path) -> None:
    root = mounted(base, Mount("/work", str(tmp_path), False))
    with pytest.raises(ValueError, match="/work, which is mounted"):
        add_files(root, {"/work/seed": b""})


def test_a_path_is_normalised_but_never_through_dot_dot() -> None:
    assert vm_path("//a/./b//", "x") == "/a/b"
    with pytest.raises(ValueError, match=r"x '/a/\.\.' has"):
        vm_path("/a/..", "x")


# -- mounts ------------------------------------------------------------------------------------------------------------


def test_a_mount_is_opened_with_the_operators_rights(base: Root, tmp_path: Path) -> None:
    root = mounted(base, Mount("/work/project/", str(tmp_path), True), Mount("/data", str(tmp_path), False))
    assert step_at(root, "/work").kind is StepKind.DIRECTORY
    read_only, writable = step_at(root, "/work/project"), step_at(root, "/data")
    owned = BindFlag.OPERATOR | BindFlag.OWNER
    assert (read_only.source, read_only.flags) == (os.fsencode(tmp_path), BindFlag.READ_ONLY | owned)
    assert writable.flags == owned


def test_outer_mounts_come_first_and_inner_ones_need_their_place_on_the_host(base: Root, tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    (outer / "in").mkdir(parents=True)
    inner.mkdir()
    root = mounted(base, Mount("/w/in", str(inner), False), Mount("/w", str(outer), False))
    order = [step.destination for step in root.steps if step.kind is StepKind.BIND]
    assert order.index(b"/w") < order.index(b"/w/in")
    with pytest.raises(ValueError, match="will not be made on the host"):
        mounted(base, Mount("/w/absent", str(inner), False), Mount("/w", str(outer), False))
    assert not (outer / "absent").exists()


def test_a_writable_mount_in_a_read_only_one_is_refused(base: Root, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(Unsupported, match="writable mount at /w/in"):
        mounted(base, Mount("/w", str(tmp_path), True), Mount("/w/in", str(tmp_path), False))


@pytest.mark.parametrize("path", ["/", "/proc", "/dev", "/proc/sys", "//"])
def test_what_is_the_vms_own_cannot_be_replaced(base: Root, tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="cannot be replaced"):
        mounted(base, Mount(path, str(tmp_path), True), judge=lambda _: None)


@pytest.mark.parametrize("path", ["/etc", "/usr", "/bin", "/sbin", "/lib", "/sys", "/sys/fs", "/dev/mqueue", "/usr/bin"])
def test_sensitive_destinations_are_judged(base: Root, tmp_path: Path, path: str) -> None:
    if path == "/usr/bin" and path not in base.links.values():
        pytest.skip("no top-level link leads to /usr/bin here")
    asked: list[str] = []
    mounted(base, Mount(path, str(tmp_path), True), judge=asked.append)
    assert asked == [base.links.get(path, path)]

    def refuse(_: str) -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        mounted(base, Mount(path, str(tmp_path), True), judge=refuse)


@pytest.mark.parametrize("path", ["/work", "/etc/app", "/home/agentos", "/opt/tool", "/usr/share"])
def test_other_destinations_are_not(base: Root, tmp_path: Path, path: str) -> None:
    last = mounted(base, Mount(path, str(tmp_path), True)).steps[-1]
    assert (last.kind, last.destination) == (StepKind.BIND, path.encode())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("work", "not absolute"),
        ("/w*", "cannot be part"),
        ("/etc/hosts", "other than a directory"),
        ("/etc/hosts/x", "/etc/hosts is not a directory"),
        ("/usr/share/absent-from-this-host", "will not be made on the host"),
    ],
)
def test_a_mount_that_cannot_be_made_is_refused(base: Root, tmp_path: Path, path: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        mounted(base, Mount(path, str(tmp_path), True))


def test_two_mounts_at_one_place_are_refused(base: Root, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two mounts at '/work'"):
        mounted(base, Mount("/work", str(tmp_path), True), Mount("/work/", "/srv", True))


# -- the environment ---------------------------------------------------------------------------------------------------


def test_the_environment_is_the_vms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "x")
    environment = base_environment(AGENT)
    assert "HOST_SECRET" not in environment
    assert (environment["HOME"], environment["USER"], environment["LANG"]) == ("/home/agentos", "agentos", "C.UTF-8")


def test_unreadable_names_are_absent() -> None:
    assert visible({"A": "1", "AWS_SECRET": "2"}, lambda name: not name.startswith("AWS_")) == {"A": "1"}


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0y"}])
def test_variables_that_execve_cannot_pass_on_are_refused(env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="environment variable"):
        checked(env)


def test_variables_are_text() -> None:
    with pytest.raises(TypeError):
        checked({"A": 1})  # type: ignore[dict-item]
