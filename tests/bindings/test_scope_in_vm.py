"""The binding scope in real VMs (AOS-23 to 25, 56, 57), and no other scope in the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from callgate import PermissionDenied
from tests.bindings.calling import Canary, add, by_command, by_python, only

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]

# -- the scope -------------------------------------------------------------------------------------


def test_without_bindings_every_name_is_refused(vm_factory: Factory) -> None:
    vm = vm_factory()
    done = by_python(vm, "anything")
    message = "EACCES: permission denied, binding://anything: blocked by binding.invoke policy"
    assert (done.returncode, done.stderr) == (126, f'"EACCES" 13 {message}\n')
    done = by_command(vm, "anything")
    assert (done.returncode, done.stdout, done.stderr) == (126, "", f"callgate-bindings: {message}\n")
    assert [(d.scope, d.operation, d.subject, d.message) for d in done.denials] == [("binding", "*", "anything", message)]
    with pytest.raises(PermissionDenied, match="binding://anything"):
        vm.call("anything")


def test_registering_grants_where_no_policy_says_otherwise(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"add": add})
    assert by_python(vm, "add", a=2, b=3).stdout == "5\n"
    assert by_command(vm, "add", a=2, b=3).stdout == '{"ok": true, "result": 5}\n'
    assert vm.call("add", 2, 3) == 5
    assert vm.denials == ()


@pytest.mark.parametrize("policy", [only("add"), {"binding": "deny"}])
def test_a_policy_gates_each_binding_and_the_refused_one_is_not_reached(vm_factory: Factory, policy: dict[str, Any]) -> None:
    remove = Canary()
    control = vm_factory(bindings={"add": add, "rm": remove})
    assert by_python(control, "rm", path="/x").stdout == '"removed /x"\n'
    assert remove.reached == 1
    vm = vm_factory(policy, bindings={"add": add, "rm": remove})
    refused = "EACCES: permission denied, binding://rm: blocked by binding.invoke policy"
    for done in (
        by_python(vm, "rm", path="/x"),
        by_command(vm, "rm", path="/x"),
        vm.run(["/run/callgate/bin/rm", "--path", "/x"]),
    ):
        assert done.returncode == 126
        assert refused in done.stderr
        assert [denial.message for denial in done.denials] == [refused]
    with pytest.raises(PermissionDenied, match="binding://rm"):
        vm.call("rm", path="/x")
    assert remove.reached == 1
    assert [denial.message for denial in vm.denials] == [refused] * 4
    assert by_python(vm, "add", a=1, b=1).returncode == (126 if policy == {"binding": "deny"} else 0)


def test_patterns_reach_into_groups(vm_factory: Factory) -> None:
    vm = vm_factory(only("math:*"), bindings={"math": {"add": add, "sub": lambda a, b: a - b}, "add": add})
    assert by_python(vm, "math:sub", a=5, b=3).stdout == "2\n"
    assert by_python(vm, "add", a=5, b=3).returncode == 126
    listed = json.loads(vm.run(["callgate-bindings", "list", "--json"]).stdout)
    assert [tool["name"] for tool in listed] == ["math:add", "math:sub"]


def test_a_refusal_names_its_process_and_stands_in_its_own_run(vm_factory: Factory) -> None:
    vm = vm_factory()
    done = vm.run("callgate-bindings call one; sh -c 'callgate-bindings call two'; true")
    assert [denial.subject for denial in done.denials] == ["one", "two"]
    assert all(denial.pid > 1 for denial in done.denials)
    assert {denial.program for denial in done.denials} == {"/run/callgate/bin/callgate-bindings"}
    assert vm.run(["true"]).denials == ()
    runs: dict[str, Any] = {}

    def run(name: str) -> None:
        runs[name] = vm.run(f"for i in 1 2 3 4 5; do callgate-bindings call {name}; done")

    threads = [threading.Thread(target=run, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, result in runs.items():
        assert [denial.subject for denial in result.denials] == [name] * 5


# -- no other scope is in the way ------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        {"fs": "deny"},
        {"fs": "allow", "network": "deny"},
        {"fs": {"default": "deny", "rules": []}},
        {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/**"]}]}, "network": "allow"},
        {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["write"], "paths": ["/run/**"]}]}},
        {"network": {"default": "deny", "rules": [{"mode": "allow", "operations": ["http"], "patterns": ["localhost"]}]}},
        {"process": "deny"},
        {"env": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "patterns": ["AWS_*"]}]}},
    ],
)
def test_bindings_are_reached_under_any_policy_of_the_other_scopes(vm_factory: Factory, policy: dict[str, Any]) -> None:
    vm = vm_factory(policy, bindings={"add": add}, files={"/home/agentos/secret": "s3cret"})
    everything = {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/**"]}]}
    if policy.get("fs") != everything:  # which forbids even to start a program
        assert by_python(vm, "add", a=2, b=3).stdout == "5\n"
    probe = vm.run(["/run/callgate/bin/add", "--a", "2", "--b", "3"])
    if policy.get("fs") != everything:
        assert probe.stdout == '{"ok": true, "result": 5}\n'


def test_what_lets_guests_reach_the_socket_lets_them_do_nothing_else_there(vm_factory: Factory) -> None:
    vm = vm_factory({"fs": "deny"}, bindings={"add": add})
    script = """
import os
for call in ("open('/run/callgate/x', 'w')", "os.unlink('/run/callgate/host.sock')",
             "os.rename('/run/callgate/host.sock', '/run/callgate/y')",
             "os.mkdir('/run/callgate/d')", "os.chmod('/run/callgate/host.sock', 0)", "os.symlink('/', '/run/callgate/l')",
             "open('/run/callgate/bin/callgate-bindings', 'r+')", "os.listdir('/run')"):
    try:
        eval(call)
        print("worked", call)
    except PermissionError:
        pass
"""
    assert vm.run(["python3", "-c", script]).stdout == ""
    assert by_python(vm, "add", a=1, b=1).stdout == "2\n"


def test_the_programs_need_the_permission_to_be_started_like_any_other(vm_factory: Factory) -> None:
    vm = vm_factory({"childProcess": "deny"}, bindings={"add": add})
    done = vm.run("add --a 1 --b 1")
    assert done.returncode == 126
    assert "spawn" in done.denials[0].message
    assert by_python(vm, "add", a=1, b=1).stdout == "2\n"


def test_they_also_work_where_nothing_written_may_be_executed(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"add": add}, noexec=True)
    assert vm.run("add --a 1 --b 1").stdout == '{"ok": true, "result": 2}\n'
