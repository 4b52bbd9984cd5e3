/* Runs a command on a host that lacks something: a seccomp filter fails the calls that would show it.
 *
 *   without WHAT COMMAND ARGUMENT...
 *
 * WHAT: namespaces        clone with CLONE_NEWUSER: EPERM, as where an administrator switched user namespaces off
 *       namespace-count   the same: ENOSPC, as where the limit is 0
 *       listener          seccomp with SECCOMP_FILTER_FLAG_NEW_LISTENER: EINVAL, as before Linux 5.0
 *       kill-only-wait    seccomp with SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: EINVAL, as before Linux 5.19
 *       second-listener   the listener is taken by another supervisor: EBUSY
 *       seccomp           seccomp: ENOSYS
 *       nothing           everything is there: the control
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct lack { const char *what; unsigned number, argument, bits; int error; };

static const struct lack lacks[] = {
    {"namespaces", SYS_clone, 0, CLONE_NEWUSER, EPERM},
    {"namespace-count", SYS_clone, 0, CLONE_NEWUSER, ENOSPC},
    {"listener", SYS_seccomp, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER, EINVAL},
    {"kill-only-wait", SYS_seccomp, 1, 32, EINVAL},
    {"second-listener", SYS_seccomp, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER, EBUSY},
    {"seccomp", SYS_seccomp, 0, ~0u, ENOSYS},
    {"nothing", SYS_vhangup, 0, ~0u, EPERM},
};

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "without: WHAT COMMAND ...\n"), 99;
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
        const struct lack *lack = &lacks[i];
        if (strcmp(argv[1], lack->what) != 0) continue;
        /* ~0 for any argument: the operation of seccomp is 0 for strict mode, so a bit test alone would let that through. */
        const struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, lack->number, 0, 4),
            BPF_JUMP(BPF_JMP | BPF_JA, lack->bits == ~0u ? 2 : 0, 0, 0),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * lack->argument),
            BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, lack->bits, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)lack->error),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = {sizeof filter / sizeof *filter, (struct sock_filter *)filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return perror("without"), 99;
        execvp(argv[2], argv + 2);
        return perror(argv[2]), 99;
    }
    return fprintf(stderr, "without: what is %s?\n", argv[1]), 99;
}
