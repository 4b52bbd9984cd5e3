"""Random system calls with hostile arguments against supervisors built with sanitizers: they survive, answer, keep nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from callgate import HostDir
from callgate.scopes.errors import CallgateError
from tests.built_once import BuiltOnce
from tests.escapes.held import KEPT_BY_WORKERS
from tests.escapes.races.damaged import damaged_sources
from tests.fuzz.sanitized import Sanitized, SanitizerReport
from tests.fuzz.targets import NATIVE
from tests.vm_fixtures import PROGRAMS

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

FUZZER = "/opt/fuzz_calls"
CHILDREN = 4
# Every access to memory is much dearer for the thread sanitizer.
CALLS = [
    pytest.param({"address,undefined": 20_000, "thread": 10_000}, id="short"),
    pytest.param({"address,undefined": 1_000_000, "thread": 100_000}, id="a-million", marks=pytest.mark.slow),
]
WORKERS = 128  # CG_WORKERS_MAX: calls that a supervisor handles at once
SETTLE_SECONDS = 10.0

PERMISSIONS: dict[str, object] = {
    "fs": {
        "default": "allow",
        "rules": [
            {"mode": "deny", "operations": ["*"], "paths": ["/w/denied/**", "/w/dir/*/denied"]},
            {"mode": "deny", "operations": ["chmod", "rename"], "paths": ["/w/b"]},
            # What later programs of this VM need is not to be taken from them.
            {"mode": "deny", "operations": ["chmod", "rename", "rm", "write"], "paths": ["/", "/*", "/home/**", "/opt/**"]},
            {"mode": "allow", "operations": ["read", "stat"], "paths": ["/w/denied/a"]},
        ],
    },
    # Nothing that leaves the VM: a mutated address could be anybody's.
    "network": {
        "default": "deny",
        "rules": [
            {"mode": "allow", "operations": ["*"], "patterns": ["127.*", "0.0.0.0", "[::*]", "localhost"]},
            {"mode": "deny", "operations": ["*"], "patterns": ["tcp://127.0.0.1:80"]},
        ],
    },
    "process": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["ptrace", "process_vm_*"]}]},
    "childProcess": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["/w/b"]}]},
}


def tree_hash(top: Path) -> str:
    """Of every name, mode, owner, time and content at and below *top*."""
    digest = hashlib.sha256()
    for path in sorted([top, *top.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        digest.update(repr((str(path), status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns, content)).encode())
    return digest.hexdigest()


@pytest.fixture
def host_tree(tmp_path: Path) -> Path:
    """Files of the host that anybody could change who reached them."""
    top = tmp_path / "host"
    (top / "dir").mkdir(parents=True)
    for name in ("a", "b", "dir/a"):
        (top / name).write_text("untouched")
        (top / name).chmod(0o666)
    (top / "link").symlink_to("dir")
    for folder in (top, top / "dir"):
        folder.chmod(0o777)
    return top


class Held(NamedTuple):
    """What a supervisor holds on to."""

    descriptors: int
    threads: int

    @classmethod
    def by(cls, pid: int) -> Held:
        threads = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Threads:"))
        # Not readable for anybody but root: the number of descriptors is in the size of the directory (Linux 6.2).
        return cls(os.stat(f"/proc/{pid}/fd").st_size, int(threads.split()[1]))


def settled(pid: int, descriptors: int) -> Held:
    """What it holds once the number of descriptors is no higher than that, or after a while."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (held := Held.by(pid)).descriptors > descriptors and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


def fuzz(vm: VM, calls: int, *names: str) -> int:
    """Have that many calls made; how many it were."""
    result = vm.run([FUZZER, "1", str(calls), str(CHILDREN), *names], timeout=120 + calls / 500)
    assert (result.returncode, result.stderr) == (0, "")
    made, _deaths, _hangs = map(int, result.stdout.split())
    return made


@pytest.fixture(scope="session")
def fuzzer(compile_c: Callable[..., Path]) -> bytes:
    return compile_c(PROGRAMS / "fuzz_calls.c", flags=(f"-I{NATIVE}",)).read_bytes()


@pytest.fixture
def in_place(sanitized: Sanitized) -> Iterator[Sanitized]:
    with sanitized.in_place():
        yield sanitized


@pytest.mark.parametrize("calls_by_kind", CALLS)
def test_no_call_breaks_the_supervisor(
    in_place: Sanitized,
    vm_factory: Callable[..., VM],
    fuzzer: bytes,
    host_tree: Path,
    tmp_path: Path,
    calls_by_kind: dict[str, int],
) -> None:
    calls = calls_by_kind[in_place.kind]
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "a").write_text("still here")
    before = tree_hash(host_tree), tree_hash(canary)
    vm = vm_factory(permissions=PERMISSIONS, files={FUZZER: fuzzer, "/w/file": b""}, mounts={"/w/ro": HostDir(canary)})
    supervisor = vm.status().supervisor_pid
    assert vm.run(["/bin/true"]).returncode == 0
    idle, notified = Held.by(supervisor), vm.status().calls_notified
    detours = [f"/proc/self/root{host_tree}", f"/proc/1/root{host_tree}", f"/w/ro/../../..{host_tree}"]

    assert fuzz(vm, calls, str(host_tree), *detours, "/w/ro/a", FUZZER) >= calls

    status = vm.status()
    assert status.calls_notified - notified > calls // 2  # most of them did reach the supervisor
    assert status.programs_running == 0
    assert status.denials + status.denials_dropped > 0
    held = settled(supervisor, idle.descriptors + KEPT_BY_WORKERS)
    assert held.descriptors <= idle.descriptors + KEPT_BY_WORKERS
    assert held.threads <= idle.threads + WORKERS
    assert vm.run(["/bin/echo", "alive"]).stdout == "alive\n"
    assert (tree_hash(host_tree), tree_hash(canary)) == before


# Mistakes as they are made, and the sanitizers that must notice.
DAMAGES = {
    "address,undefined": ("memory.c", "if (chunk > size - done) chunk = size - done;", ""),
    "thread": ("notify.c", "atomic_fetch_add(&vm->notified, 1);", "{ static uint64_t count; count++; vm->notified = count; }"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_mistake_in_the_supervisor_is_found(
    vm_factory: Callable[..., VM], fuzzer: bytes, built_once: BuiltOnce, tmp_path: Path, kind: str
) -> None:
    name, sound, mistake = DAMAGES[kind]
    shutil.copytree(built_once(kind, partial(Sanitized.build, kind)) / "objects", tmp_path / "objects")
    Sanitized.build(kind, tmp_path, damaged_sources(tmp_path, {name: (sound, mistake)}))
    reports = tmp_path / "reports"
    reports.mkdir()

    def fuzz_damaged() -> None:
        with Sanitized(tmp_path, reports).in_place(), suppress(CallgateError, AssertionError):  # it may be gone in the middle
            fuzz(vm_factory(permissions=PERMISSIONS, files={FUZZER: fuzzer, "/w/file": b""}), 50_000)

    with pytest.raises(SanitizerReport):
        fuzz_damaged()
