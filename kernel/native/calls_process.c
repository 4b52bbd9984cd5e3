/* Priorities, affinities, scheduling, limits, groups and sessions: judged as <action>:<pid>. What a process does to itself is never judged, but for leaving its group or
 * session, which are actions of their own.
 *
 * A target is a register argument, which nobody can change meanwhile, and a number of the VM's own namespace: letting the kernel act on it after an allow is exact. Where a
 * call is about several processes and the policy does not allow them all alike, each is judged and acted on by itself.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actions.h"
#include "calls.h"

#define ITSELF ": itself"

/* ioprio_set(2) counts from 1 what setpriority(2) counts from 0. */
static int kind_of(const struct cg_call *call) { return (int)call->args[0] - (call->nr == SYS_ioprio_set); }

/* The kernel keeps both for every thread. */
static int set_priority(struct cg_call *call, const struct cg_member *of) {
    char path[32];
    int error = ESRCH;
    snprintf(path, sizeof path, "%d/task", of->pid);
    int tasks = openat(call->vm->root.host_proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = tasks < 0 ? NULL : fdopendir(tasks);
    for (struct dirent *entry; list && (entry = readdir(list)) != NULL;) {
        const long thread = strtol(entry->d_name, NULL, 10);
        if (thread <= 0) continue;
        const int which = call->nr == SYS_ioprio_set ? 1 /* IOPRIO_WHO_PROCESS */ : PRIO_PROCESS;
        if (syscall(call->nr, which, thread, (int)call->args[2]) == 0) error = error == ESRCH ? 0 : error;
        else if (errno != ESRCH) error = errno;
    }
    if (list) closedir(list);
    else if (tasks >= 0) close(tasks);
    return error;
}

static void act_on_one(struct cg_call *call, const struct cg_caller *who, const char *action, int number) {
    if (number == 0) cg_answer_continue(call, CG_REGISTERS ITSELF);
    else if (!cg_may_act(call, who, action, number)) {
    } else if (call->nr != SYS_pidfd_open && cg_is_leader_number(call->vm, number)) cg_answer_error(call, EPERM);
    else cg_answer_continue(call, CG_REGISTERS);
}

static void set_priorities(struct cg_call *call, const struct cg_caller *who) {
    const int kind = kind_of(call), number = (int)call->args[1];
    const bool itself = number == 0;
    if (kind == PRIO_PROCESS) {
        act_on_one(call, who, "setpriority", number);
        return;
    }
    if (kind != PRIO_PGRP && kind != PRIO_USER) { cg_answer_error(call, EINVAL); return; }
    if (kind == PRIO_USER && !itself && (uint32_t)number != call->vm->launch.guest_uid) { cg_answer_error(call, ESRCH); return; } /* a VM has one user */
    if (cg_may_act_on_any(call, "setpriority") == 1) { cg_answer_continue(call, "every process's priority may be set, whichever it is by then"); return; }
    const pid_t group = itself || kind == PRIO_USER ? who->inner_group : number;
    const struct cg_selection which = {kind == PRIO_USER, group, kind == PRIO_USER || group == who->inner_group};
    const struct cg_outcome outcome = cg_act_on_each(call, who, "setpriority", which, set_priority);
    /* setpriority(2): a failure for one of them is reported, though it was done to the others. */
    cg_answer_error(call, outcome.refused ? EACCES : outcome.error ? outcome.error : outcome.done ? 0 : ESRCH);
}

/* Leaving one's own group or session is judged too, as an action on oneself. */
static void leave(struct cg_call *call, const char *action, pid_t process) {
    char subject[48];
    const int n = snprintf(subject, sizeof subject, "%s:%d", action, process);
    if (cg_judge(call, CG_SCOPE_PROCESS, 0, subject, (size_t)n, NULL)) cg_answer_continue(call, CG_REGISTERS);
}

void process_act(struct cg_call *call) {
    struct cg_caller who;
    if (call->nr == SYS_setsid && cg_take_setsid(call->vm, call->tid)) {
        cg_answer_continue(call, "no arguments; our own code before it becomes the operator's program");
        return;
    }
    if (cg_caller_of(call->vm, call->tid, &who) != 0) { cg_answer_error(call, ESRCH); return; }
    const int first = (int)call->args[0];
    switch (call->nr) {
    case SYS_setsid: leave(call, "setsid", who.inner_tgid); return;
    case SYS_setpgid:
        if (first == 0 || cg_process_of(call->vm, first) == who.inner_tgid) leave(call, "setpgid", who.inner_tgid);
        else act_on_one(call, &who, "setpgid", first);
        return;
    case SYS_setpriority: case SYS_ioprio_set: set_priorities(call, &who); return;
    case SYS_sched_setaffinity: act_on_one(call, &who, "setaffinity", first); return;
    case SYS_sched_setscheduler: case SYS_sched_setparam: case SYS_sched_setattr: act_on_one(call, &who, "setscheduler", first); return;
    case SYS_prlimit64: act_on_one(call, &who, "prlimit", first); return; /* on itself: raising a hard limit needs a capability no guest has */
    case SYS_pidfd_open: act_on_one(call, &who, "pidfd_open", first); return;
    default: cg_answer_error(call, ENOSYS); /* the table names no other */
    }
}
