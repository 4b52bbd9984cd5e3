/* Signals to what runs in the VM: to a run's first program, to its process group, and to leaders that a guest has stopped. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "supervisor.h"

#ifndef PIDFD_SIGNAL_PROCESS_GROUP
#define PIDFD_SIGNAL_PROCESS_GROUP 4u /* <linux/pidfd.h> of 6.9 */
#endif

/* Signal `pid` if it is still the child of `parent`: by pidfd, so that a recycled number is never hit. */
void cg_signal_child(struct cg_vm *vm, pid_t parent, pid_t pid, int signal) {
    struct cg_caller who;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) return;
    if (cg_caller_of(vm, pid, &who) == 0 && who.ppid == parent && !(who.zombie && signal == SIGKILL)) syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
    close(pidfd);
}

/* "12 13 14 ": the children of a process, as the kernel lists them; their text's length. */
ssize_t cg_children_of(struct cg_vm *vm, pid_t parent, char *text, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "%d/task/%d/children", parent, parent);
    int fd = openat(vm->root.host_proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n;
}

/* Signal the process group of `pid`, the first program: by its pidfd where the kernel can (Linux 6.9). Before it has made a group of its own, it alone. */
static void signal_group(struct cg_vm *vm, pid_t parent, pid_t pid, int signal) {
    struct cg_caller who;
    const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) return;
    if (cg_caller_of(vm, pid, &who) == 0 && who.ppid == parent) {
        const unsigned whom = who.group == pid ? PIDFD_SIGNAL_PROCESS_GROUP : 0;
        if (syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, whom) != 0 && whom && errno == EINVAL) kill(-pid, signal);
    }
    close(pidfd);
}

/* The first program is the leader's child with the number that the leader told. */
static void signal_first(struct cg_vm *vm, const struct cg_run *run, int signal, bool group) {
    char text[8192];
    struct cg_caller who;
    if (cg_children_of(vm, run->leader, text, sizeof text) <= 0) return;
    for (char *at = text, *end; *at; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at) return;
        while (*end == ' ') end++;
        if (cg_caller_of(vm, (pid_t)pid, &who) != 0 || who.inner_tgid != run->inner_first) continue;
        if (group) signal_group(vm, run->leader, (pid_t)pid, signal);
        else cg_signal_child(vm, run->leader, (pid_t)pid, signal);
    }
}

void cg_run_send_early(struct cg_vm *vm, struct cg_run *run) {
    for (int signal = 1; signal < NSIG; signal++) {
        if (run->early_first >> (signal - 1) & 1) signal_first(vm, run, signal, false);
        if (run->early_group >> (signal - 1) & 1) signal_first(vm, run, signal, true);
    }
}

int cg_run_signal(struct cg_vm *vm, uint32_t number, int signal, uint32_t whom) {
    struct cg_run *run = cg_run_find(vm, number);
    if (!run) return ESRCH;
    if (signal < 0 || signal >= NSIG || whom > CG_SIGNAL_GROUP) return EINVAL;
    if (whom == CG_SIGNAL_TREE) run->killing = true;
    else if (run->ended || run->over) return ESRCH;
    else if (run->leader) signal_first(vm, run, signal, whom == CG_SIGNAL_GROUP);
    else if (signal > 0) *(whom == CG_SIGNAL_GROUP ? &run->early_group : &run->early_first) |= 1ull << (signal - 1);
    return 0;
}

void cg_runs_continue_leaders(struct cg_vm *vm) {
    const size_t room = 1 << 16;
    char *text = malloc(room);
    if (text && cg_children_of(vm, vm->init, text, room) > 0)
        for (char *at = text, *end; *at; at = end) {
            long pid = strtol(at, &end, 10);
            if (end == at) break;
            while (*end == ' ') end++;
            bool held = false;
            for (size_t i = 0; i < CG_RUNS_MAX && !held; i++) held = vm->runs[i].used && vm->runs[i].held && vm->runs[i].leader == pid;
            if (!held) cg_signal_child(vm, vm->init, (pid_t)pid, SIGCONT);
        }
    free(text);
}
