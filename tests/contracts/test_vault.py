"""One denied folder in an otherwise allowed filesystem: the policy of the first example, by the command line and by `VM`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import VAULT, callgate, deny, judged_but_allowed, messages, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

SCRIPT = f"mkdir -p {VAULT}; echo x > {VAULT}/k; cat {VAULT}/k; echo ok"
REFUSALS = [f"create_dir '{VAULT}'", f"write '{VAULT}/k'", f"read '{VAULT}/k'"]


def test_the_command_line_refuses_all_three_and_goes_on() -> None:
    done = callgate("run", "-p", json.dumps(deny(f"{VAULT}/**")), "--json", "--", "sh", "-c", SCRIPT)
    assert (done.returncode, done.stdout) == (0, "ok\n")
    said, _, report = done.stderr.rstrip("\n").rpartition("\n")
    assert said.count("ermission denied") == 3
    refused = [(one["operation"], one["subject"], one["rule"]) for one in json.loads(report)["denials"]]
    for operation, path in (("create_dir", VAULT), ("write", f"{VAULT}/k"), ("read", f"{VAULT}/k")):
        assert (operation, path, 0) in refused


def test_the_command_line_sums_up_what_was_refused() -> None:
    done = callgate("run", "-p", json.dumps(deny(f"{VAULT}/**")), "--", "sh", "-c", SCRIPT)
    assert (done.returncode, done.stdout) == (0, "ok\n")
    for refusal in REFUSALS:
        assert f"EACCES: permission denied, {refusal}: blocked by fs." in done.stderr


def test_the_vm_refuses_all_three_and_nothing_is_made(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny(f"{VAULT}/**"))
    before = tree_of(vm, "/home/agentos")
    result = vm.run(SCRIPT)
    assert (result.returncode, result.stdout) == (0, "ok\n")
    assert result.stderr.count("ermission denied") == 3
    for refusal in REFUSALS:
        assert any(f"permission denied, {refusal}: blocked by" in message for message in messages(result))
    assert tree_of(vm, "/home/agentos") == before


def test_the_same_script_works_where_no_rule_refuses_it(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=judged_but_allowed())
    result = vm.run(SCRIPT)
    assert (result.stdout, result.stderr, result.denials) == ("x\nok\n", "", ())
    assert tree_of(vm, VAULT)[f"{VAULT}/k"].content == b"x\n"


def test_the_same_script_works_under_the_default_policy() -> None:
    done = callgate("run", "--", "sh", "-c", SCRIPT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\nok\n", "")


def test_a_seeded_secret_is_not_read_and_the_denial_says_why(vm_factory: Callable[..., VM]) -> None:
    files = {f"{VAULT}/key": b"s3cret", "/home/agentos/a.txt": b"hello"}
    vm = vm_factory(permissions=deny(f"{VAULT}/**"), files=files)
    result = vm.run(["cat", f"{VAULT}/key", "a.txt"])
    assert (result.returncode, result.stdout) == (1, "hello")
    assert result.stderr == f"cat: {VAULT}/key: Permission denied\n"
    (denial,) = result.denials
    assert denial.message == f"EACCES: permission denied, read '{VAULT}/key': blocked by fs.read policy"
    assert (denial.scope, denial.operation, denial.subject, denial.rule) == ("fs", "read", f"{VAULT}/key", 0)
    assert denial.program.endswith("/cat")
    assert vm.fs.unchecked.read_bytes(f"{VAULT}/key") == b"s3cret"
