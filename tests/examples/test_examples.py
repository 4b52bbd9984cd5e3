"""Every example runs to its end and shows what it says: what works, what fails, and the messages of the refusals."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("leaves_nothing")]

# For each example, in the order of its output: whether something worked or failed, and what is said about it.
SHOWN = {
    "server": [
        ("failed", "EACCES: permission denied, tcp://example.com:80: blocked by network.http policy (the scope's mode)"),
        ("failed", "EACCES: permission denied, dns://example.com: blocked by network.dns policy (the scope's mode)"),
        ("failed", "EACCES: permission denied, tcp://192.0.2.1:80: blocked by network.http policy"),
        ("worked", "example.com says hello"),
        ("failed", "tcp://169.254.169.254:80: blocked by network.http policy (local address)"),
        ("worked", "api.example.com says hello"),
        ("failed", "EACCES: permission denied, tcp://example.com:80: blocked by network.http policy (the default)"),
        ("failed", "EACCES: permission denied, tcp://127.0.0.1:"),
    ],
    "bind_policy": [
        ("worked", "programs still start"),
        ("failed", "EACCES: permission denied, read '/etc/hostname': blocked by fs.read policy"),
        ("failed", "ls: cannot access '.': Permission denied"),
        ("failed", "EACCES: permission denied, write '/home/agentos/new': blocked by fs.write policy"),
    ],
    "fs_rules": [
        ("worked", "remember the milk"),
        ("failed", "EACCES: permission denied, read '/home/agentos/vault/key': blocked by fs.read policy (rule 0)"),
        ("failed", "ls: cannot access '/home/agentos/vault': Permission denied"),
        ("failed", "EACCES: permission denied, rename '/home/agentos/vault': blocked by fs.rename policy (rule 0)"),
        ("failed", "cat: alias: Permission denied"),
        ("worked", "remember the milk"),
        ("worked", "a,b"),
        ("worked", "table.csv"),
        ("failed", "EACCES: permission denied, read '/home/agentos/notes.txt': blocked by fs.read policy (the default)"),
        ("failed", "EACCES: permission denied, rm '/home/agentos/data/table.csv': blocked by fs.rm policy (the default)"),
        ("failed", "EACCES: permission denied, write '/home/agentos/data/table.csv': blocked by fs.write policy (the default)"),
    ],
    "allow_one_binding": [
        ("worked", "'mail sent to team@example.com'"),
        ("worked", "5"),
        ("failed", "EACCES: permission denied, binding://send_mail: blocked by binding.invoke policy (the default)"),
    ],
    "combine": [
        ("worked", "remember the milk"),
        ("failed", "EACCES: permission denied, read '/home/agentos/vault/key': blocked by fs.read policy (rule 0)"),
        ("failed", "EACCES: permission denied, tcp://example.com:80: blocked by network.http policy (the default)"),
        ("worked", "5"),
        ("failed", "EACCES: permission denied, binding://send_mail: blocked by binding.invoke policy (the default)"),
    ],
}
SHOWN_OF_THE_NETWORK = {
    "guest_server": [
        ("worked", "served from inside the VM"),
        ("failed", "EACCES: permission denied, tcp://127.0.0.1:9000: blocked by network.listen policy (the default)"),
    ],
    "operator_openings": [
        ("failed", "Connection refused"),
        ("failed", "EACCES: permission denied, tcp://10.0.0.1:80: blocked by network.http policy (local address)"),
        ("worked", "staging.example.com says hello"),
        ("worked", "says hello"),
    ],
}
# node is not everywhere, and the package mcp is an extra: without them the examples show less.
SHOWN_OF_BINDINGS = {
    "three_guests": [
        ("worked", "the catalogue: nut bolt washer"),
        *([("worked", "prices: 3 5 1")] if shutil.which("node", path="/usr/bin:/usr/local/bin") else []),
        ("worked", "exit code 126"),
    ],
    "ask_first": [
        ("worked", "500"),
        ("worked", "120 cents paid to bakery"),
        ("failed", "pay was rejected, in answer to request 2"),
        ("failed", "EACCES: permission denied, binding://close_account: blocked by binding.invoke policy (the default)"),
    ],
    "mcp_server_as_bindings": [
        ("worked", "buy nuts"),
        ("failed", "EACCES: permission denied, binding://notes:delete: blocked by binding.invoke policy (the default)"),
    ]
    if importlib.util.find_spec("mcp")
    else [],
}
MODULES = {
    **{f"bindings.{name}": shown for name, shown in SHOWN_OF_BINDINGS.items()},
    **{f"permissions.{name}": shown for name, shown in SHOWN.items()},
    **{f"network.{name}": shown for name, shown in SHOWN_OF_THE_NETWORK.items()},
}


def run(project: Path, module: str) -> str:
    done = subprocess.run([sys.executable, "-m", module], cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def outcomes(output: str) -> list[tuple[str, str]]:
    """The outcomes shown, each with everything that is said about it."""
    parts = re.split(r"^    (worked|failed|explain) +", output, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", MODULES)
def test_example_shows_what_is_allowed_and_what_is_refused(project: Path, name: str) -> None:
    shown = outcomes(run(project, f"examples.{name}"))
    assert [outcome for outcome, _ in shown] == [outcome for outcome, _ in MODULES[name]]
    for (outcome, text), (_, expected) in zip(shown, MODULES[name], strict=True):
        assert expected in text, outcome


def test_every_example_has_its_expectations(project: Path) -> None:
    folders = ("permissions", "network", "bindings")
    assert {f"{folder}.{path.stem}" for folder in folders for path in (project / "examples" / folder).glob("*.py")} == set(
        MODULES
    )


def test_running_shows_conversations_terminals_cancellation_and_limits(project: Path) -> None:
    output = run(project, "examples.running")
    for line in (
        "6 * 7 is 42",
        "it ended with 0",
        "heard before the last was written: True",
        "/dev/pts/0 on a screen of 40 132",
        "the sum of what they said is 19900",
        "cancelled: True, programs left: 0",
        "a busy loop: return code -9, over cpu_seconds",
        "256 MiB of 64: refused or ended",
        "8 MiB on a disk of 4: No space left on device",
        "a flood of output: 1024 characters kept",
        "after 0.5 seconds: 'begun\\n'",
    ):
        assert line in output


def test_demo_runs_all_of_them_and_counts(project: Path) -> None:
    output = run(project, "examples.demo")
    for name in MODULES:
        assert f"examples/{name.replace('.', '/')}.py" in output
    expected = [outcome for outcomes_of_one in MODULES.values() for outcome, _ in outcomes_of_one]
    last = output.splitlines()[-1]
    assert last.startswith(f"{expected.count('worked')} programs and calls worked; {expected.count('failed')} failed")


@pytest.mark.parametrize("module", ["permissions.bind_policy", "running"])
def test_a_reader_that_leaves_ends_an_example_without_a_word(project: Path, module: str) -> None:
    command = [sys.executable, "-u", "-m", f"examples.{module}"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as example:
        assert example.stdout is not None
        assert example.stderr is not None
        example.stdout.close()
        assert (example.stderr.read(), example.wait(120)) == ("", 141)
