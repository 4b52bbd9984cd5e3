"""`fs: "deny"`: programs still start, because the runtime image is readable, and nothing else is."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import AT_FDCWD, Out, Probe, call, callgate, judged_but_allowed, messages, results, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


@pytest.fixture
def denying(vm_factory: Callable[..., VM], probe: Probe) -> VM:
    return vm_factory(permissions={"fs": "deny"}, files=probe.files)


def test_python_prints_one(denying: VM) -> None:
    result = denying.run(["python3", "-c", "print(1)"])
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n", "")


def test_python_prints_one_by_the_command_line() -> None:
    done = callgate("run", "-p", '{"fs": "deny"}', "--json", "--", "python3", "-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, "1\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["cat", "/etc/hostname"], "cat: /etc/hostname: Permission denied\n"),
        (["ls", "."], "ls: cannot access '.': Permission denied\n"),
        (["touch", "x"], "touch: cannot touch 'x': Permission denied\n"),
    ],
    ids=["cat", "ls", "touch"],
)
def test_programs_are_told_permission_denied(denying: VM, command: list[str], message: str) -> None:
    before = tree_of(denying, "/home/agentos")
    result = denying.run(command)
    assert result.returncode != 0
    assert (result.stdout, result.stderr) == ("", message)
    assert tree_of(denying, "/home/agentos") == before


@pytest.mark.parametrize("command", [["cat", "/etc/hostname"], ["ls", "."], ["touch", "x"]], ids=["cat", "ls", "touch"])
def test_the_same_programs_work_where_no_rule_refuses_them(vm_factory: Callable[..., VM], command: list[str]) -> None:
    result = vm_factory(permissions=judged_but_allowed()).run(command)
    assert (result.returncode, result.stderr, result.denials) == (0, "", ())


def test_the_errno_is_eacces_for_what_exists_and_what_does_not(denying: VM, probe: Probe) -> None:
    creating = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    lines = [
        call("openat", AT_FDCWD, "/etc/hostname", os.O_RDONLY),
        call("openat", AT_FDCWD, "/etc/absent", os.O_RDONLY),
        call("openat", AT_FDCWD, ".", os.O_RDONLY | os.O_DIRECTORY),
        call("openat", AT_FDCWD, "x", creating, 0o644),
        call("newfstatat", AT_FDCWD, "/etc/hostname", Out(144), 0),
        call("newfstatat", AT_FDCWD, "/etc/absent", Out(144), 0),
        call("mkdirat", AT_FDCWD, "/tmp", 0o755),
        call("mkdirat", AT_FDCWD, "/tmp/new", 0o755),
        call("unlinkat", AT_FDCWD, "/etc/passwd", 0),
    ]
    before = tree_of(denying, "/etc"), tree_of(denying, "/tmp")
    assert results(probe.in_vm(denying, lines)) == [-EACCES] * len(lines)
    assert (tree_of(denying, "/etc"), tree_of(denying, "/tmp")) == before


def test_refusals_name_the_mode_as_what_decided(denying: VM) -> None:
    result = denying.run(["cat", "/etc/hostname"])
    assert "EACCES: permission denied, read '/etc/hostname': blocked by fs.read policy" in messages(result)
    assert {denial.rule for denial in result.denials} == {"mode"}
