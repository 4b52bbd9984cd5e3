"""Once a call has returned, nobody but the guest holds what it opened: locks, running programs and disk space show it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import as_ordinary_user, judged_but_allowed

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

# Each prints how often something was still held that its only holder had just closed or removed.
PROGRAMS = {
    "a-program-just-written-can-be-executed": """
import errno, os
content = open("/usr/bin/true", "rb").read()
held = 0
for _ in range(1500):
    fd = os.open("program", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755)
    os.write(fd, content)
    os.close(fd)
    pid = os.fork()
    if pid == 0:
        try: os.execv("./program", ["program"])
        except OSError as error: os._exit(error.errno)
    held += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == errno.ETXTBSY
    os.unlink("program")
print(held)
""",
    "a-lock-ends-with-its-only-descriptor": """
import fcntl, os
held = 0
for _ in range(5000):
    fd = os.open("lock", os.O_RDWR | os.O_CREAT)
    try: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: held += 1
    os.close(fd)
print(held)
""",
    "a-fifo-without-a-reader-cannot-be-written": """
import errno, os
os.mkfifo("fifo")
held = 0
for _ in range(3000):
    os.close(os.open("fifo", os.O_RDONLY | os.O_NONBLOCK))
    try: os.close(os.open("fifo", os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error: assert error.errno == errno.ENXIO
    else: held += 1
print(held)
""",
    "the-space-of-a-removed-file-is-free-at-once": """
import os
held = 0
for _ in range(300):
    free = os.statvfs(".").f_bfree
    fd = os.open("big", os.O_WRONLY | os.O_CREAT)
    os.write(fd, bytes(1 << 20))
    os.close(fd)
    os.unlink("big")
    held += free - os.statvfs(".").f_bfree > 128
print(held)
""",
}


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return PROGRAMS[name]


def test_nothing_is_still_held_in_a_vm_that_judges(vm_factory: Callable[..., VM], program: str) -> None:
    result = vm_factory(permissions=judged_but_allowed()).run(["python3", "-c", program], cwd="/tmp", timeout=120)
    assert (result.stdout, result.stderr) == ("0\n", "")


def test_nothing_is_still_held_in_a_vm_that_does_not(vm_factory: Callable[..., VM], program: str) -> None:
    result = vm_factory().run(["python3", "-c", program], cwd="/tmp", timeout=120)
    assert (result.stdout, result.stderr) == ("0\n", "")


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "space" not in name])  # others use the host's file system too
def test_nothing_is_still_held_on_the_bare_host(name: str, host_dir: Path) -> None:
    command = as_ordinary_user(["/usr/bin/python3", "-c", PROGRAMS[name]])
    done = subprocess.run(command, cwd=host_dir, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")
