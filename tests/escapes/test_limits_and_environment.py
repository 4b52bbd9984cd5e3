"""What a guest cannot raise, and what it starts with: an environment, three descriptors (catalogue 104, 106, 111 to 113)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import Probe, callgate, deny, judged_but_allowed

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

POLICIES = {"default": None, "judged": judged_but_allowed()}


@pytest.fixture(params=POLICIES)
def permissions(request: pytest.FixtureRequest) -> object:
    return POLICIES[request.param]


def test_no_hard_limit_is_raised(vm_factory: Callable[..., VM], permissions: object) -> None:
    program = (
        "import resource\n"
        "for number in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):\n"
        "    soft, hard = resource.getrlimit(number)\n"
        "    try: resource.setrlimit(number, (soft, hard + 1))\n"
        "    except (ValueError, OSError): print('refused')\n"
    )
    assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == "refused\n" * 3


@pytest.mark.parametrize("limit", [3, 4, 6, 10])
def test_a_small_descriptor_limit_is_met_as_on_the_host(vm_factory: Callable[..., VM], permissions: object, limit: int) -> None:
    program = (
        f"import errno, os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
        "fds = []\ntry:\n    while True: fds.append(os.open('/etc/passwd', os.O_RDONLY))\n"
        "except OSError as error: os.write(1, b'%d %d' % (error.errno, len(fds)))\n"
    )
    assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == f"24 {limit - 3}"


def test_the_environment_is_not_the_hosts(
    vm_factory: Callable[..., VM], permissions: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CANARY", "LD_PRELOAD_CANARY", "PYTHONSTARTUP", "BASH_ENV", "AWS_SECRET"):
        monkeypatch.setenv(name, "host-only")
    shown = (
        vm_factory(permissions=permissions, env={"MINE": "yes"})
        .run("env; sh -c env; python3 -c 'import os; print(dict(os.environ))'")
        .stdout
    )
    assert "host-only" not in shown
    assert shown.count("MINE") == 3
    assert "host-only" not in callgate("run", "--env", "MINE=yes", "--", "env").stdout


def test_a_name_that_may_not_be_read_is_not_there(vm_factory: Callable[..., VM]) -> None:
    rules = [{"mode": "deny", "operations": ["read"], "patterns": ["SECRET*"]}]
    vm = vm_factory(permissions={"env": {"default": "allow", "rules": rules}}, env={"SECRET_A": "hidden-a", "PLAIN": "shown"})
    script = "env; sh -c env; cat /proc/self/environ /proc/$PPID/environ 2>/dev/null"
    shown = vm.run(script, env={"SECRET_B": "hidden-b"}).stdout
    assert "hidden" not in shown
    assert "PLAIN=shown" in shown


def test_only_three_descriptors_are_open(vm_factory: Callable[..., VM], permissions: object) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    os.set_inheritable(writer, True)
    try:
        vm = vm_factory(permissions=permissions)
        program = "import os; print([fd for fd in range(4096) if not _closed(fd)])"
        helper = "def _closed(fd):\n    try: os.fstat(fd)\n    except OSError: return True\n    return False\n"
        assert vm.run(["python3", "-c", f"import os\n{helper}{program}"]).stdout == "[0, 1, 2]\n"
        assert vm.run("ls /proc/self/fd | wc -l").stdout.strip() == "4"  # and the one that ls lists with
    finally:
        os.close(reader)
        os.close(writer)


def test_the_standard_streams_are_pipes_that_lead_to_no_file_of_the_host(
    vm_factory: Callable[..., VM], permissions: object
) -> None:
    script = "for n in 0 1 2; do readlink /proc/self/fd/$n; done | cut -d: -f1; ls -l /dev/fd/0 | grep -c pipe"
    assert vm_factory(permissions=permissions).run(script).stdout.split()[0] == "pipe"
    program = "import os, stat; print([stat.S_ISFIFO(os.fstat(n).st_mode) for n in range(3)], [os.isatty(n) for n in range(3)])"
    result = vm_factory(permissions=permissions).run(["python3", "-c", program])
    assert result.stdout == "[True, True, True] [False, False, False]\n"


def test_the_command_line_does_not_pass_a_file_of_the_host_on(tmp_path: Path) -> None:
    """Standard input from a file: the guest gets its content, not a descriptor that it could open again for writing."""
    path = tmp_path / "input"
    path.write_text("content")
    script = "cat; stat -L -c %F /dev/stdin; echo changed > /proc/self/fd/0 || echo refused"
    with path.open("r+") as stdin:
        command = [sys.executable, "-m", "callgate", "run", "--", "sh", "-c", script]
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.startswith("contentfifo")
    assert path.read_text() == "content"


def test_the_limits_that_the_status_shows_are_those_in_force(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory()
    limits = vm.status().limits
    program = (
        "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[1], resource.getrlimit(resource.RLIMIT_NOFILE)[1])"
    )
    assert vm.run(["python3", "-c", program]).stdout == f"{limits['processes']} {limits['open_files']}\n"
    assert limits["open_files"] <= resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def test_a_clean_start_signals_mask_and_dispositions(vm_factory: Callable[..., VM], permissions: object) -> None:
    shown = vm_factory(permissions=permissions).run("grep -h '^Sig\\|^Shd' /proc/self/status").stdout
    masks = {name.rstrip(":"): value for name, value in (line.split() for line in shown.splitlines()) if name != "SigQ:"}
    assert {name: value for name, value in masks.items() if name in ("SigBlk", "SigIgn", "SigPnd", "ShdPnd")} == dict.fromkeys(
        ("SigPnd", "ShdPnd", "SigBlk", "SigIgn"), "0" * 16
    )


def test_the_working_directory_is_the_guests(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=deny("/w/**"), files=probe.files)
    assert vm.run(["pwd"]).stdout == "/home/agentos\n"
    assert vm.run(["readlink", "/proc/self/cwd"]).stdout == "/home/agentos\n"
