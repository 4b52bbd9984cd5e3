"""Programs that live under a thousand signals a second lose no call and no program, whoever carries their calls out."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import PROGRAMS, as_ordinary_user, deny, judged_but_allowed

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

_SOME_RULE = {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "patterns": ["nobody-asks-for-this"]}]}
POLICIES = {
    "default": None,
    "files judged": judged_but_allowed(),
    "programs judged": {"childProcess": _SOME_RULE},
    "signals judged": {"process": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["kill:4000"]}]}},
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_program_preempted_a_thousand_times_a_second_loses_nothing(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path], host_dir: Path, policy: str
) -> None:
    program = compile_c(PROGRAMS / "gosched.c")
    copied = host_dir / "gosched"
    shutil.copy(program, copied)
    copied.chmod(0o755)
    command = as_ordinary_user([str(copied), "1", str(host_dir)])
    control = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    vm = vm_factory(permissions=POLICIES[policy], files={"/opt/gosched": program.read_bytes()})
    result = vm.run(["/opt/gosched", "2", "/tmp"], timeout=120)
    # Handlers restart what they interrupt, so neither sees an EINTR.
    assert (result.returncode, result.stdout) == (0, control.stdout) == (0, "0 0\n"), result.stderr
    assert result.denials == ()


PIPELINES = """
trap : ALRM
python3 -c "$STORM" $$ & storm=$!
n=0
while [ $n -lt {rounds} ]; do
    got=$(echo a b c | tr ' ' '\\n' | sort -r | tr '\\n' ' ')
    [ "$got" = "c b a " ] || echo "wrong: $got"
    n=$((n + 1))
done
kill $storm
echo $n
"""
STORM = "import os, signal, sys, time\nwhile True: os.kill(int(sys.argv[1]), signal.SIGALRM); time.sleep(0.001)"


@pytest.mark.parametrize("policy", [None, deny("/w/**")], ids=["default", "files judged"])
@pytest.mark.parametrize("rounds", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_pipelines_come_through_a_storm_of_alarms(vm_factory: Callable[..., VM], policy: object, rounds: int) -> None:
    script = PIPELINES.format(rounds=rounds)
    control = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=False, env={"PATH": os.defpath, "STORM": STORM}, timeout=600
    )
    assert (control.returncode, control.stdout, control.stderr) == (0, f"{rounds}\n", "")
    result = vm_factory(permissions=policy).run(script, env={"STORM": STORM}, timeout=600)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{rounds}\n", "")
