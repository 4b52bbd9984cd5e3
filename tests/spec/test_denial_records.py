"""Every refusal is a record that a guest can neither suppress nor forge (SPEC 4)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import PermissionDenied
from tests.vm_fixtures import AT_FDCWD, Out, Probe, call, callgate, deny, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R = os.O_RDONLY


def test_a_record_says_all_there_is_to_say(vm_factory: Callable[..., VM], probe: Probe) -> None:
    rules = [{"mode": "deny", "paths": ["/w/a"]}, {"mode": "deny", "paths": ["/w/b/**"]}]
    vm = vm_factory(permissions={"fs": {"default": "allow", "rules": rules}}, files=probe.files | {"/w/a": b"", "/w/b/c": b""})
    before = time.time()
    lines = [call("getpid"), call("chdir", "/w"), call("open", "../w/./b/c", R)]
    answers = probe.in_vm(vm, lines)
    (denial,) = vm.denials
    assert (denial.scope, denial.operation, denial.subject, denial.requested) == ("fs", "read", "/w/b/c", "/w/../w/./b/c")
    assert (denial.rule, denial.pid, denial.program) == (1, answers[0].result, Probe.PATH)
    assert denial.message == "EACCES: permission denied, read '/w/../w/./b/c': blocked by fs.read policy"
    assert before - 1 < denial.time < time.time() + 1
    assert str(denial) == denial.message


@pytest.mark.parametrize(
    ("permissions", "rule"),
    [({"fs": "deny"}, "mode"), ({"fs": {"rules": []}}, "default"), (deny("/w/**"), 0)],
    ids=["mode", "default", "index"],
)
def test_what_decided_is_named(vm_factory: Callable[..., VM], probe: Probe, permissions: dict[str, object], rule: object) -> None:
    vm = vm_factory(permissions=permissions, files=probe.files)
    assert results(probe.in_vm(vm, [call("open", "/w/x", R)])) == [-EACCES]
    assert [denial.rule for denial in vm.denials] == [rule]


OPERATIONS = {
    "read": call("open", "/w/f", R),
    "write": call("open", "/w/f", os.O_WRONLY),
    "stat": call("stat", "/w/f", Out(144)),
    "readdir": call("open", "/w/d", R | os.O_DIRECTORY),
    "create_dir": call("mkdir", "/w/new", 0o755),
    "rm": call("unlink", "/w/f"),
    "rename": call("rename", "/w/f", "/w/g"),
    "symlink": call("symlink", "x", "/w/new"),
    "readlink": call("readlink", "/w/f", Out(10), 10),
    "chmod": call("chmod", "/w/f", 0o600),
    "truncate": call("truncate", "/w/f", 0),
    "mount_sensitive": call("mount", "/etc", "/w/d", "none", 4096, 0),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_is_refused_by_its_own_name_and_by_no_other(
    vm_factory: Callable[..., VM], probe: Probe, operation: str
) -> None:
    files = probe.files | {"/w/f": b"content", "/w/d/f": b""}
    vm = vm_factory(permissions=deny("/w/**", operations=[operation]), files=files)
    answers = dict(zip(OPERATIONS, results(probe.in_vm(vm, list(OPERATIONS.values()))), strict=True))
    assert answers[operation] == -EACCES
    assert {denial.operation for denial in vm.denials} == {operation}
    # Others may be refused too, but only because the kernel would: a mount by anybody, a readlink of what is no link.
    assert {name for name, answer in answers.items() if answer == -EACCES} == {operation}


def test_a_call_that_needs_two_operations_is_refused_for_want_of_either(vm_factory: Callable[..., VM], probe: Probe) -> None:
    for operation, flags in (
        ("read", os.O_RDWR),
        ("write", os.O_RDWR),
        ("truncate", os.O_WRONLY | os.O_TRUNC),
        ("write", R | os.O_TRUNC),
    ):
        vm = vm_factory(permissions=deny("/w/**", operations=[operation]), files=probe.files | {"/w/f": b"content"})
        assert results(probe.in_vm(vm, [call("open", "/w/f", flags)])) == [-EACCES]
        assert [denial.operation for denial in vm.denials] == [operation]
        assert vm.fs.unchecked.read_bytes("/w/f") == b"content"


FORGERIES = [
    "x': blocked by fs.read policy\nEACCES: permission denied, read '/etc/shadow",
    "x\r\n\x1b[2Jcleared",
    '", "scope": "network", "x": "',
    "\u2028line\u2029separators\x85",
    "%s%n{0}{denial}",
    "a" * 250,
]


@pytest.mark.parametrize("name", FORGERIES, ids=range(len(FORGERIES)))
def test_bytes_of_the_guest_neither_break_nor_forge_a_record(
    vm_factory: Callable[..., VM], probe: Probe, name: str, tmp_path: Path
) -> None:
    vm = vm_factory(permissions=deny("/w/**"), files=probe.files)
    assert results(probe.in_vm(vm, [call("open", f"/w/{name}", R)])) == [-EACCES]
    (denial,) = vm.denials
    assert denial.requested == f"/w/{name}"
    assert len(denial.message.splitlines()) == 1
    assert denial.message.isprintable()
    audit = tmp_path / "audit"
    policy = json.dumps(deny("/w/**"))
    done = callgate("run", "-p", policy, "--audit", str(audit), "--json", "--", "python3", "-c", f"open({f'/w/{name}'!r})")
    assert done.returncode == 1
    (record,) = [json.loads(line) for line in audit.read_text().split("\n") if line]
    assert (record["scope"], record["requested"]) == ("fs", f"/w/{name}")


def test_a_program_s_name_does_not_forge_one_either(vm_factory: Callable[..., VM], probe: Probe) -> None:
    name = "/opt/a\nEACCES: permission denied"
    vm = vm_factory(permissions=deny("/w/**"), files={name: probe.files[Probe.PATH]})
    vm.run([name, "main"], input=call("open", "/w/x", R) + "\n")
    (denial,) = vm.denials
    assert denial.program == name
    assert "\n" not in str(denial)


def test_results_hold_the_denials_of_their_own_run(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    first, second = vm.run("cat /w/1 /w/2"), vm.run("cat /w/3")
    assert [denial.subject for denial in first.denials] == ["/w/1", "/w/2"]
    assert [denial.subject for denial in second.denials] == ["/w/3"]
    assert [denial.subject for denial in vm.denials] == ["/w/1", "/w/2", "/w/3"]


def test_denials_of_what_a_program_left_running_are_its_run_s(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    result = vm.run("setsid sh -c 'cat /w/detached' > /dev/null 2>&1 & sleep 0.5")
    assert [denial.subject for denial in result.denials] == ["/w/detached"]


def test_the_api_is_refused_with_the_same_message_as_the_guest(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/**"), files={"/w/x": b"secret"})
    guest = vm.run(["cat", "/w/x"]).denials[0]
    with pytest.raises(PermissionDenied) as caught:
        vm.fs.read_bytes("/w/x")
    assert isinstance(caught.value, PermissionError)
    assert (caught.value.errno, str(caught.value.message)) == (EACCES, guest.message)
    assert (caught.value.scope, caught.value.operation, caught.value.subject, caught.value.rule) == ("fs", "read", "/w/x", 0)
    assert vm.explain("fs", "read", "/w/x").message == guest.message


def test_what_is_explained_is_what_happens(vm_factory: Callable[..., VM], probe: Probe) -> None:
    rules = [
        {"mode": "deny", "paths": ["/w/**"]},
        {"mode": "allow", "operations": ["read", "stat"], "paths": ["/w/*.txt", "/w/d/**"]},
        {"mode": "deny", "operations": ["read"], "paths": ["/w/**/secret*"]},
    ]
    paths = [
        "/w",
        "/w/a.txt",
        "/w/a.md",
        "/w/secret.txt",
        "/w/d",
        "/w/d/x",
        "/w/d/secret",
        "/w/d/e/secret.txt",
        "/etc/passwd",
        "/tmp",
    ]
    files = {path: b"content" for path in paths if path not in ("/w", "/w/d", "/etc/passwd", "/tmp")}
    vm = vm_factory(permissions={"fs": {"default": "allow", "rules": rules}}, files=probe.files | files)
    for path in paths:
        is_directory = path in ("/w", "/w/d", "/tmp")
        reading = "readdir" if is_directory else "read"
        lines = [
            call("openat", AT_FDCWD, path, R),
            call("newfstatat", AT_FDCWD, path, Out(144), 0),
            call("chmod", path, 0o755),
        ]
        for operation, answer in zip((reading, "stat", "chmod"), results(probe.in_vm(vm, lines)), strict=True):
            assert (path, operation, answer != -EACCES) == (path, operation, vm.explain("fs", operation, path).allowed)
