"""`callgate doctor`: proofs that can fail, and findings that say what to do."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from callgate.cli import doctor
from callgate.kernel import probe


@pytest.mark.vm
def test_healthy_host_exits_0_with_every_proof() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "callgate", "doctor", "--json"], capture_output=True, text=True, timeout=120, check=False
    )
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, ""), report
    assert report["enforces"] is True
    assert [proof["scope"] for proof in report["proofs"] if proof["holds"]] == ["fs", "network", "childProcess", "process", "env"]
    assert report["runtime_image"]


@pytest.mark.vm
def test_report_for_people_names_every_finding() -> None:
    done = subprocess.run([sys.executable, "-m", "callgate", "doctor"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    for name in ("kernel", "user namespaces", "seccomp notification", "Landlock", "ptrace", "cgroups", "wasmtime", "/usr/lib/**"):
        assert name in done.stdout


@pytest.mark.vm
@pytest.mark.parametrize("experiment", doctor.EXPERIMENTS, ids=lambda experiment: experiment.scope)
def test_proof_fails_where_nothing_is_refused(experiment: doctor.Experiment) -> None:
    assert not doctor.prove(dataclasses.replace(experiment, denying=experiment.allowing)).holds


@pytest.mark.vm
@pytest.mark.parametrize("experiment", doctor.EXPERIMENTS, ids=lambda experiment: experiment.scope)
def test_proof_fails_where_everything_is_refused(experiment: doctor.Experiment) -> None:
    assert not doctor.prove(dataclasses.replace(experiment, allowing=experiment.denying)).holds


def test_missing_supervisor_is_found_with_a_remedy(tmp_path: Path) -> None:
    finding = next(finding for finding in probe.probe(tmp_path / "nothing") if finding.name == "supervisor")
    assert finding.state == "missing"
    assert finding.remedy


def test_every_finding_that_is_not_fine_says_what_it_costs() -> None:
    for finding in probe.probe(Path(sys.executable)):
        assert finding.found
        assert finding.state == "ok" or finding.cost, finding


def test_attempts_that_fail_are_reported_by_errno(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts.py"
    attempts.write_text(
        "import json\n"
        "names = dict.fromkeys(['user', 'mount', 'pid', 'net', 'ipc', 'uts', 'cgroup'], 1)\n"
        "print(json.dumps({'ptrace': 1, 'seccomp_notify': 0, 'seccomp_listener': 16, 'landlock_abi': 0, 'namespaces': names}))\n"
    )
    monkeypatch.setattr(probe, "ATTEMPTS", attempts)
    findings = {finding.name: finding for finding in probe.probe(Path(sys.executable))}
    assert findings["user namespaces"].state == "missing"
    assert "EPERM" in findings["user namespaces"].found
    assert findings["user namespaces"].remedy
    assert findings["seccomp notification"].state == "missing"
    assert "EBUSY" in findings["seccomp notification"].found
    assert findings["Landlock"].state == "limited"
    assert findings["ptrace"].state == "limited"
