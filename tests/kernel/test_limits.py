"""Limits as they are given, which mechanism is chosen for each, and cgroups on trees that only look like the kernel's."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from callgate.kernel.confinement import cgroup as cgroups
from callgate.kernel.confinement.cgroup import Cgroup
from callgate.kernel.confinement.limit_plan import plan_limits
from callgate.kernel.confinement.limits import Limits, as_limits, checked_best_effort
from callgate.kernel.launch_blob import Limit, Watch
from callgate.scopes.errors import Unsupported

BEST_EFFORT = checked_best_effort(("cgroup",))


# -- what is given -------------------------------------------------------------------------------------------------------


def test_sizes_are_bytes_or_text_with_a_unit() -> None:
    limits = Limits(memory="2G", disk="1.5 GiB", file_size=1000, output="64kb", processes=7, cpu_seconds=2)
    assert limits.given() == {
        "memory": 2 << 30,
        "disk": 3 << 29,
        "file_size": 1000,
        "output": 64 << 10,
        "processes": 7,
        "cpu_seconds": 2.0,
    }
    assert as_limits({"memory": "1G"}) == Limits(memory=1 << 30)
    assert as_limits(None).given() == {}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("memory", -1, ValueError),
        ("memory", 0, ValueError),
        ("memory", "lots", ValueError),
        ("memory", "5X", ValueError),
        ("memory", 1.5, TypeError),
        ("memory", True, TypeError),
        ("memory", 1 << 70, ValueError),
        ("processes", 0, ValueError),
        ("processes", "7", ValueError),
        ("processes", 2.0, TypeError),
        ("open_files", 3, ValueError),
        ("file_size", 0, ValueError),
        ("disk", 1000, ValueError),
        ("memory", "15M", ValueError),
        ("output", -1, ValueError),
        ("cpu_seconds", 0, ValueError),
        ("cpu_seconds", -1.0, ValueError),
        ("cpu_seconds", float("nan"), ValueError),
        ("wall_seconds", float("inf"), ValueError),
        ("wall_seconds", "5", TypeError),
        ("wall_seconds", False, TypeError),
    ],
)
def test_what_is_no_limit_is_refused_by_name(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"limit {name}="):
        Limits(**{name: value})


def test_a_disk_leaves_memory_for_programs() -> None:
    with pytest.raises(ValueError, match=r"limit disk=.*at most 50331648"):
        Limits(memory="64M", disk="49M")
    assert plan_limits(Limits(memory="64M", disk="48M"), best_effort=BEST_EFFORT).disk_bytes == 48 << 20
    small = plan_limits(Limits(memory="64M"), best_effort=BEST_EFFORT)
    assert (small.disk_bytes, small.disk_inodes) == (32 << 20, 8192)
    assert plan_limits(Limits(memory="64G"), best_effort=BEST_EFFORT).disk_inodes == plan_limits(Limits()).disk_inodes


def test_a_mapping_of_limits_is_checked_as_well() -> None:
    with pytest.raises(ValueError, match=r"'memroy' is not a limit; there are memory, processes"):
        as_limits({"memroy": 1})
    with pytest.raises(TypeError, match="not int"):
        as_limits(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'disk'"):
        checked_best_effort(("disk",))
    with pytest.raises(TypeError, match="not one string"):
        checked_best_effort("cgroup")
    assert checked_best_effort(("cgroup",)) == {"cgroup", "memory", "cpu_seconds"}


# -- what enforces it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [Limits(memory="64M"), Limits(cpu_seconds=1)])
def test_a_limit_that_needs_a_cgroup_is_refused_where_there_is_none(limits: Limits) -> None:
    (name,) = limits.given()
    with pytest.raises(Unsupported, match=rf"limit {name}: .*best_effort=\('{name}',\)"):
        plan_limits(limits)
    other = ({"memory", "cpu_seconds"} - {name}).pop()
    with pytest.raises(Unsupported):
        plan_limits(limits, best_effort=frozenset((other,)))
    plan = plan_limits(limits, best_effort=frozenset((name,)))
    assert [text.partition(":")[0] for text in plan.degradations] == [name]


def test_every_limit_in_force_says_what_enforces_it() -> None:
    limits = Limits(
        memory=1 << 26, processes=9, cpu_seconds=1.5, wall_seconds=2, open_files=20, file_size=4096, disk=1 << 22, output=0
    )
    plan = plan_limits(limits, best_effort=BEST_EFFORT)
    assert set(plan.in_force) == set(plan.enforced_by) == {*limits.given(), "core"}
    assert {name: plan.in_force[name] for name in limits.given()} == limits.given()
    entries = {entry.resource: entry for entry in plan.entries}
    assert entries[Watch.WALL] == Limit(Watch.WALL, 2000, 0)
    assert entries[Watch.CPU] == Limit(Watch.CPU, 1500, 0)
    assert entries[Watch.MEMORY] == Limit(Watch.MEMORY, 1 << 26, 0)
    assert entries[resource.RLIMIT_CPU] == Limit(resource.RLIMIT_CPU, 3, 4)
    assert entries[resource.RLIMIT_NPROC].hard == 9 + 2  # init and the leader of a run
    assert plan.disk_bytes == 1 << 22
    assert len(plan.entries) <= 16  # CG_LIMITS_MAX


def test_a_cgroup_takes_the_place_of_what_is_less() -> None:
    plan = plan_limits(Limits(memory=1 << 26, cpu_seconds=1), cgroup=Cgroup((Path("/x"), 2), Path("/x")))
    assert plan.degradations == ()
    assert plan.enforced_by["memory"] == "a cgroup (version 2)"
    assert not {Watch.MEMORY, resource.RLIMIT_DATA} & {entry.resource for entry in plan.entries}
    with pytest.raises(Unsupported, match="limit memory"):
        plan_limits(Limits(memory=1 << 26), cgroup=Cgroup(None, Path("/x")))
    with pytest.raises(Unsupported, match="limit cpu_seconds"):
        plan_limits(Limits(cpu_seconds=1), cgroup=Cgroup((Path("/x"), 1), None))


# -- cgroups, on trees made by hand --------------------------------------------------------------------------------------


class Tree:
    """A folder that stands for a hierarchy; directories made in it get the files that the kernel would put there."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch, own: str, version: int = 2) -> None:
        self.top, self.own, self.version = top, top / own, version
        self._proc = top.parent / "proc"
        (self._proc / "self").mkdir(parents=True)
        membership = f"0::/{own}" if version == 2 else f"4:memory:/{own}"
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
        (self._proc / "self" / "cgroup").write_text(f"9:name=systemd:/\n{membership}\n")
        (self._proc / "self" / "mountinfo").write_text(f"20 1 0:1 / /proc rw - proc proc rw\n30 1 0:2 / {top} rw - {kind}\n")
        monkeypatch.setattr(cgroups, "_PROC", self._proc)
        real_mkdir = Path.mkdir

        def mkdir(path: Path, *args: Any, **kwargs: Any) -> None:
            real_mkdir(path, *args, **kwargs)
            if path.is_relative_to(top):
                self._populate(path)

        monkeypatch.setattr(Path, "mkdir", mkdir)
        self.own.mkdir(parents=True)
        for path in (self.own, *self.own.parents):
            if path.is_relative_to(top):
                self._populate(path)

    def _populate(self, path: Path) -> None:
        names = ["cgroup.procs"]
        if self.version == 2:
            names += ["cgroup.controllers", "cgroup.subtree_control", "cpu.stat"]
            if "memory" in (path.parent / "cgroup.subtree_control").read_text() if path != self.top else True:
                names += ["memory.max", "memory.swap.max", "memory.events"]
        else:
            limits = ("memory.kmem.tcp.limit_in_bytes", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
            names += [*limits, "memory.oom_control"]
        for name in names:
            (path / name).touch()

    def enable(self, path: Path, *, children: bool = True) -> None:
        """The memory controller is there, and with *children* for what is below as well."""
        (path / "cgroup.controllers").write_text("cpu memory pids")
        if children:
            (path / "cgroup.subtree_control").write_text("memory pids")

    def made(self) -> list[Path]:
        """The cgroups of VMs."""
        return sorted(path for path in self.top.rglob("callgate-*") if path.is_dir())


def empty(path: Path) -> None:
    """What rmdir(2) does to a cgroup that the kernel made: its files go with it."""
    for file in path.iterdir():
        file.unlink()


def test_version_2_is_taken_where_its_memory_controller_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path / "v2", monkeypatch, "user/session")
    tree.enable(tree.own.parent)
    tree.enable(tree.own, children=False)
    (tree.own / "cgroup.subtree_control").chmod(0o444)
    places = cgroups.memory_places()
    assert tree.own.parent in [place.path for place in places]
    (tree.own / "cgroup.procs").write_text("1\n2\n")
    made = Cgroup.make(memory_bytes=1 << 26, cpu=True)
    assert made is not None
    assert (made.memory_version, made.bounds_memory, made.has_cpu_clock) == (2, True, True)
    (path,) = tree.made()
    assert (path / "memory.max").read_text() == str(1 << 26)
    assert (path / "memory.swap.max").read_text() == "0"
    made.add(4242)
    assert (path / "cgroup.procs").read_text() == "4242"
    (path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert made.oom_kills() == 2
    empty(path)
    made.remove()
    assert tree.made() == []


def test_version_1_is_taken_as_root_where_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path / "v1", monkeypatch, "session", version=1)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Cgroup.make(memory_bytes=1 << 26, cpu=False) is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = Cgroup.make(memory_bytes=1 << 26, cpu=False)
    assert made is not None
    (path,) = tree.made()
    assert path.parent == tree.own
    assert (path / "memory.limit_in_bytes").read_text() == (path / "memory.memsw.limit_in_bytes").read_text() == str(1 << 26)
    assert (path / "memory.kmem.tcp.limit_in_bytes").read_text() == str((1 << 26) // cgroups.SOCKET_SHARE)
    (path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert (made.memory_version, made.oom_kills()) == (1, 1)


def test_a_memory_controller_that_cannot_be_bounded_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path / "v2", monkeypatch, "session")
    tree.enable(tree.own)
    monkeypatch.setattr(cgroups, "_bound", lambda *_: False)

    def remove(path: Path) -> None:
        empty(path)
        path.rmdir()

    monkeypatch.setattr(cgroups, "_remove", remove)
    made = Cgroup.make(memory_bytes=1 << 26, cpu=False)
    assert made is None
    assert tree.made() == []


def test_an_only_process_of_a_delegated_cgroup_makes_room_for_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path / "v2", monkeypatch, "user")
    tree.enable(tree.own, children=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    attempts: list[Path] = []
    real = cgroups._write

    def write(path: Path, text: str) -> int:
        if path.name == "cgroup.subtree_control":
            attempts.append(path)
            if len(attempts) == 1:
                return 16  # EBUSY: it holds a process of its own
        return real(path, text)

    monkeypatch.setattr(cgroups, "_write", write)
    (tree.own / "cgroup.procs").write_text(f"{os.getpid()}\n{os.getpid() + 1}\n")
    assert tree.own not in [place.path for place in cgroups.memory_places()], "somebody else's process is not moved"
    attempts.clear()
    (tree.own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert tree.own in [place.path for place in cgroups.memory_places()]
    assert (tree.own / "callgate-host" / "cgroup.procs").read_text() == str(os.getpid())


def test_cgroups_of_hosts_that_were_killed_are_removed_by_the_next(tmp_path: Path) -> None:
    names = ["callgate-0123456789abcdef", "callgate-fedcba9876543210", "callgate-00000000000000aa", "callgate-host", "other"]
    forgotten, in_use, new, host, foreign = (tmp_path / name for name in names)
    for path in (forgotten, in_use, new, host, foreign):
        path.mkdir()
        if path != new:
            os.utime(path, (1, 1))
    (in_use / "cgroup.procs").touch()  # what stands for its being busy
    os.utime(in_use, (1, 1))
    cgroups._remove_forgotten(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([in_use, new, host, foreign])
