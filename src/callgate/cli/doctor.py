"""`callgate doctor`: what this host offers, and proof in real VMs that what must be refused is refused and the rest works."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from callgate.cli.messages import complain
from callgate.kernel.confinement.runtime_image import default_image
from callgate.kernel.launch import EXECUTABLE
from callgate.kernel.probe import Finding, findings_as_json, probe
from callgate.scopes.errors import InternalError, Unsupported

PROOF_SECONDS: Final = 30

# Nothing listens at that port of the VM's own loopback: being turned away there is as good as being let in.
_CONNECT: Final = """
import socket
try:
    socket.create_connection(("127.0.0.1", 9), 5)
except ConnectionRefusedError:
    pass
"""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One program that must fail under one policy and succeed under another: the second shows that the first means something."""

    scope: str
    claim: str
    argv: tuple[str, ...]
    denying: Mapping[str, Any]
    allowing: Mapping[str, Any]
    recorded: bool = True
    """Whether the refusal leaves a record; a variable that a guest may not read is merely absent."""


EXPERIMENTS: Final = (
    Experiment(
        "fs",
        "reading a denied file fails with EACCES",
        ("cat", "/home/agentos/vault/key"),
        {"fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["read"], "paths": ["/home/agentos/vault/**"]}]}},
        {"fs": "allow"},
    ),
    Experiment(
        "network",
        "connecting fails with EACCES",
        ("python3", "-c", _CONNECT),
        {"network": "deny"},
        {"network": "allow"},
    ),
    Experiment(
        "childProcess",
        "starting a denied program fails with EACCES",
        ("sh", "-c", "/bin/cat /dev/null"),
        {"childProcess": {"default": "allow", "rules": [{"mode": "deny", "operations": ["spawn"], "patterns": ["cat"]}]}},
        {"childProcess": "allow"},
    ),
    Experiment(
        "process",
        "signalling another process fails with EACCES",
        ("sh", "-c", "sleep 30 & kill $!"),
        {"process": "deny"},
        {"process": "allow"},
    ),
    Experiment(
        "env",
        "a denied variable is absent",
        ("sh", "-c", 'test -n "$SECRET"'),
        {"env": {"default": "allow", "rules": [{"mode": "deny", "operations": ["read"], "patterns": ["SECRET"]}]}},
        {"env": "allow"},
        recorded=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Proof:
    """How an experiment ended."""

    scope: str
    claim: str
    holds: bool
    detail: str


def prove(experiment: Experiment) -> Proof:
    """Runs one experiment in two fresh VMs. Raises Unsupported where no VM can be started."""
    refused, denials = _outcome(experiment, experiment.denying)
    allowed, _ = _outcome(experiment, experiment.allowing)
    if allowed != 0:
        detail = f"the control failed: {experiment.argv[0]} ended with {allowed} although the policy allows it"
    elif refused == 0:
        detail = "not refused"
    elif experiment.recorded and not denials:
        detail = f"failed with {refused}, but no refusal was recorded"
    else:
        return Proof(experiment.scope, experiment.claim, True, denials[0] if denials else "")
    return Proof(experiment.scope, experiment.claim, False, detail)


def _outcome(experiment: Experiment, permissions: Mapping[str, Any]) -> tuple[int, list[str]]:
    from callgate import VM, Timeout

    files = {"/home/agentos/vault/key": b"secret\n"}
    with VM(permissions=dict(permissions), files=files, env={"SECRET": "1"}) as vm:
        try:
            result = vm.run(list(experiment.argv), timeout=PROOF_SECONDS)
        except Timeout as timeout:
            return -1, [denial.message for denial in timeout.denials if denial.scope == experiment.scope]
    return result.returncode, [denial.message for denial in result.denials if denial.scope == experiment.scope]


def doctor(*, as_json: bool) -> int:
    """Prints the report; 0 only if the default engine enforces everything here."""
    findings = probe(EXECUTABLE)
    proofs: list[Proof] = []
    failure = ""
    try:
        proofs = [prove(experiment) for experiment in EXPERIMENTS]
    except (Unsupported, InternalError) as error:
        failure = str(error)
    healthy = not failure and all(proof.holds for proof in proofs) and all(finding.state != "missing" for finding in findings)
    if as_json:
        _print_json(findings, proofs, failure, healthy=healthy)
    else:
        _print_report(findings, proofs, failure, healthy=healthy)
    return 0 if healthy else 1


def _print_json(findings: list[Finding], proofs: list[Proof], failure: str, *, healthy: bool) -> None:
    report = {
        "enforces": healthy,
        "host": findings_as_json(findings),
        "vm": failure or "started",
        "proofs": [{"scope": p.scope, "claim": p.claim, "holds": p.holds, "detail": p.detail} for p in proofs],
        "runtime_image": list(default_image()),
    }
    json.dump(report, sys.stdout, indent=2)
    print()


def _print_report(findings: list[Finding], proofs: list[Proof], failure: str, *, healthy: bool) -> None:
    print("What this host offers")
    for finding in findings:
        _row(finding.state, finding.name, finding.found)
        if finding.cost:
            _row("", "", f"cost: {finding.cost}")
        if finding.remedy:
            _row("", "", f"do:   {finding.remedy}")
    print("\nProof runs: each program fails in a VM that denies, and succeeds in one that allows")
    if failure:
        _row("failed", "VM", failure)
    for proof in proofs:
        _row("ok" if proof.holds else "FAILED", proof.scope, proof.claim if proof.holds else f"{proof.claim}: {proof.detail}")
        if proof.holds and proof.detail:
            _row("", "", proof.detail)
    print("\nRuntime image: readable in every VM unless a rule denies it, so that programs can start")
    for glob in default_image():
        print(f"  {glob}")
    if healthy:
        print("\nThe default engine enforces every scope on this host.")
    else:
        sys.stdout.flush()
        complain("the default engine does not enforce everything on this host; see the lines marked missing or failed")


def _row(state: str, name: str, text: str) -> None:
    print(f"  {state:8} {name:22} {text}")
