"""A set-user-ID or set-group-ID file left in a directory of the host would run there as the operator: no call makes one."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable
from errno import EACCES, ENOSYS, EOPNOTSUPP, EPERM, EXDEV
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from callgate import HostDir
from tests.vm_fixtures import (
    AT_FDCWD,
    Earlier,
    Permissions,
    Probe,
    Raw,
    Words,
    call,
    judged_but_allowed,
    results,
    tree_of,
)

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]

ONLY_WORK: Final = {"mode": "allow", "operations": ["*"], "paths": ["/work", "/work/**"]}
POLICIES: Final[dict[str, Permissions | None]] = {
    "default": None,
    "judged": judged_but_allowed(),
    "only-work": {"fs": {"default": "deny", "rules": [ONLY_WORK]}},
}
SETID: Final = stat.S_ISUID | stat.S_ISGID
SETID_MODES: Final = (0o4755, 0o2755, 0o6755, 0o7755)
ORDINARY_MODES: Final = (0o644, 0o755, 0o700, 0o1755)  # as they are under an umask of 022

FIRST_DESCRIPTOR: Final = 3
AT_SYMLINK_FOLLOW: Final = 0x400
GARBAGE: Final = 0xABCD_0000_0000_0000
MAKE: Final = os.O_CREAT | os.O_EXCL | os.O_RDWR


class Way(NamedTuple):
    """Calls that make a file with a mode; `giving` is the index of the one that gives the mode, those before it just work."""

    lines: list[str]
    giving: int


def made(path: str) -> str:
    return call("open", path, MAKE, 0o600)


def linked(path: str) -> str:
    """The file without a name that the first line opened gets this one."""
    return call("linkat", AT_FDCWD, f"/proc/self/fd/{FIRST_DESCRIPTOR}", AT_FDCWD, path, AT_SYMLINK_FOLLOW)


def how(flags: int, mode: int) -> tuple[Words, int]:
    """struct open_how, and its size."""
    return Words((flags, mode, 0)), 24


def changed(*calls: Callable[[str, int], str]) -> Callable[[str, int], Way]:
    """A file that is there gets another mode."""
    return lambda path, mode: Way([made(path), *(one(path, mode) for one in calls)], len(calls))


def created(*calls: Callable[[str, int], str]) -> Callable[[str, int], Way]:
    """The file has the mode from its first moment."""
    return lambda path, mode: Way([one(path, mode) for one in calls], 0)


def folder_of(path: str, _mode: int) -> str:
    return call("open", str(Path(path).parent), os.O_RDONLY | os.O_DIRECTORY)


def bound(path: str, mode: int) -> Way:
    """A socket in a directory has the mode that the socket had before."""
    address = (1).to_bytes(2, "little") + os.fsencode(path) + b"\0"
    lines = [call("socket", 1, 1, 0), call("fchmod", Earlier(0), mode), call("bind", Earlier(0), Raw(address), len(address))]
    return Way(lines, 1)


def named(path: str) -> str:
    return Path(path).name


WAYS: Final[dict[str, Callable[[str, int], Way]]] = {
    "chmod": changed(lambda path, mode: call("chmod", path, mode)),
    "chmod-garbage-above": changed(lambda path, mode: call("chmod", path, GARBAGE | mode)),
    "fchmod": changed(lambda _, mode: call("fchmod", Earlier(0), mode)),
    "fchmod-read-only": changed(
        lambda path, _: call("open", path, os.O_RDONLY), lambda _, mode: call("fchmod", Earlier(1), mode)
    ),
    "fchmodat": changed(lambda path, mode: call("fchmodat", AT_FDCWD, path, mode)),
    "fchmodat-in-folder": changed(folder_of, lambda path, mode: call("fchmodat", Earlier(1), named(path), mode)),
    "fchmodat2": changed(lambda path, mode: call("fchmodat2", AT_FDCWD, path, mode, 0)),
    "through-descriptor": changed(lambda _, mode: call("chmod", f"/proc/self/fd/{FIRST_DESCRIPTOR}", mode)),
    "open": created(lambda path, mode: call("open", path, MAKE, mode)),
    "open-garbage-above": created(lambda path, mode: call("open", path, GARBAGE | MAKE, GARBAGE | mode)),
    "openat": created(lambda path, mode: call("openat", AT_FDCWD, path, MAKE, mode)),
    "openat2": created(lambda path, mode: call("openat2", AT_FDCWD, path, *how(MAKE, mode))),
    "creat": created(lambda path, mode: call("creat", path, mode)),
    "mknod": created(lambda path, mode: call("mknod", path, stat.S_IFREG | mode, 0)),
    "mknod-no-type": created(lambda path, mode: call("mknod", path, mode, 0)),
    "mknod-fifo": created(lambda path, mode: call("mknod", path, stat.S_IFIFO | mode, 0)),
    "mknodat": created(lambda path, mode: call("mknodat", AT_FDCWD, path, stat.S_IFREG | mode, 0)),
    "tmpfile": created(
        lambda path, mode: call("open", str(Path(path).parent), os.O_TMPFILE | os.O_RDWR, mode), lambda path, _: linked(path)
    ),
    "tmpfile-openat2": created(
        lambda path, mode: call("openat2", AT_FDCWD, str(Path(path).parent), *how(os.O_TMPFILE | os.O_RDWR, mode)),
        lambda path, _: linked(path),
    ),
    "tmpfile-fchmod": lambda path, mode: Way(
        [
            call("open", str(Path(path).parent), os.O_TMPFILE | os.O_RDWR, 0o600),
            call("fchmod", Earlier(0), mode),
            linked(path),
        ],
        1,
    ),
    "socket": bound,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory of the operator's own: of root's, if root runs the tests."""
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    return folder


def set_ids_in(folder: Path) -> list[str]:
    """What has one of the two bits, as the host sees it."""
    return [str(path) for path in (folder, *folder.rglob("*")) if path.lstat().st_mode & SETID]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def skip_if_unknown(answers: Iterable[int]) -> None:
    """fchmodat2 came with Linux 6.6, and not every filesystem of a host has files without a name."""
    if missing := {-ENOSYS, -EOPNOTSUPP}.intersection(answers):
        pytest.skip(f"not on this host: {os.strerror(-missing.pop())}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_call_makes_a_set_id_file_on_the_host(vm_factory: Factory, probe: Probe, project: Path, policy: str, way: str) -> None:
    vm = vm_factory(permissions=POLICIES[policy], files=probe.files, mounts={"/work": HostDir(project, "rw")})
    for mode in SETID_MODES:
        lines, giving = WAYS[way](f"/work/{mode:o}", mode)
        answers = results(probe.in_vm(vm, lines))
        assert min(answers[:giving], default=0) >= 0
        assert answers[giving] == -EPERM
        assert set_ids_in(project) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", POLICIES)
def test_ordinary_modes_and_the_sticky_bit_reach_the_host(
    vm_factory: Factory, probe: Probe, project: Path, policy: str, way: str
) -> None:
    vm = vm_factory(permissions=POLICIES[policy], files=probe.files, mounts={"/work": HostDir(project, "rw")})
    for mode in ORDINARY_MODES:
        answers = results(probe.in_vm(vm, WAYS[way](f"/work/{mode:o}", mode).lines))
        skip_if_unknown(answers)
        assert min(answers) >= 0, answers
        assert mode_of(project / f"{mode:o}") == mode


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", ["default", "judged"])
def test_without_a_writable_mount_every_way_works_in_the_vm(
    vm_factory: Factory, probe: Probe, project: Path, policy: str, way: str
) -> None:
    vm = vm_factory(permissions=POLICIES[policy], files=probe.files | {"/w/kept": b""}, mounts={"/work": HostDir(project)})
    for mode in SETID_MODES:
        answers = results(probe.in_vm(vm, WAYS[way](f"/w/{mode:o}", mode).lines))
        skip_if_unknown(answers)
        assert min(answers) >= 0, answers
        assert tree_of(vm, f"/w/{mode:o}")[f"/w/{mode:o}"].mode == mode


@pytest.mark.parametrize("way", WAYS)
def test_every_way_works_on_the_bare_host(probe: Probe, host_dir: Path, way: str) -> None:
    for mode in SETID_MODES:
        answers = results(probe.on_host(WAYS[way](str(host_dir / f"{mode:o}"), mode).lines, cwd=host_dir))
        skip_if_unknown(answers)
        assert min(answers) >= 0, answers
        assert mode_of(host_dir / f"{mode:o}") == mode


@pytest.mark.parametrize("caller", Probe.CALLERS)
@pytest.mark.parametrize("user", ["agentos", "root"])
def test_it_does_not_matter_who_asks(vm_factory: Factory, probe: Probe, project: Path, user: str, caller: str) -> None:
    vm = vm_factory(files=probe.files, mounts={"/work": HostDir(project, "rw")}, user=user)
    lines = [made("/work/x"), call("chmod", "/work/x", 0o6755), call("chmod", "/work", 0o2755), call("chmod", "/work/x", 0o711)]
    assert results(probe.in_vm(vm, lines, caller=caller)) == [FIRST_DESCRIPTOR, -EPERM, -EPERM, 0]
    assert set_ids_in(project) == []
    assert mode_of(project / "x") == 0o711


@pytest.mark.parametrize("policy", POLICIES)
def test_an_open_that_creates_nothing_has_no_mode(vm_factory: Factory, probe: Probe, project: Path, policy: str) -> None:
    vm = vm_factory(permissions=POLICIES[policy], files=probe.files, mounts={"/work": HostDir(project, "rw")})
    lines = [made("/work/x")]
    for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
        lines += [call("open", "/work/x", flags, 0o6755), call("openat", AT_FDCWD, "/work/x", flags, 0xFFFF_FFFF_FFFF_FFFF)]
    assert min(results(probe.in_vm(vm, lines))) >= 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_new_directory_does_not_take_the_bits_from_its_mode(
    vm_factory: Factory, probe: Probe, project: Path, policy: str
) -> None:
    vm = vm_factory(permissions=POLICIES[policy], files=probe.files, mounts={"/work": HostDir(project, "rw")})
    lines = [call("mkdir", "/work/one", 0o7755), call("mkdirat", AT_FDCWD, "/work/two", 0o7755)]
    assert results(probe.in_vm(vm, lines)) == [0, 0]
    assert mode_of(project / "one") == mode_of(project / "two") == 0o1755


def test_the_kernel_itself_takes_no_such_bit_for_a_new_directory(probe: Probe, host_dir: Path) -> None:
    lines = [call("mkdir", str(host_dir / "one"), 0o7755), call("mkdirat", AT_FDCWD, str(host_dir / "two"), 0o7755)]
    assert results(probe.on_host(lines, cwd=host_dir)) == [0, 0]
    assert mode_of(host_dir / "one") == mode_of(host_dir / "two") == 0o1755


MOVES: Final[dict[str, Callable[[str, str], list[str]]]] = {
    "link": lambda old, new: [call("link", old, new)],
    "link-to-descriptor": lambda old, new: [call("open", old, os.O_RDONLY), linked(new)],
    "rename": lambda old, new: [call("rename", old, new)],
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("policy", ["default", "judged"])
def test_a_set_id_file_of_another_mount_cannot_be_moved_in(
    vm_factory: Factory, probe: Probe, project: Path, tmp_path: Path, policy: str, move: str
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy("/bin/true", tools / "tool")
    (tools / "tool").chmod(0o6755)
    mounts = {"/work": HostDir(project, "rw"), "/tools": HostDir(tools)}
    vm = vm_factory(permissions=POLICIES[policy], files=probe.files, mounts=mounts)
    answers = results(probe.in_vm(vm, MOVES[move]("/tools/tool", "/work/tool")))
    assert answers[-1] in (-EXDEV, -EACCES)  # the second where the policy is asked first: the other mount is read-only
    assert list(project.iterdir()) == []


PROGRAMS: Final = {
    "chmod": "cp /bin/true /work/x && chmod u+s /work/x",
    "chmod-group": "cp /bin/true /work/x && chmod 2755 /work/x",
    "install": "install -m 4755 /bin/true /work/x",
    "copy": "cp /bin/true own && chmod 6755 own && cp -p own /work/x",
    "python": "python3 -c 'import os; os.close(os.open(\"/work/x\", os.O_CREAT | os.O_WRONLY, 0o6755))'",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_ordinary_programs_are_told_that_it_is_not_permitted(vm_factory: Factory, project: Path, program: str) -> None:
    result = vm_factory(mounts={"/work": HostDir(project, "rw")}).run(PROGRAMS[program])
    assert result.returncode != 0
    assert "not permitted" in result.stderr
    assert set_ids_in(project) == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_a_mount_the_same_programs_work(vm_factory: Factory, program: str) -> None:
    vm = vm_factory(files={"/work/kept": b""})
    result = vm.run(PROGRAMS[program])
    assert (result.returncode, result.stderr) == (0, "")
    assert tree_of(vm, "/work/x")["/work/x"].mode & SETID
