"""Mistakes are one line that says what is wrong, before anything has started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import VM, PolicyError, Unsupported
from tests.contracts.host_processes import descendants
from tests.vm_fixtures import PROGRAMS, callgate

if TYPE_CHECKING:
    from callgate.guest.result import Result

pytestmark = pytest.mark.vm

WRONG = {
    "unknown-scope": ({"child_process": "deny"}, "child_process", "childProcess"),
    "unknown-operation": ({"fs": {"rules": [{"mode": "deny", "operations": ["raed"]}]}}, "fs.rules[0].operations", "read"),
    "unknown-key": ({"fs": {"rules": [{"mode": "deny", "pattern": ["/x"]}]}}, "fs.rules[0]", "pattern"),
    "unknown-mode": ({"network": "alow"}, "network", "alow"),
    "ask": ({"network": "ask"}, "network", "approval"),
    "empty-operations": ({"fs": {"rules": [{"mode": "deny", "operations": []}]}}, "fs.rules[0].operations", 'use ["*"]'),
    "patterns-in-fs": ({"fs": {"rules": [{"mode": "deny", "patterns": ["/x"]}]}}, "fs.rules[0]", "paths"),
    "relative-path": ({"fs": {"rules": [{"mode": "deny", "paths": ["x/y"]}]}}, "fs.rules[0].paths[0]", "absolute"),
    "dots": ({"fs": {"rules": [{"mode": "deny", "paths": ["/x/../y"]}]}}, "fs.rules[0].paths[0]", ".."),
    "second-rule": ({"env": {"rules": [{"mode": "allow"}, {"mode": "no"}]}}, "env.rules[1].mode", "no"),
}


@pytest.mark.parametrize(("policy", "place", "hint"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_policy_is_a_policy_error_with_the_place_and_starts_nothing(
    policy: dict[str, object],
    place: str,
    hint: str,
    leaves_nothing: None,  # noqa: ARG001
) -> None:
    before = descendants(os.getpid())
    with pytest.raises(PolicyError) as caught:
        VM(permissions=policy)
    assert place in str(caught.value)
    assert hint in str(caught.value)
    assert descendants(os.getpid()) <= before


@pytest.mark.parametrize(("policy", "place", "hint"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_policy_is_exit_code_2_and_one_line(policy: dict[str, object], place: str, hint: str) -> None:
    done = callgate("run", "-p", json.dumps(policy), "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert place in done.stderr
    assert hint in done.stderr


@pytest.mark.parametrize("policy", ["{", "[]", '"allow"', "/no/such/file.json"])
def test_what_is_no_policy_at_all_is_exit_code_2_and_one_line(policy: str) -> None:
    done = callgate("run", "-p", policy, "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def result_of(vm: VM, *argv: str) -> tuple[int, str, str]:
    result: Result[str] = vm.run(list(argv))
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("program", ["nonesuch", "/no/such/program", "./nonesuch", "/etc/passwd/x"])
def test_a_missing_program_is_127_and_one_line(vm_factory: Callable[..., VM], program: str) -> None:
    vm = vm_factory()
    code, out, error = result_of(vm, program)
    assert (code, out, error.count("\n"), program in error) == (127, "", 1, True)
    assert len(descendants(vm.status().supervisor_pid)) == 1


def test_a_missing_program_is_127_and_one_line_by_the_command_line() -> None:
    done = callgate("run", "--", "nonesuch", "argument")
    assert (done.returncode, done.stdout, done.stderr) == (127, "", "callgate: nonesuch: command not found\n")


@pytest.mark.parametrize("program", ["/etc/passwd", "/tmp", "/etc"])
def test_a_program_that_cannot_be_executed_is_126_and_one_line(vm_factory: Callable[..., VM], program: str) -> None:
    code, out, error = result_of(vm_factory(), program)
    assert (code, out, error.count("\n"), program in error) == (126, "", 1, True)


def test_a_program_in_a_strange_format_is_126(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(files={"/opt/strange": b"\x7fELF and then nothing"})
    code, out, error = result_of(vm, "/opt/strange")
    assert (code, out, error.count("\n")) == (126, "", 1)


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"]])
def test_what_is_no_command_is_a_value_error(vm_factory: Callable[..., VM], argv: list[str]) -> None:
    with pytest.raises(ValueError):
        vm_factory().run(argv)


def test_a_working_directory_that_is_not_there_is_an_error_that_names_it(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory()
    with pytest.raises(FileNotFoundError) as caught:
        vm.run(["true"], cwd="/no/such/directory")
    assert caught.value.filename == "/no/such/directory"
    assert vm.run(["pwd"], cwd="/tmp").stdout == "/tmp\n"


def test_a_directory_of_the_host_that_is_not_there_is_exit_code_2() -> None:
    done = callgate("run", "--mount", "/no/such/directory:/w", "--", "true")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


# -- a host that cannot enforce ------------------------------------------------------------------------------------------

LACKS = {
    "namespaces": "kernel.unprivileged_userns_clone",
    "namespace-count": "user.max_user_namespaces",
    "listener": "Linux 5.19",
    "kill-only-wait": "Linux 5.19",
    "second-listener": "outside of it",
    "seccomp": "Linux 5.19",
}
START = """
import os
from callgate import VM, Unsupported
try:
    VM().run(["true"])
except Unsupported as error:
    print(error)
print(open(f"/proc/self/task/{os.getpid()}/children").read().split())
"""


def lacking(what: str, compile_c: Callable[..., Path], *command: str) -> subprocess.CompletedProcess[str]:
    program = compile_c(PROGRAMS / "without.c")
    return subprocess.run([program, what, sys.executable, *command], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(("what", "advice"), LACKS.items(), ids=LACKS.keys())
def test_a_host_that_cannot_enforce_is_125_and_says_what_to_do(compile_c: Callable[..., Path], what: str, advice: str) -> None:
    done = lacking(what, compile_c, "-m", "callgate", "run", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1)
    assert advice in done.stderr


@pytest.mark.parametrize(("what", "advice"), LACKS.items(), ids=LACKS.keys())
def test_a_host_that_cannot_enforce_is_an_error_and_nothing_is_left(
    compile_c: Callable[..., Path], what: str, advice: str
) -> None:
    done = lacking(what, compile_c, "-c", START)
    message, children = done.stdout.splitlines()
    assert advice in message
    assert (children, done.stderr) == ("[]", "")


def test_the_same_host_with_nothing_missing_enforces(compile_c: Callable[..., Path]) -> None:
    done = lacking("nothing", compile_c, "-m", "callgate", "run", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


# -- what is not built yet fails closed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [{"engine": "ptrace"}, {"guest": "wasm"}],
    ids=lambda arguments: next(iter(arguments)),
)
def test_an_argument_that_is_not_built_yet_is_refused_rather_than_ignored(arguments: dict[str, object]) -> None:
    with pytest.raises(Unsupported):
        VM(**arguments)  # type: ignore[arg-type]
