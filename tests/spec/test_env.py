"""env: what a guest starts with, and what it may hand on when it executes a program (SPEC 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from callgate import PermissionDenied

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


def env_rules(*rules: tuple[str, str, str], default: str = "allow") -> dict[str, object]:
    """Rules of (mode, operation, pattern), in order."""
    made = [{"mode": mode, "operations": [operation], "patterns": [pattern]} for mode, operation, pattern in rules]
    return {"env": {"default": default, "rules": made}}


def test_nothing_is_read_where_the_scope_is_denied(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions={"env": "deny"}, env={"NAME": "value"})
    assert vm.run(["/usr/bin/env"], env={"OTHER": "value"}).stdout == ""


def test_a_list_of_readable_names_lets_just_those_through(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=env_rules(("allow", "read", "APP_*"), default="deny"), env={"APP_MODE": "x", "AWS_SECRET": "y"})
    assert vm.run(["/usr/bin/env"]).stdout == "APP_MODE=x\n"


def test_a_name_that_may_not_be_read_is_in_nobodys_environ(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "read", "AWS_*")), env={"AWS_SECRET": "s3cret", "PLAIN": "x"})
    script = "sh -c 'sh -c env'; cat /proc/*/environ 2>/dev/null; python3 -c 'import os; print(os.environ.get(\"AWS_SECRET\"))'"
    shown = vm.run(script, env={"AWS_OTHER": "s3cret"}).stdout
    assert "s3cret" not in shown
    assert "PLAIN=x" in shown
    assert shown.endswith("None\n")


def test_the_operators_own_words_are_no_writes(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "write", "*")), env={"GIVEN": "a"})
    assert vm.run("echo $GIVEN $ALSO", env={"ALSO": "b"}).stdout == "a b\n"


def test_the_api_raises_with_the_message_of_the_scope(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=env_rules(("deny", "read", "AWS_*"), ("deny", "write", "PATH")), env={"AWS_SECRET": "x"})
    with pytest.raises(PermissionDenied, match="env://AWS_SECRET: blocked by env") as caught:
        vm.env["AWS_SECRET"]
    assert caught.value.message == "EACCES: permission denied, env://AWS_SECRET: blocked by env.read policy"
    assert (caught.value.errno, caught.value.scope, caught.value.operation) == (13, "env", "read")
    with pytest.raises(PermissionDenied, match="env://PATH: blocked by env"):
        vm.env["PATH"] = "/tmp"
    vm.env["FREE"] = "yes"
    assert vm.run("echo $FREE").stdout == "yes\n"
    assert [(denial.scope, denial.operation, denial.subject) for denial in vm.denials] == [
        ("env", "read", "AWS_SECRET"),
        ("env", "write", "PATH"),
    ]
