"""Nobody notices that the supervisor had an opened file for a moment: neither who waits for its lock nor who runs it."""

from __future__ import annotations

import pytest

from callgate import VM
from tests.vm_fixtures import Permissions, judged_but_allowed

pytestmark = pytest.mark.vm

NO_CURL = {"default": "allow", "rules": [{"mode": "deny", "patterns": ["curl"]}]}

# Opened by name for reading only, locked, closed; the next round would find a lock that somebody still holds.
ROUNDS = """
import fcntl, os, struct, sys

OFD_SETLK = 37
lock = sys.argv[1]
open("/tmp/locked", "w").close()
held = 0
for _ in range(int(sys.argv[2])):
    fd = os.open("/tmp/locked", os.O_RDONLY if lock == "flock" else os.O_RDWR)
    again = os.open("/tmp/locked", os.O_RDONLY)
    try:
        if lock == "flock":
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(again, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
            os.close(again)
            fcntl.fcntl(fd, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
            again = os.open("/tmp/locked", os.O_RDONLY)
    except BlockingIOError:
        held += 1
    os.close(again)
    os.close(fd)
print(held)
"""


@pytest.mark.parametrize("lock", ["flock", "ofd"])
def test_a_lock_ends_with_its_holder_s_last_descriptor(lock: str) -> None:
    with VM(judged_but_allowed(), files={"/home/agentos/rounds.py": ROUNDS}) as vm:
        result = vm.run(["python3", "rounds.py", lock, "3000"])
    assert (result.stdout, result.stderr) == ("0\n", "")


TWO_HOLDERS = """
import fcntl, os

open("/tmp/locked", "w").close()
first, second = (os.open("/tmp/locked", os.O_RDONLY) for _ in range(2))
fcntl.flock(first, fcntl.LOCK_EX)
try:
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("both")
except BlockingIOError:
    print("one")
if os.fork() == 0:
    os.close(first)
    fcntl.flock(second, fcntl.LOCK_EX)
    print("the other", flush=True)
    os._exit(0)
os.close(first)
os.wait()
"""


def test_locks_still_exclude_each_other() -> None:
    with VM(judged_but_allowed(), files={"/home/agentos/two.py": TWO_HOLDERS}) as vm:
        result = vm.run(["python3", "-u", "two.py"], timeout=30)
    assert (result.stdout, result.stderr) == ("one\nthe other\n", "")


WRITTEN_AND_RUN = """
import os, sys

with open("/usr/bin/true", "rb") as true, open("/tmp/program", "wb") as program:
    program.write(true.read())
os.chmod("/tmp/program", 0o755)
busy = 0
for _ in range(int(sys.argv[1])):
    os.close(os.open("/tmp/program", os.O_WRONLY))
    try:
        os.waitpid(os.posix_spawn("/tmp/program", ["program"], {}), 0)
    except OSError as error:
        busy += 1
print(busy)
"""


@pytest.mark.parametrize(
    "permissions", [judged_but_allowed(), judged_but_allowed(childProcess=NO_CURL)], ids=["fs", "fs and exec"]
)
def test_what_was_just_written_can_be_run(permissions: Permissions) -> None:
    with VM(permissions, files={"/home/agentos/written.py": WRITTEN_AND_RUN}) as vm:
        result = vm.run(["python3", "written.py", "500"])
    assert (result.stdout, result.stderr) == ("0\n", "")
