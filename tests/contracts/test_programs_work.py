"""Programs that must simply work: under the default policy, and where every file call is judged because one folder is denied."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import PROGRAMS, as_ordinary_user, deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

POLICIES = {
    "default": None,
    "one-folder-denied": deny("/home/agentos/vault/**"),
    "no-writing-there": deny("/etc/**", operations=["write"]),
}

NAMED_AFTER_A_PROGRAM = ("bash", "busybox", "git", "gcc", "make", "perl", "node", "find", "tar", "xargs")
#: Each is run by sh -e in an empty directory of its own, first on the bare host.
SCRIPTS = {path.stem: path for path in sorted((PROGRAMS / "must_work").iterdir())}


def skip_unless_installed(name: str) -> None:
    """Only programs that lie where the VM has them too."""
    needed = name.partition("_")[0]
    if needed in NAMED_AFTER_A_PROGRAM:
        program = shutil.which(needed)
        if program is None or not os.path.realpath(program).startswith("/usr/"):
            pytest.skip(f"{needed} is not installed below /usr")


def outcome(returncode: int, stdout: str, stderr: str) -> tuple[int, list[str], str]:
    return returncode, stdout.splitlines(), stderr


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_does_what_it_does_on_the_bare_host(vm_factory: Callable[..., VM], host_dir: Path, name: str, policy: str) -> None:
    skip_unless_installed(name)
    script = "set -e\n" + SCRIPTS[name].read_text()
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(host_dir), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        as_ordinary_user(["/bin/sh", "-c", script]),
        capture_output=True,
        text=True,
        check=False,
        cwd=host_dir,
        env=environment,
        umask=0o022,
    )
    assert done.returncode == 0, done.stderr

    vm = vm_factory(permissions=POLICIES[policy], files={"/home/agentos/vault/key": b"0xC0FFEE"})
    vm.fs.unchecked.mkdir(str(host_dir), parents=True)
    result = vm.run(["/bin/sh", "-c", script], cwd=host_dir, env=environment, timeout=120)
    assert outcome(result.returncode, result.stdout, result.stderr) == outcome(done.returncode, done.stdout, done.stderr)
    assert result.denials == ()


def test_the_runs_own_folder_was_really_denied(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=POLICIES["one-folder-denied"], files={"/home/agentos/vault/key": b"0xC0FFEE"})
    result = vm.run(
        "cat vault/key; cp -r . /tmp/copy; find . ; tar cf /tmp/t.tar . 2>&1; grep -ra 0xC0FFEE /home /tmp 2>/dev/null"
    )
    assert "0xC0FFEE" not in result.stdout
    assert result.denials
