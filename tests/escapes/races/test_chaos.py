"""Many threads move, exchange, link and read at once, at random: nothing that may not be read is ever read.

What the threads would find if the supervisor made a mistake is shown by supervisors that do make it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from callgate import HostDir
from tests.escapes.races.damaged import Mistakes
from tests.vm_fixtures import ORDINARY_USER, PROGRAMS, deny, judged_but_allowed

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

CHAOS: Final = "/opt/chaos"
SECRET, PUBLIC = b"SECRET content", b"public"
THREADS: Final = 8
LENGTHS: Final = [pytest.param(2, id="short"), pytest.param(30, id="long", marks=pytest.mark.slow)]


def rules(*of: tuple[str, list[str], list[str]]) -> dict[str, object]:
    found = [{"mode": mode, "operations": operations, "paths": paths} for mode, operations, paths in of]
    return {"fs": {"default": "allow", "rules": found}}


#: What is denied, and where the secrets are at first.
POLICIES: Final[dict[str, tuple[dict[str, object], list[str]]]] = {
    "a subtree": (deny("/w/v/**"), ["v/a", "v/b/s", "v/c/d/a"]),
    "reading a subtree": (deny("/w/v/**", operations=["read"]), ["v/a", "v/b/s", "v/c/d/a"]),
    "a name anywhere": (deny("/w/**/s", operations=["read"]), ["s", "a/s", "a/b/s", "v/s", "c/d/s"]),
    "what is below a name anywhere": (deny("/w/**/s/**", operations=["read"]), ["a/s/a", "s/b/c", "v/c/s/d"]),
    "a name in the middle": (deny("/w/*/s", "/w/*/*/v/**", operations=["read"]), ["a/s", "b/s", "a/b/v/c"]),
    "one file": (deny("/w/a/s", operations=["read"]), ["a/s"]),
    "all but a part": (
        rules(("deny", ["read"], ["/w/**"]), ("allow", ["read"], ["/w/b/**"]), ("deny", ["*"], ["/w/b/v/**"])),
        ["a/s", "v/a", "b/v/s"],
    ),
    "by turns": (
        rules(
            ("deny", ["read", "write"], ["/w/v/**"]),
            ("allow", ["*"], ["/w/v/a/**"]),
            ("deny", ["read"], ["/w/v/a/s"]),
            ("allow", ["read"], ["/w/v/c/?"]),
        ),
        ["v/s", "v/a/s", "v/b/a", "v/c/d/a"],
    ),
}
PUBLIC_PLACES: Final = ["a/a", "a/b/a", "b/a", "b/c/d", "c/a", "d/a", "l"]


class Tally(NamedTuple):
    calls: int
    reads: int
    secrets: int


@pytest.fixture(scope="module")
def program(compile_c: Callable[..., Path]) -> bytes:
    return compile_c(PROGRAMS / "chaos.c").read_bytes()


def files_in(top: str, secrets: list[str]) -> dict[str, bytes | str]:
    files: dict[str, bytes | str] = {f"{top}/{name}": PUBLIC for name in PUBLIC_PLACES if name not in secrets}
    return files | {f"{top}/{name}": SECRET for name in secrets}


def let_loose(vm: VM, seconds: int, seed: int, *tops: str) -> Tally:
    result = vm.run([CHAOS, str(seconds), str(THREADS), str(seed), *tops], cwd=tops[0], timeout=seconds + 60)
    assert (result.returncode, result.stderr) == (0, "")
    return Tally(*map(int, result.stdout.split()))


@pytest.mark.parametrize("seconds", LENGTHS)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_may_not_be_read_is_not_read(vm_factory: Callable[..., VM], program: bytes, policy: str, seconds: int) -> None:
    permissions, secrets = POLICIES[policy]
    vm = vm_factory(permissions=permissions, files=files_in("/w", secrets) | {CHAOS: program})
    tally = let_loose(vm, seconds, seconds, "/w")
    assert tally.secrets == 0
    assert tally.reads > 0
    assert tally.calls > 100
    assert vm.run(["echo", "alive"], cwd="/").stdout == "alive\n"


@pytest.mark.parametrize("policy", POLICIES)
def test_where_it_may_be_read_it_is(vm_factory: Callable[..., VM], program: bytes, policy: str) -> None:
    vm = vm_factory(permissions=judged_but_allowed(), files=files_in("/w", POLICIES[policy][1]) | {CHAOS: program})
    assert let_loose(vm, 1, 1, "/w").secrets > 0


# -- a directory of the host, shown twice ------------------------------------------------------------------------------


def shown_twice(vm_factory: Callable[..., VM], program: bytes, host_dir: Path, permissions: dict[str, object]) -> VM:
    secrets = ["a/s", "a/b/s", "a/c/d/s"]
    for name, content in files_in(str(host_dir), secrets).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    if os.geteuid() == 0:
        for path in host_dir.rglob("*"):
            os.chown(path, ORDINARY_USER, ORDINARY_USER)
    mounts = {"/m": HostDir(host_dir, mode="rw"), "/n": HostDir(host_dir / "a", mode="rw")}
    return vm_factory(permissions=permissions, mounts=mounts, files={CHAOS: program})


UNDER_BOTH_NAMES: Final = deny("/m/**/s", "/n/**/s", operations=["read"])


@pytest.mark.parametrize("seconds", LENGTHS)
def test_nor_by_another_name_of_the_same_directory(
    vm_factory: Callable[..., VM], program: bytes, host_dir: Path, seconds: int
) -> None:
    tally = let_loose(shown_twice(vm_factory, program, host_dir, UNDER_BOTH_NAMES), seconds, 3, "/m", "/n")
    assert tally.secrets == 0
    assert tally.reads > 0


# -- mistakes ------------------------------------------------------------------------------------------------------------

#: Each with a policy under which it tells.
MISTAKES: Final = {
    "no look at what a new name gives": (
        "a name anywhere",
        {"calls_names.c": ("if (call->unchecked) return false;", "return false;")},
    ),
    "only the object itself is looked at": (
        "what is below a name anywhere",
        {
            "calls_names.c": (
                "const int directory = fstat(from->object, &st) != 0 || S_ISDIR(st.st_mode);",
                "(void)st; const int directory = 0;",
            )
        },
    ),
    "links are followed where the text of the path was judged": (
        "a name anywhere",
        {
            "resolve.c": (
                "RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS);",
                "RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);",
            )
        },
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_supervisor_that_makes_a_mistake_is_found_out(
    vm_factory: Callable[..., VM], program: bytes, damaged: Callable[[Mistakes], AbstractContextManager[None]], mistake: str
) -> None:
    policy, change = MISTAKES[mistake]
    permissions, secrets = POLICIES[policy]
    with damaged(change):
        found = 0
        for seed in range(10):
            vm = vm_factory(permissions=permissions, files=files_in("/w", secrets) | {CHAOS: program})
            found += let_loose(vm, 2, seed, "/w").secrets
            if found:
                break
    assert found
