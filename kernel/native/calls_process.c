/* Calls by which one process acts on another: judged as <action>:<pid>. What a process does to itself is never judged.
 *
 * Their targets are register arguments, which nobody can change meanwhile, and pids of the VM's own namespace: letting the
 * kernel run them after an allow is exact.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"

#define REGISTERS "the target is a register argument, and a pid of the VM's own namespace"

static void judge(struct cg_call *call, const char *action, long pid, bool one) {
    char subject[64];
    if (one) pid = cg_process_of(call->vm, pid);
    int n = one ? snprintf(subject, sizeof subject, "%s:%ld", action, pid) : snprintf(subject, sizeof subject, "%s", action);
    if (cg_judge(call, CG_SCOPE_PROCESS, 0, subject, (size_t)n, NULL)) cg_answer_continue(call, REGISTERS);
}

/* A process group or everybody: allowed only if no rule could refuse it for one of them. */
static void judge_many(struct cg_call *call, const char *action) {
    if (cg_policy_constant(call->vm->launch.policy, CG_SCOPE_PROCESS, 0) == -1)
        cg_refuse(call, CG_SCOPE_PROCESS, 0, CG_RULE_UNSUPPORTED, action, strlen(action), NULL, "several processes at once under a process rule set are not supported");
    else judge(call, action, 0, false);
}

void process_signal(struct cg_call *call) {
    struct cg_caller who;
    if (cg_caller_of(call->vm, call->tid, &who) != 0) { cg_answer_error(call, ESRCH); return; }
    const int target = (int)call->args[0];
    switch (call->nr) {
    case SYS_kill: case SYS_rt_sigqueueinfo:
        if (target == who.inner_tgid) cg_answer_continue(call, REGISTERS ": itself");
        else if (target <= 0) judge_many(call, "kill");
        else judge(call, "kill", target, true);
        return;
    case SYS_tgkill: case SYS_rt_tgsigqueueinfo:
        if (target == who.inner_tgid) cg_answer_continue(call, REGISTERS ": itself");
        else judge(call, "kill", target, true);
        return;
    case SYS_tkill:
        if (cg_process_of(call->vm, target) == who.inner_tgid) cg_answer_continue(call, REGISTERS ": itself");
        else judge(call, "kill", target, true);
        return;
    default: /* pidfd_send_signal: which process the descriptor means can change under us */
        judge_many(call, "kill");
    }
}

void process_act(struct cg_call *call) {
    struct cg_caller who;
    if (call->nr == SYS_setsid && cg_take_setsid(call->vm, call->tid)) {
        cg_answer_continue(call, "no arguments; our own code before it becomes the operator's program");
        return;
    }
    if (cg_caller_of(call->vm, call->tid, &who) != 0) { cg_answer_error(call, ESRCH); return; }
    const int first = (int)call->args[0], second = (int)call->args[1];
    const bool self = first == 0 || first == who.inner_tgid || first == who.inner_tid;
    switch (call->nr) {
    case SYS_setsid: judge(call, "setsid", who.inner_tgid, true); return;
    case SYS_setpgid: judge(call, "setpgid", self ? who.inner_tgid : first, true); return;
    case SYS_setpriority: case SYS_ioprio_set: {
        const bool process = first == (call->nr == SYS_setpriority ? PRIO_PROCESS : 1 /* IOPRIO_WHO_PROCESS */);
        if (process && (second == 0 || second == who.inner_tgid || second == who.inner_tid)) cg_answer_continue(call, REGISTERS ": itself");
        else if (process) judge(call, "setpriority", second, true);
        else judge_many(call, "setpriority");
        return;
    }
    case SYS_sched_setaffinity:
        if (self) cg_answer_continue(call, REGISTERS ": itself");
        else judge(call, "setaffinity", first, true);
        return;
    case SYS_sched_setscheduler: case SYS_sched_setparam: case SYS_sched_setattr:
        if (self) cg_answer_continue(call, REGISTERS ": itself");
        else judge(call, "setscheduler", first, true);
        return;
    case SYS_prlimit64:
        if (self) cg_answer_continue(call, REGISTERS ": itself; raising a hard limit needs a capability no guest has");
        else judge(call, "prlimit", first, true);
        return;
    case SYS_pidfd_open:
        if (first == who.inner_tgid) cg_answer_continue(call, REGISTERS ": itself");
        else judge(call, "pidfd_open", first, true);
        return;
    default: /* ptrace and kin act on another process's memory or descriptors: refused whatever the rules say, until they are built */
        cg_refuse(call, CG_SCOPE_PROCESS, 0, CG_RULE_UNSUPPORTED, "ptrace", 6, NULL, "tracing between guests is not supported");
    }
}
