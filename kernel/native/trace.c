/* On-demand ptrace: only for the length of one call, only where the supervisor cannot make the call itself (exec, chdir).
 *
 * The thread waits in seccomp, killable only: seizing and interrupting it there makes it stop at the exec event or at the call's return,
 * whichever comes first, with no instruction of its own in between (ptrace(2); measured: exactly one stop).
 */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static void follow(struct cg_call *call, bool (*approve)(struct cg_call *, pid_t, enum cg_stop, const void *), const void *context) {
    for (;;) {
        /* This thread traces nobody else. After an exec the tracee has its group's id, whichever thread called. */
        int status;
        pid_t pid = waitpid(-1, &status, __WALL | __WNOTHREAD);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0 || WIFEXITED(status) || WIFSIGNALED(status)) return;
        const bool exec = status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8), stopped = status >> 16 == PTRACE_EVENT_STOP;
        if (!exec && !stopped) { /* a signal for the guest: deliver it */
            ptrace(PTRACE_CONT, pid, 0, WSTOPSIG(status));
            continue;
        }
        if (approve(call, pid, exec ? CG_STOP_EXEC : CG_STOP_RETURN, context)) {
            ptrace(PTRACE_DETACH, pid, 0, 0);
            return;
        }
        kill(pid, SIGKILL);
        while ((pid = waitpid(-1, &status, __WALL | __WNOTHREAD)) >= 0 || errno == EINTR)
            if (pid > 0 && (WIFEXITED(status) || WIFSIGNALED(status))) return;
        return;
    }
}

void cg_run_proved(struct cg_call *call, const char *reason, bool (*approve)(struct cg_call *, pid_t, enum cg_stop, const void *), const void *context) {
    if (ptrace(PTRACE_SEIZE, call->tid, 0, PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL) != 0 || ptrace(PTRACE_INTERRUPT, call->tid, 0, 0) != 0) {
        cg_answer_error(call, EACCES); /* it cannot be proved, so it does not run */
        return;
    }
    cg_answer_continue(call, reason);
    cg_block_begin(call); /* for as long as the kernel needs for the call */
    follow(call, approve, context);
    cg_block_end(call);
}
