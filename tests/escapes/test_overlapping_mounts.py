"""Directories of the host that are in a VM twice, or one inside the other: what has left its mount is nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from errno import EACCES, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import HostDir
from tests.contracts.host_processes import until
from tests.escapes.races.damaged import Mistakes
from tests.vm_fixtures import ORDINARY_USER, Probe, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R, W, CREAT = os.O_RDONLY, os.O_WRONLY, os.O_CREAT
SECRET = b"the secret of the tree"
NO_ENV = deny("/wide/**/.env", "/inner/**/.env")  # under both of its names


@pytest.fixture
def tree(host_dir: Path) -> Path:
    """A directory of the host; sub/d in it holds a secret and a plain file."""
    top = host_dir / "tree"
    (top / "sub/d").mkdir(parents=True)
    (top / "sub/d/.env").write_bytes(SECRET)
    (top / "sub/d/plain").write_bytes(b"plain")
    if os.geteuid() == 0:
        for path in (top, *top.rglob("*")):
            os.chown(path, ORDINARY_USER, ORDINARY_USER)
    return top


def both(tree: Path) -> dict[str, HostDir]:
    """The tree, and a directory in it, both writable."""
    return {"/wide": HostDir(tree, mode="rw"), "/inner": HostDir(tree / "sub", mode="rw")}


def leave(*after: str) -> list[str]:
    """Go into a directory by the narrow mount, move it out of there by the wide one, and then do what is asked."""
    return [
        call("open", "/inner/d", R | os.O_DIRECTORY),
        call("chdir", "/inner/d"),
        call("open", ".env", R),
        call("rename", "/wide/sub/d", "/wide/d"),
        *after,
    ]


AFTER = [
    call("open", ".env", R),
    call("open", "./.env", R),
    call("openat", 3, ".env", R),
    call("openat", 3, "../d/.env", R),
    call("open", "/proc/self/cwd/.env", R),
    call("open", "/proc/self/fd/3/.env", R),
    call("stat", ".env", 0),
    call("truncate", ".env", 0),
    call("chmod", ".env", 0o777),
    call("unlink", ".env"),
    call("link", ".env", "/wide/alias"),
    call("rename", ".env", "new"),
    call("open", "new", W | CREAT, 0o600),
    call("mkdir", "new", 0o755),
    call("symlink", "plain", "new"),
]


def test_a_directory_that_has_left_its_mount_is_nowhere(vm_factory: Callable[..., VM], probe: Probe, tree: Path) -> None:
    vm = vm_factory(permissions=NO_ENV, mounts=both(tree), files=probe.files)
    answers = results(probe.in_vm(vm, leave(*AFTER)))
    assert answers[:4] == [3, 0, -EACCES, 0]
    assert set(answers[4:]) <= {-EACCES, -ENOENT}
    assert sorted(os.listdir(tree / "d")) == [".env", "plain"]
    assert (tree / "d/.env").read_bytes() == SECRET
    assert sorted(os.listdir(tree)) == ["d", "sub"]
    assert results(probe.in_vm(vm, [call("open", "/wide/d/.env", R), call("open", "/wide/d/plain", R)])) == [-EACCES, 3]


def test_where_nothing_is_judged_the_kernel_does_read_there(vm_factory: Callable[..., VM], probe: Probe, tree: Path) -> None:
    """The control: the directory is still open to who is in it."""
    vm = vm_factory(mounts=both(tree), files=probe.files)
    assert results(probe.in_vm(vm, leave(call("open", ".env", R)))) == [3, 0, 4, 0, 5]


def test_a_supervisor_that_takes_it_for_the_root_is_found_out(
    vm_factory: Callable[..., VM], probe: Probe, tree: Path, damaged: Callable[[Mistakes], AbstractContextManager[None]]
) -> None:
    """The kernel calls it "/" as well: judged as that, the secret is read."""
    with damaged({"resolve.c": (" && (n > 1 || is_root(root, fd))", "")}):
        vm = vm_factory(permissions=NO_ENV, mounts=both(tree), files=probe.files)
        assert results(probe.in_vm(vm, leave(call("open", ".env", R)))) == [3, 0, -EACCES, 0, 4]


WAITING = """
import os, time
os.chdir("/inner/d")
open("/inner/there", "w").close()
while not os.path.exists("/inner/go"): time.sleep(0.01)
for name in (".env", "plain"):
    try: print(open(name).read())
    except OSError as error: print(error.errno)
"""


def test_nor_does_it_lead_anywhere_once_the_host_has_moved_it_away(
    vm_factory: Callable[..., VM], tree: Path, host_dir: Path
) -> None:
    vm = vm_factory(permissions=NO_ENV, mounts={"/inner": HostDir(tree / "sub", mode="rw")})

    def move_away() -> None:
        assert until(lambda: (tree / "sub/there").exists())
        (tree / "sub/d").rename(host_dir / "elsewhere")
        (tree / "sub/go").touch()

    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(move_away)
        result = vm.run(["python3", "-c", WAITING], timeout=60)
        moved.result()
    assert (result.stdout.split(), result.stderr) == ([str(ENOENT)] * 2, "")


STORM = """
import os, threading
stop = threading.Event()
def storm():
    while not stop.is_set():
        os.rename("/wide/sub/d", "/wide/d")
        os.rename("/wide/d", "/wide/sub/d")
thread = threading.Thread(target=storm)
thread.start()
seen = set()
for _ in range(ROUNDS):
    for path in ("/inner/d/.env", "/inner/d/plain", "/inner/../inner/d/./.env"):
        try:
            with open(path) as file: seen.add(file.read())
        except OSError as error: seen.add(error.errno)
stop.set(); thread.join()
print(*sorted(map(str, seen)), sep="\\n")
"""


@pytest.mark.parametrize("rounds", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_race_of_opening_and_leaving_is_not_won(vm_factory: Callable[..., VM], tree: Path, rounds: int) -> None:
    program = STORM.replace("ROUNDS", str(rounds))
    vm = vm_factory(permissions=NO_ENV, mounts=both(tree))
    result = vm.run(["python3", "-c", program], timeout=600)
    assert (set(result.stdout.split("\n")) - {""}, result.stderr) == ({"plain", str(EACCES), str(ENOENT)}, "")


@pytest.fixture
def nested(vm_factory: Callable[..., VM], probe: Probe, tree: Path) -> VM:
    return vm_factory(permissions=judged_but_allowed(), mounts=both(tree), files=probe.files)


def test_what_stays_in_its_mount_is_used_as_ever(nested: VM, probe: Probe) -> None:
    lines = [
        call("chdir", "/inner/d"),
        call("open", ".env", R),
        call("open", "new", W | CREAT, 0o600),
        call("rename", "new", "../new"),
        call("open", "../new", R),
        call("unlink", "/wide/sub/new"),
        call("open", "/proc/self/fd/5", R),
        call("open", "plain", R),
    ]
    assert results(probe.in_vm(nested, lines)) == [0, 3, 4, 0, 5, 0, 6, 7]


@pytest.mark.parametrize("denied", ["/wide/sub/d/**", "/inner/d/**"])
def test_each_of_two_names_is_judged_by_itself_and_nothing_moves_between_them(
    vm_factory: Callable[..., VM], probe: Probe, tree: Path, denied: str
) -> None:
    """What is denied by one name only is open by the other: rules are on paths. Neither moves what is denied by the other."""
    other = "/inner/d" if denied.startswith("/wide") else "/wide/sub/d"
    name = denied.removesuffix("/**")
    vm = vm_factory(permissions=deny(denied), mounts=both(tree), files=probe.files)
    lines = [
        call("open", f"{name}/plain", R),
        call("open", f"{other}/plain", R),
        call("rename", name, f"{name}-moved"),
        call("rename", f"{other}/plain", f"{name}/moved"),
        call("link", f"{name}/plain", f"{other}/alias"),
    ]
    assert results(probe.in_vm(vm, lines)) == [-EACCES, 3, -EACCES, -EACCES, -EACCES]
    assert sorted(os.listdir(tree / "sub/d")) == [".env", "plain"]
