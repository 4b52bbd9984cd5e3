"""Who may not inspect a process does not reach into what it holds open either: pipes, memory files, the folder it works in."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

PROGRAM = """
import os, sys
base = f"/proc/{sys.argv[1]}"
def attempt(act):
    try: act()
    except OSError as error: return error.errno
    return 0
print(attempt(lambda: os.write(os.open(f"{base}/fd/0", os.O_WRONLY), b"injected\\n")),
      attempt(lambda: os.chmod(f"{base}/fd/0", 0o666)), attempt(lambda: os.utime(f"{base}/fd/0")),
      attempt(lambda: os.mkdir(f"{base}/cwd/made")), attempt(lambda: os.rmdir(f"{base}/cwd/made")))
"""
#: The pipe belongs to whoever runs these tests, who may be the one that guests are outside.
CHMOD = 1 if os.geteuid() == 0 else 0
NO_INSPECTING = {"process": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["inspect"]}]}}


@pytest.mark.parametrize(
    ("permissions", "answers", "heard"),
    [
        (None, f"0 {CHMOD} 0 0 0", "injected\n"),
        ({"process": "deny"}, "13 13 13 13 13", ""),
        (NO_INSPECTING, "13 13 13 13 13", ""),
    ],
    ids=["control", "no-process", "no-inspect"],
)
def test_the_input_of_another_run_is_its_own(
    vm_factory: Callable[..., VM], permissions: dict[str, object] | None, answers: str, heard: str
) -> None:
    vm = vm_factory(permissions=permissions)
    with vm.spawn(["cat"]) as victim:
        result = vm.run(["python3", "-c", PROGRAM, str(victim.pid)], timeout=30)
        assert (result.stdout.strip(), result.stderr) == (answers, "")
        assert victim.communicate(timeout=30)[0] == heard
