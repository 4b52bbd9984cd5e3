"""Programs started again and again, some killed on the way: the supervisor stays as small as it was (catalogue 68, 110, 131)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

#: vfork, exec and wait from several threads; every tenth program is not there, every eleventh is denied.
STARTS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
enum { THREADS = 4 };
static long count;
static long tally[THREADS][4]; /* ran, absent, denied, other */
static void *work(void *own) {
    long *mine = own;
    for (long i = 0; i < count / THREADS; i++) {
        int status = 0;
        const char *path = i % 10 == 0 ? "/opt/absent" : i % 11 == 0 ? "/opt/denied" : "/opt/nothing";
        pid_t pid = vfork();
        if (pid == 0) {
            execve(path, (char *[]){"x", "argument", NULL}, (char *[]){"SECRET=x", "PLAIN=y", NULL});
            _exit(errno == ENOENT ? 1 : errno == EACCES ? 2 : 3);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) mine[3]++;
        else mine[WEXITSTATUS(status) & 3]++;
    }
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    count = argc > 1 ? atol(argv[1]) : 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, tally[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int kind = 0; kind < 4; kind++) {
        long sum = 0;
        for (int i = 0; i < THREADS; i++) sum += tally[i][kind];
        printf("%ld ", sum);
    }
    return 0;
}
"""

POLICY = {
    "childProcess": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["/opt/denied"]}]},
    "env": {"default": "allow", "rules": [{"mode": "deny", "operations": ["read"], "patterns": ["SECRET"]}]},
    "process": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["kill:999"]}]},
}


def size_of(vm: VM) -> dict[str, int]:
    """What anybody may see of the supervisor: its memory in KiB, threads, and the size of its descriptor table."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{vm.status().supervisor_pid}/status").read_text().splitlines())
    return {name: int(fields[name].split()[0]) for name in ("VmRSS", "Threads", "FDSize")}


@pytest.fixture
def vm(vm_factory: Callable[..., VM], compile_c: Callable[..., Path]) -> VM:
    nothing = compile_c("int main(void) { return 0; }").read_bytes()
    return vm_factory(
        permissions=POLICY,
        files={"/opt/starts": compile_c(STARTS).read_bytes(), "/opt/nothing": nothing, "/opt/denied": nothing},
    )


def expected(count: int) -> list[int]:
    each = [1 if i % 10 == 0 else 2 if i % 11 == 0 else 0 for i in range(count // 4)]
    return [4 * each.count(kind) for kind in range(3)] + [0]


@pytest.mark.parametrize(
    "count", [pytest.param(2_000, id="short"), pytest.param(100_000, id="hundred-thousand", marks=pytest.mark.slow)]
)
def test_a_supervisor_does_not_grow_with_the_programs_it_judged(vm: VM, count: int) -> None:
    assert [int(word) for word in vm.run(["/opt/starts", "400"], timeout=120).stdout.split()] == expected(400)
    before = size_of(vm)
    result = vm.run(["/opt/starts", str(count)], timeout=60 + count / 100)
    assert [int(word) for word in result.stdout.split()] == expected(count)
    after = size_of(vm)
    assert after["FDSize"] == before["FDSize"]
    assert after["Threads"] <= before["Threads"] + 3  # as many as may wait
    assert after["VmRSS"] <= before["VmRSS"] + 256


KILLED = """
import os, random, signal, sys, time
random.seed(4)
killed = 0
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0: os.execve("/bin/true", ["true"], {"SECRET": "x"})
    time.sleep(random.random() * 0.003)
    os.kill(pid, signal.SIGKILL)
    killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
print(killed)
"""


def test_programs_killed_at_any_moment_of_their_exec_leave_nothing_behind(vm: VM) -> None:
    vm.run(["python3", "-c", KILLED, "50"], timeout=60)
    before = size_of(vm)
    killed = int(vm.run(["python3", "-c", KILLED, "500"], timeout=120).stdout)
    assert killed > 0
    after = size_of(vm)
    assert after["FDSize"] == before["FDSize"]
    assert after["Threads"] <= before["Threads"] + 3
    assert vm.run("true; echo alive").stdout == "alive\n"
    assert vm.status().programs_running == 0


def test_a_number_that_comes_to_be_another_process_is_judged_as_that(vm_factory: Callable[..., VM]) -> None:
    """Pids are used again; a caller's call is judged for who makes it, and a target by the number it has at that time."""
    rules = [{"mode": "deny", "patterns": ["kill:10", "kill:20"]}]
    vm = vm_factory(permissions={"process": {"default": "allow", "rules": rules}})
    program = (
        "import os, signal\nrefused = []\n"
        "for _ in range(40):\n    pid = os.fork()\n    if pid == 0: signal.pause()\n"
        "    try: os.kill(pid, 9)\n    except PermissionError:\n        refused.append(pid)\n"
        "        descriptor = os.pidfd_open(pid)\n"
        "        try: signal.pidfd_send_signal(descriptor, 9)\n        except PermissionError: refused.append(-pid)\n"
        "        continue\n    os.waitpid(pid, 0)\n"
        "print(refused)\n"
    )
    assert vm.run(["python3", "-c", program], timeout=60).stdout == "[10, -10, 20, -20]\n"
