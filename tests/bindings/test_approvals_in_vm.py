"""Approvals in real VMs: what a guest sees of them, and that they give a VM nothing (AOS-U18)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from callgate import DEVNULL, ApprovalError, ApprovalRejected, ApprovalRequest, Approvals, PermissionDenied
from tests.bindings.approving import eventually
from tests.bindings.calling import Canary, add, by_command, by_python, only
from tests.bindings.conftest import SECONDS

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Factory = Callable[..., "VM"]

ASK_WHAT_FAILED = """
import json
from callgate_guest import BindingError, call
try:
    print(call("rm", path="/x"))
except BindingError as error:
    print(json.dumps([error.code, error.type, str(error), isinstance(error, PermissionError)]))
"""


def asking(*option_ids: str, **arguments: Any) -> tuple[Approvals, list[ApprovalRequest]]:
    """Approvals that give these answers, and what was asked."""
    seen: list[ApprovalRequest] = []

    def ask(request: ApprovalRequest) -> None:
        seen.append(request)
        broker.answer(request.id, option_ids[len(seen) - 1])

    broker = Approvals("ask", on_request=ask, **arguments)
    return broker, seen


def steps(journal: Path) -> list[str]:
    """What a journal tells of, in its order."""
    return [json.loads(line)["event"] for line in journal.read_text().splitlines()]


def test_a_guest_waits_for_its_answer_however_it_calls(vm_factory: Factory, tmp_path: Path) -> None:
    broker, seen = asking("allow_once", "reject_once", "allow_once", "reject_once", "allow_once", journal=tmp_path / "journal")
    canary = Canary()
    vm = vm_factory(bindings={"files": {"rm": broker.guard(canary)}})
    assert by_python(vm, "files:rm", path="/a").stdout == '"removed /a"\n'
    rejected = by_python(vm, "files:rm", path="/b")
    assert (rejected.returncode, rejected.denials) == (1, ())
    assert rejected.stderr == '"failed" files:rm was rejected, in answer to request 2\n'
    assert vm.run("files rm --path /c").stdout == '{"ok": true, "result": "removed /c"}\n'
    rejected = vm.run("files rm --path /d")
    assert (rejected.returncode, rejected.stdout) == (1, "")
    assert "files:rm was rejected" in rejected.stderr
    assert vm.call("files:rm", "/e") == "removed /e"
    assert canary.reached == 3
    assert [(request.binding, request.arguments["path"]) for request in seen] == [("files:rm", f"/{name}") for name in "abcde"]
    assert all(request.pid > 1 for request in seen[:4])
    assert [Path(request.program).name.rstrip("0123456789.") for request in seen] == [
        *["python"] * 2, *["callgate-bindings"] * 2, "",
    ]  # fmt: skip
    broker.close()
    assert steps(tmp_path / "journal") == ["request", "answer"] * 5


def test_a_rejection_is_an_error_of_its_own_and_no_refusal(vm_factory: Factory) -> None:
    canary, broker = Canary(), Approvals("reject_all")
    vm = vm_factory(bindings={"rm": broker.guard(canary)})
    done = vm.run(["python3", "-c", ASK_WHAT_FAILED])
    message = "rm was rejected: the approvals reject every call"
    assert json.loads(done.stdout) == ["failed", "ApprovalRejected", message, False]
    with pytest.raises(ApprovalRejected, match=message):
        vm.call("rm", "/x")
    assert (canary.reached, vm.denials) == (0, ())


@pytest.mark.parametrize("policy", [{"binding": "deny"}, only("add")])
def test_nothing_that_the_policy_refuses_is_approved_or_even_asked(vm_factory: Factory, policy: dict[str, Any]) -> None:
    canary = Canary()
    for broker in (Approvals("allow_all"), asking()[0]):
        control = vm_factory(bindings={"rm": Approvals().guard(canary)})
        before = canary.reached
        assert by_python(control, "rm", path="/x").returncode == 0
        assert canary.reached == before + 1
        vm = vm_factory(policy, bindings={"rm": broker.guard(canary), "add": add})
        for done in (by_python(vm, "rm", path="/x"), by_command(vm, "rm", path="/x")):
            assert done.returncode == 126
            assert "EACCES: permission denied, binding://rm: blocked by binding.invoke policy" in done.stderr
        with pytest.raises(PermissionDenied, match="binding://rm"):
            vm.call("rm", "/x")
        assert broker.records() == ()
        assert canary.reached == before + 1


def test_what_is_approved_gives_the_vm_nothing(vm_factory: Factory) -> None:
    broker, seen = asking("allow_always")
    reached: list[str] = []
    permissions = {
        "fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/home/agentos/vault/**"]}]},
        "network": "deny",
        "binding": {"default": "deny", "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["read"]}]},
    }

    def read(path: str) -> str:
        reached.append(path)
        return "as the host"

    vm = vm_factory(
        permissions, bindings={"read": broker.guard(read), "rm": broker.guard(read)}, files={"/home/agentos/vault/key": "s3cret"}
    )
    questions = [
        ("fs", "read", "/home/agentos/vault/key"),
        ("fs", "write", "/home/agentos/x"),
        ("network", "fetch", "tcp://example.com:443"),
        ("network", "dns", "dns://example.com"),
        ("binding", "*", "read"),
        ("binding", "*", "rm"),
    ]

    def verdicts() -> list[Any]:
        return [vm.explain(*question) for question in questions]

    def attempts() -> list[int]:
        commands = ("cat /home/agentos/vault/key", "echo x > /home/agentos/x", "callgate-bindings call rm --path /x")
        return [vm.run(command).returncode for command in commands]

    policy, before, tried = vm.policy, verdicts(), attempts()
    assert tried[0] != 0
    assert tried[1:] == [0, 126]
    for _ in range(2):
        assert by_python(vm, "read", path="/home/agentos/vault/key").stdout == '"as the host"\n'
    assert (len(seen), len(reached)) == (1, 2)
    assert vm.policy is policy
    assert verdicts() == before
    assert [verdict.allowed for verdict in before] == [False, True, False, False, True, False]
    assert attempts() == tried


def test_a_guest_that_dies_withdraws_what_it_asked(vm_factory: Factory) -> None:
    broker, canary = Approvals("ask"), Canary()
    vm = vm_factory(bindings={"rm": broker.guard(canary)})
    process = vm.spawn(["/run/callgate/bin/rm", "--path", "/x"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    eventually(broker.pending)
    process.kill()
    process.wait()
    eventually(lambda: broker.records()[0].state == "withdrawn")
    assert broker.records()[0].why == "the caller is gone"
    assert canary.reached == 0


def test_closing_the_vm_withdraws_what_it_asked(vm_factory: Factory, tmp_path: Path) -> None:
    canary = Canary()
    with Approvals("ask", journal=tmp_path / "journal") as broker:
        vm = vm_factory(bindings={"rm": broker.guard(canary)})
        vm.spawn(["/run/callgate/bin/rm", "--path", "/x"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        eventually(broker.pending)
        vm.close()
        eventually(lambda: broker.records()[0].state == "withdrawn")
    assert steps(tmp_path / "journal") == ["request", "withdrawal"]
    assert canary.reached == 0


def test_closing_the_approvals_fails_the_calls_that_wait_and_all_later_ones(vm_factory: Factory, tmp_path: Path) -> None:
    canary = Canary()
    broker = Approvals("ask", journal=tmp_path / "journal")
    vm = vm_factory(bindings={"rm": broker.guard(canary)})
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(vm.run(["python3", "-c", ASK_WHAT_FAILED])))
    thread.start()
    eventually(broker.pending)
    broker.close()
    thread.join(SECONDS)
    assert json.loads(done[0].stdout)[:2] == ["failed", "ApprovalError"]
    with pytest.raises(ApprovalError, match="the approvals were closed"):
        vm.call("rm", "/x")
    assert steps(tmp_path / "journal") == ["request", "withdrawal"]
    assert canary.reached == 0
