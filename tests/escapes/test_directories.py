"""Working directories that change, threads that have their own, and renames on the way (catalogue 11 to 13)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.escapes.three_ways import ThreeWays
from tests.vm_fixtures import as_ordinary_user, call, deny, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R = os.O_RDONLY


def test_a_thread_with_a_directory_of_its_own_is_judged_in_that(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [call("chdir", f"{top}/vault"), call("open", "inner", R), call("chdir", f"{top}/open"), call("open", "inner", R)]

    for caller in ("lone-fs", "thread", "sharer"):
        three_ways.works(script, [0, 3, 0, 4], caller=caller)
        three_ways.refused(script, [0, -EACCES, 0, 3], "vault/inner", caller=caller)


def test_a_directory_may_not_be_entered_where_stat_is_denied(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [call("chdir", f"{top}/open"), call("chdir", "../vault"), call("open", "inner", R)]

    three_ways.works(script, [0, 0, 3])
    answers = results(three_ways.where_refused(script, "vault/**"))
    assert answers == [0, -EACCES, 3]  # it is still in the first one, whose file has the same name


STORM = """
import errno, os, sys, threading, time
top = sys.argv[1]
os.makedirs(f"{top}/a/b/c/d")
os.makedirs(f"{top}/x")
with open(f"{top}/a/b/c/d/file", "w") as file: file.write("allowed")
stop = threading.Event()
def storm():
    while not stop.is_set():
        os.rename(f"{top}/a/b/c", f"{top}/x/c")
        os.rename(f"{top}/x/c", f"{top}/a/b/c")
thread = threading.Thread(target=storm)
thread.start()
seen = set()
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for path in ("a/b/c/d/file", "a/b/c/../../../vault/inner", "a/b/c/d/../d/../d/file"):
        try:
            with open(f"{top}/{path}") as file: seen.add(file.read())
        except OSError as error: seen.add(errno.errorcode[error.errno])
stop.set(); thread.join()
print(*sorted(seen))
"""


@pytest.mark.parametrize("seconds", ["2", pytest.param("12", marks=pytest.mark.slow)])
def test_a_storm_of_renames_gives_the_file_or_a_plain_errno(vm_factory: Callable[..., VM], host_dir: Path, seconds: str) -> None:
    """Never denied content, and never the EAGAIN of a look-up that was disturbed."""
    command = as_ordinary_user(["/usr/bin/python3", "-c", STORM, str(host_dir), "2"])
    (host_dir / "vault").mkdir()
    (host_dir / "vault/inner").write_text("reached")
    on_host = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert set(on_host) == {"allowed", "reached", "ENOENT"}

    vm = vm_factory(permissions=deny("/w/vault/inner"), files={"/w/vault/inner": b"reached"})
    in_vm = vm.run(["python3", "-c", STORM, "/w", seconds], timeout=60).stdout.split()
    assert set(in_vm) == {"allowed", "EACCES", "ENOENT"}
