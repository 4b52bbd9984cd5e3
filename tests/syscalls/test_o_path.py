"""O_PATH: a descriptor that may be read stands in for one that cannot be handed over, and only where reading is allowed."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES, EBADF, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.syscalls.comparison import AT, EMPTY_PATH, LONG_NAME, Case, Fd, FdPath, Out, case, refusals
from tests.syscalls.conftest import Answers
from tests.vm_fixtures import AT_FDCWD, Earlier, Probe, Raw, call, deny, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

PATH, DIRECTORY, NOFOLLOW, CLOEXEC = os.O_PATH, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_CLOEXEC

#: Cases whose last step does not show the descriptor itself, whose flags differ.
USING: dict[str, Case] = {
    "fstat of a file": case(("open", "file", PATH), ("fstat", Fd(0), Out(144)), judged_as=""),
    "fstat of a directory": case(("open", "dir", PATH | DIRECTORY), ("fstat", Fd(0), Out(144))),
    "as a base": case(("open", "dir", PATH), ("openat", Fd(0), "inner", os.O_RDONLY)),
    "as a base for stat": case(("open", "dir", PATH), ("newfstatat", Fd(0), "inner", Out(144), 0)),
    "by an empty path": case(("open", "file", PATH), ("newfstatat", Fd(0), "", Out(144), EMPTY_PATH)),
    "fchdir": case(("open", "dir", PATH), ("fchdir", Fd(0)), ("stat", "inner", Out(144))),
    "opened again": case(("open", "file", PATH), ("open", FdPath(0), os.O_RDONLY)),
    "opened again for writing": case(("open", "file", PATH), ("open", FdPath(0), os.O_WRONLY)),
    "its path": case(("open", "file", PATH), ("readlink", FdPath(0), Out(200), 200)),
}
FAILING: dict[str, Case] = {
    "nothing": case(("open", "absent", PATH), judged_as="stat"),
    "a dangling link": case(("open", "dangling", PATH), judged_as="stat"),
    "a loop": case(("open", "loop", PATH)),
    "a file as a directory": case(("open", "file", PATH | DIRECTORY), judged_as="stat"),
    "below a file": case(("open", "file/x", PATH)),
    "a name too long": case(("open", LONG_NAME, PATH)),
    "where nothing may be searched": case(("open", "closed/hidden", PATH)),
    "in a bad descriptor": case(("openat", 77, "file", PATH)),
    "creating is ignored": case(("open", "absent", PATH | os.O_CREAT, 0o600)),
    "truncating is ignored": case(("open", "file", PATH | os.O_TRUNC | os.O_RDWR), ("stat", "file", Out(144))),
}
REFUSED: dict[str, Case] = {
    "a file": case(("openat", AT, "file", PATH), judged_as="stat"),
    "a directory": case(("openat", AT, "dir", PATH | DIRECTORY), judged_as="stat"),
    "a link": case(("openat", AT, "link", PATH | NOFOLLOW), judged_as="stat"),
    "a file through a link": case(("openat", AT, "link", PATH), judged_as="stat"),
    "a closed directory": case(("openat", AT, "closed", PATH | CLOEXEC), judged_as="stat"),
}
CASES = USING | FAILING


def without_flags(answer: object) -> object:
    """The answer without what O_PATH itself makes of F_GETFL and reading."""
    if isinstance(answer, dict):
        return {key: without_flags(value) for key, value in answer.items() if key not in ("flags", "content")}
    return [without_flags(one) for one in answer] if isinstance(answer, list) else answer


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert without_flags(answers.vm) == without_flags(answers.host)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_where_stat_is(name: str) -> None:
    assert refusals({name: REFUSED[name]}, "stat") == {name: "EACCES"}


def test_it_is_refused_where_stat_is_whether_or_not_there_is_something() -> None:
    assert set(refusals(FAILING, "stat").values()) == {"EACCES"}


AGAIN = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
SECRET = {"/w/secret": b"secret"}


def again(flags: int) -> list[str]:
    """An O_PATH descriptor, the same file opened by it, and reading from it."""
    return [
        call("openat", AT_FDCWD, "/w/secret", PATH),
        call("openat", AT_FDCWD, "/proc/self/fd/3", flags),
        call("read", Earlier(0), Raw(bytes(6)), 6),
    ]


@pytest.mark.parametrize("flags", AGAIN, ids=["read", "write", "both"])
def test_it_cannot_be_opened_again_for_what_is_denied(vm_factory: Callable[..., VM], probe: Probe, flags: int) -> None:
    vm = vm_factory(permissions=deny("/w/secret", operations=["read", "write"]), files=probe.files | SECRET)
    assert results(probe.in_vm(vm, again(flags))) == [3, -EACCES, -EBADF]


@pytest.mark.parametrize("flags", AGAIN, ids=["read", "write", "both"])
def test_without_the_right_to_read_there_is_no_stand_in(vm_factory: Callable[..., VM], probe: Probe, flags: int) -> None:
    rules = [
        {"mode": "deny", "operations": ["read", "write"], "paths": ["/w/secret"]},
        {"mode": "deny", "operations": ["stat"], "paths": ["/elsewhere"]},
    ]
    vm = vm_factory(permissions={"fs": {"default": "allow", "rules": rules}}, files=probe.files | SECRET)
    assert results(probe.in_vm(vm, again(flags))) == [-EACCES, -ENOENT, -EBADF]


ON_OPEN_FILES = [
    call("fchmod", 3, 0o600),
    call("fchown", 3, 0xFFFF_FFFF, 0xFFFF_FFFF),
    call("ftruncate", 3, 0),
    call("fsetxattr", 3, "user.x", Raw(b"v"), 1, 0),
    call("fgetxattr", 3, "user.x", 0, 0),
    call("flistxattr", 3, 0, 0),
    call("fremovexattr", 3, "user.x"),
    call("utimensat", 3, 0, 0, 0),
    call("futimesat", 3, 0, 0),
    call("read", 3, Raw(bytes(6)), 6),
]


def test_it_is_no_open_file_to_calls_that_want_one(vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> None:
    """Under a policy that leaves O_PATH to the kernel, because it has nothing to say about stat."""
    (host_dir / "secret").write_bytes(b"secret")
    on_host = probe.on_host([call("openat", AT_FDCWD, str(host_dir / "secret"), PATH), *ON_OPEN_FILES], cwd=host_dir)
    assert results(on_host) == [3] + [-EBADF] * len(ON_OPEN_FILES)
    vm = vm_factory(permissions=deny("/elsewhere", operations=["read", "write", "chmod", "truncate"]), files=probe.files | SECRET)
    assert results(probe.in_vm(vm, [call("openat", AT_FDCWD, "/w/secret", PATH), *ON_OPEN_FILES])) == results(on_host)
