"""What a caller has set for itself: its umask, its limit on the size of files, and what a directory's bits make of new files."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate import VM
from tests.syscalls.comparison import Case, Fd, Out, Raw, Step, case
from tests.syscalls.conftest import Answers
from tests.vm_fixtures import judged_but_allowed

pytestmark = pytest.mark.vm

W, CREAT = 1, 0o100
FSIZE, UNLIMITED = 1, 2**64 - 1
S_IFIFO, S_IFSOCK, S_IFREG = 0o010000, 0o140000, 0o100000
LIMIT: Step = ("prlimit64", 0, FSIZE, Raw(struct.pack("<QQ", 40, UNLIMITED)), None)
NO_LIMIT: Step = ("prlimit64", 0, FSIZE, Raw(struct.pack("<QQ", UNLIMITED, UNLIMITED)), None)  # the same process goes on
SETGID: Step = ("chmod", "dir", 0o2775)
TEXT = Raw(bytes(100))


def limited(*steps: Step) -> Case:
    """Steps under a limit of 40 bytes, and the size of the file."""
    return case(LIMIT, *steps, NO_LIMIT, ("stat", "file", Out(144)))


MAKING: dict[str, Step] = {
    "a file": ("open", "{0}new", W | CREAT, 0o6777),
    "a directory": ("mkdir", "{0}new", 0o7777),
    "a fifo": ("mknod", "{0}new", S_IFIFO | 0o6777, 0),
    "a socket": ("mknod", "{0}new", S_IFSOCK | 0o6777, 0),
    "a node of a file": ("mknod", "{0}new", S_IFREG | 0o6777, 0),
    "a file of no name": ("open", "{0}.", 0o20200002, 0o6777),
    "a link": ("symlink", "text", "{0}new"),
}


def making(step: Step, folder: str) -> Step:
    return tuple(one.format(folder) if isinstance(one, str) else one for one in step)


CASES: dict[str, Case] = {
    **{
        f"{what} under umask {mask:o}": case(("umask", mask), making(step, ""))
        for what, step in MAKING.items()
        for mask in (0, 0o22, 0o77, 0o777, 0o7777)
    },
    **{f"{what} in a set-group-ID directory": case(SETGID, ("umask", 0), making(step, "dir/")) for what, step in MAKING.items()},
    **{f"{what} in a sticky directory": case(("umask", 0), making(step, "sticky/")) for what, step in MAKING.items()},
    "a directory below a set-group-ID directory": case(SETGID, ("mkdir", "dir/new", 0o755), ("mkdir", "dir/new/below", 0o755)),
    "a set-group-ID bit kept": case(SETGID, ("mkdir", "dir/new", 0o755), ("chmod", "dir/new", 0o2700)),
    "a set-group-ID bit taken away": case(SETGID, ("mkdir", "dir/new", 0o755), ("chmod", "dir/new", 0o700)),
    "removing from a sticky directory": case(("open", "sticky/new", W | CREAT, 0o600), ("unlink", "sticky/new")),
    "moving out of a sticky directory": case(("open", "sticky/new", W | CREAT, 0o600), ("rename", "sticky/new", "new")),
    "opening what is in a sticky directory": case(
        ("open", "sticky/new", W | CREAT, 0o666), ("open", "sticky/new", W | CREAT, 0o666)
    ),
    "following a link in a sticky directory": case(("symlink", "../file", "sticky/link"), ("open", "sticky/link", 0)),
    "making longer than the limit": limited(("truncate", "file", 41)),
    "making as long as the limit": limited(("truncate", "file", 40)),
    "making shorter under the limit": limited(("truncate", "file", 3)),
    "ftruncate over the limit": limited(("open", "file", W), ("ftruncate", Fd(1), 41)),
    "writing over the limit": limited(("open", "file", W), ("write", Fd(1), TEXT, 100), ("write", Fd(1), TEXT, 100)),
    "allocating over the limit": limited(("open", "file", W), ("fallocate", Fd(1), 0, 0, 41)),
    "copying over the limit": limited(
        ("open", "file", 2), ("copy_file_range", Fd(1), None, Fd(1), Raw(bytes([50] + [0] * 7)), 5, 0)
    ),
    "creating under the limit": limited(("open", "new", W | CREAT, 0o600), ("write", Fd(1), TEXT, 100)),
}


def test_a_judged_call_is_the_hosts(answers: Answers) -> None:
    assert answers.vm == answers.host


UMASKS = """
import ctypes, os, threading
libc = ctypes.CDLL(None)

def mode(name):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o777))
    return oct(os.stat(name).st_mode & 0o777)

print("first", mode("/tmp/first"))
if os.fork() == 0:
    os.umask(0o077)
    print("child", mode("/tmp/child"), flush=True)
    os._exit(0)
os.wait()
print("parent", mode("/tmp/parent"))

def apart():
    libc.unshare(0x200)  # CLONE_FS: refused in a VM, so the thread's umask is everybody's
    os.umask(0o027)

thread = threading.Thread(target=apart)
thread.start(); thread.join()
print("after a thread's", mode("/tmp/thread"))
os.umask(0o022)
print("set back", mode("/tmp/back"))
"""


def test_the_umask_of_the_moment_is_used() -> None:
    with VM(judged_but_allowed(), files={"/home/agentos/umasks.py": UMASKS}) as vm:
        first, second = (vm.run(["python3", "-u", "umasks.py"]) for _ in range(2))
    expected = ["first 0o755", "child 0o700", "parent 0o755", "after a thread's 0o750", "set back 0o755"]
    assert (first.stdout.splitlines(), first.stderr) == (expected, "")
    # In the second the files are there already, and keep the modes of the first.
    assert second.stdout.splitlines() == expected


#: What umask(2) returns is taken for a mask: it cannot fail, however many signals arrive.
UNDER_SIGNALS = """
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
static void ring(int signal) { (void)signal; }
int main(void) {
    const struct sigaction action = {.sa_handler = ring};
    const struct itimerval often = {{0, 150}, {0, 150}};
    long wrong = 0;
    if (sigaction(SIGALRM, &action, 0) != 0 || setitimer(ITIMER_REAL, &often, 0) != 0) return 1;
    for (long i = 0; i < 100000; i++) wrong += syscall(SYS_umask, 022) != 022;
    printf("%ld\\n", wrong);
    return 0;
}
"""


@pytest.mark.parametrize("permissions", [None, judged_but_allowed(), {"fs": "deny"}], ids=["default", "judged", "denied"])
def test_asking_for_the_umask_does_not_fail(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path], permissions: dict[str, object] | None
) -> None:
    vm = vm_factory(permissions=permissions, files={"/opt/umask": compile_c(UNDER_SIGNALS).read_bytes()})
    vm.fs.unchecked.chmod("/opt/umask", 0o755)
    assert vm.run(["/opt/umask"], timeout=60).stdout == "0\n"
