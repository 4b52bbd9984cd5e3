/* ptrace and its kin: one process acting with another's memory or descriptors. Judged as ptrace:<pid>, and refused unless a rule names it (scopes/process.py).
 *
 * Whoever may trace a process may have it do anything, so what a rule allows here it allows altogether for that process: its signals, limits and environment are the tracer's. It is no
 * way beyond the policy, which is the same for every process of a VM: a call that a tracee is made to do is judged like any other (a tracer's change at the
 * entry of a call comes before the filter), and what we look at while a call waits for its answer cannot be changed, since a tracee that waits is not stopped.
 * Init, the leaders and our own code before a run's first exec are not dumpable: the kernel lets no guest trace them.
 *
 * A process that is traced by a guest cannot be seized by us. Where an exec or a change of directory has to be proved it is therefore refused (trace.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actions.h"
#include "calls.h"

#define SUSPEND_SECCOMP (1u << 21) /* PTRACE_O_SUSPEND_SECCOMP; the kernel wants CAP_SYS_ADMIN for it besides */

/* Its tracer becomes its parent: a guest's, not ours, which would be told of its stops. */
static void become_tracee(struct cg_call *call, const struct cg_caller *who) {
    struct cg_caller parent;
    if (cg_caller_of(call->vm, who->ppid, &parent) != 0 || cg_is_ours(call->vm, who->ppid, parent.ppid)) { cg_answer_error(call, EPERM); return; }
    char subject[] = "ptrace:-2147483648";
    const int n = snprintf(subject, sizeof subject, "ptrace:%d", who->inner_tgid);
    if (cg_judge(call, CG_SCOPE_PROCESS, 0, subject, (size_t)n, NULL)) cg_answer_continue(call, "no arguments");
}

static void trace(struct cg_call *call, const struct cg_caller *who) {
    const long request = (long)call->args[0], target = (int)call->args[1];
    if (request == PTRACE_TRACEME) become_tracee(call, who);
    else if (request == PTRACE_DETACH) cg_answer_continue(call, CG_REGISTERS ": giving a tracee up");
    else if ((request == PTRACE_SEIZE || request == PTRACE_SETOPTIONS) && call->args[3] & SUSPEND_SECCOMP) cg_answer_error(call, EPERM);
    else if (cg_may_act(call, who, "ptrace", target)) cg_answer_continue(call, CG_REGISTERS); /* every request: a tracee's children become tracees unasked */
}

/* On behalf, by the duplicate that was looked at: the caller's own may be another one by now. */
static void take_descriptor(struct cg_call *call, const struct cg_caller *who) {
    struct cg_member of;
    struct cg_caller owner;
    const int pidfd = cg_take_descriptor(call, (int)call->args[0]);
    const int error = pidfd < 0 ? -pidfd : -cg_pidfd_process(call->vm, pidfd, &of);
    if (error) cg_answer_error(call, error);
    else if (!cg_may_act(call, who, "ptrace", of.inner)) {
    } else if (cg_caller_of(call->vm, of.pid, &owner) != 0) cg_answer_error(call, ESRCH);
    else if (cg_is_ours(call->vm, of.pid, owner.ppid)) cg_answer_error(call, EPERM); /* the kernel's answer to a guest; we could */
    else {
        const int fd = (int)syscall(SYS_pidfd_getfd, pidfd, (int)call->args[1], (unsigned)call->args[2]);
        if (fd < 0) cg_answer_error(call, errno);
        else cg_answer_fd(call, fd, true);
    }
    if (pidfd >= 0) close(pidfd);
}

void process_trace(struct cg_call *call) {
    struct cg_caller who;
    if (cg_caller_of(call->vm, call->tid, &who) != 0) { cg_answer_error(call, ESRCH); return; }
    switch (call->nr) {
    case SYS_ptrace: trace(call, &who); return;
    case SYS_pidfd_getfd: take_descriptor(call, &who); return;
    case SYS_kcmp:
        if (cg_may_act(call, &who, "ptrace", (int)call->args[0]) && cg_may_act(call, &who, "ptrace", (int)call->args[1])) cg_answer_continue(call, CG_REGISTERS);
        return;
    default: /* process_vm_readv, process_vm_writev: which memory does not matter where all of the process's may be reached */
        if (cg_may_act(call, &who, "ptrace", (int)call->args[0])) cg_answer_continue(call, CG_REGISTERS);
    }
}
