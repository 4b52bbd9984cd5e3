"""Filters of a guest's own take away and give nothing; a thread that outlived the first is judged (catalogue 99, 100, 109)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

#: Installs a filter as its argument says, then tells what openat and open of two files and exec of two programs give.
FILTERED = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static int install(unsigned answer, int only_openat) {
    struct sock_filter one[] = {BPF_STMT(BPF_RET | BPF_K, answer)};
    struct sock_filter four[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, answer), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {only_openat ? 4 : 1, only_openat ? four : one};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
static int opened(int number, const char *path) {
    const long fd = number == SYS_open ? syscall(SYS_open, path, O_RDONLY) : syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
    return fd < 0 ? errno : (close((int)fd), 0);
}
static int executed(const char *path) {
    int status;
    const pid_t pid = fork();
    if (pid == 0) {
        syscall(SYS_execve, path, (char *[]){"x", NULL}, (char *[]){NULL});
        _exit(errno);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
int main(int argc, char **argv) {
    long count = 0;
    const char *how = argc > 1 ? argv[1] : "none";
    if (strcmp(how, "strict") == 0) count = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0 ? 0 : -errno;
    if (strcmp(how, "errno") == 0) count = install(SECCOMP_RET_ERRNO | 7, 1);
    if (strcmp(how, "notify") == 0) count = install(SECCOMP_RET_USER_NOTIF, 1);
    if (strcmp(how, "trace") == 0) count = install(SECCOMP_RET_TRACE, 1);
    if (strcmp(how, "allow") == 0) count = install(SECCOMP_RET_ALLOW, 0);
    if (strcmp(how, "stack") == 0) while (install(SECCOMP_RET_ALLOW, 0) == 0) count++;
    printf("%ld %d %d %d %d %d %d\n", count, opened(SYS_openat, "/w/plain"), opened(SYS_openat, "/w/secret"),
           opened(SYS_open, "/w/plain"),
           opened(SYS_open, "/w/secret"), executed("/opt/allowed"), executed("/opt/denied"));
    return 0;
}
"""

POLICY = {**deny("/w/secret"), "childProcess": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["/opt/denied"]}]}}


@pytest.fixture
def files(compile_c: Callable[..., Path]) -> dict[str, bytes]:
    nothing = compile_c("int main(void) { return 0; }").read_bytes()
    return {
        "/opt/filtered": compile_c(FILTERED).read_bytes(),
        "/opt/allowed": nothing,
        "/opt/denied": nothing,
        "/w/plain": b"plain",
        "/w/secret": b"secret",
    }


#: What installing it and openat of both files give; open and exec are judged as ever. Of two filters that both hand a call to
#: somebody the newer one's listener counts, and it has none. Strict mode is no longer to be had under a filter.
OWN = {
    "none": (0, 0, 13),
    "allow": (0, 0, 13),
    "errno": (0, 7, 7),
    "notify": (0, 38, 38),
    "trace": (0, 0, 13),
    "strict": (-22, 0, 13),
}


@pytest.mark.parametrize("how", OWN)
def test_a_filter_of_its_own_takes_away_and_gives_nothing(
    vm_factory: Callable[..., VM], files: dict[str, bytes], how: str
) -> None:
    vm = vm_factory(permissions=POLICY, files=files)
    found = tuple(int(word) for word in vm.run(["/opt/filtered", how], timeout=60).stdout.split())
    assert found == (*OWN[how], 0, 13, 0, 13)


def test_filters_stacked_to_the_limit_change_no_verdict(vm_factory: Callable[..., VM], files: dict[str, bytes]) -> None:
    free = vm_factory(files=files).run(["/opt/filtered", "stack"], timeout=120).stdout.split()
    assert int(free[0]) > 100
    assert free[1:] == ["0"] * 6  # the control
    judged = vm_factory(permissions=POLICY, files=files).run(["/opt/filtered", "stack"], timeout=120).stdout.split()
    assert int(judged[0]) > 100
    assert judged[1:] == ["0", "13", "0", "13", "0", "13"]


SURVIVOR = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static const char *program;
static void *outlive(void *unused) {
    (void)unused;
    char state[64] = "", path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", getpid());
    while (!strstr(state, ") Z")) { /* until the first thread is a zombie: its entries in /proc are gone */
        int fd = open(path, O_RDONLY);
        if (read(fd, state, sizeof state - 1) < 0) break;
        close(fd);
    }
    if (chdir("/opt") != 0) _exit(98);
    execl(program, program, (char *)0);
    _exit(errno);
}
int main(int argc, char **argv) {
    pthread_t thread;
    program = argv[argc - 1];
    pthread_create(&thread, NULL, outlive, NULL);
    pthread_exit(NULL);
}
"""


def test_a_thread_that_outlived_the_first_executes_what_was_judged(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path], files: dict[str, bytes]
) -> None:
    survivor = {"/opt/survivor": compile_c(SURVIVOR).read_bytes()}
    variables = {"env": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["SECRET"]}]}}
    for permissions in (None, {**POLICY, **variables}):
        vm = vm_factory(permissions=permissions, files=files | survivor)
        codes = [
            vm.run(["/opt/survivor", name], timeout=30).returncode
            for name in ("./allowed", "/opt/allowed", "./denied", "./absent")
        ]
        assert codes == ([0, 0, 0, 2] if permissions is None else [0, 0, 13, 2])
