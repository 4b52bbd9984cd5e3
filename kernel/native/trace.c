/* On-demand ptrace: only for the length of one call, only where the supervisor cannot make the call itself (exec, chdir).
 *
 * The thread waits in seccomp, killable only: seizing and interrupting it there makes it stop at the exec event or at the call's return,
 * whichever comes first, with no instruction of its own in between (ptrace(2); measured: exactly one stop).
 */
#define _GNU_SOURCE
#include "trace.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

/* Until nothing is left to wait for: a tracee that was killed under us stays a zombie, which its own parent cannot reap, until we have seen it end. */
static void wait_out(void) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, __WALL | __WNOTHREAD)) > 0 || (pid < 0 && errno == EINTR))
        if (pid > 0 && WIFSTOPPED(status)) ptrace(PTRACE_DETACH, pid, 0, 0);
}

static void follow(struct cg_call *call, bool (*approve)(struct cg_call *, pid_t, enum cg_stop, const void *), const void *context) {
    for (;;) {
        /* This thread traces nobody else. After an exec the tracee has its group's id, whichever thread called. */
        int status;
        pid_t pid = waitpid(-1, &status, __WALL | __WNOTHREAD);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return;
        if (WIFEXITED(status) || WIFSIGNALED(status)) continue; /* nothing left: the next wait says so */
        const bool exec = status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8), stopped = status >> 16 == PTRACE_EVENT_STOP;
        if (!exec && !stopped) { /* a signal for the guest: deliver it */
            ptrace(PTRACE_CONT, pid, 0, WSTOPSIG(status));
            continue;
        }
        if (approve(call, pid, exec ? CG_STOP_EXEC : CG_STOP_RETURN, context)) {
            if (ptrace(PTRACE_DETACH, pid, 0, 0) == 0) return;
        } else kill(pid, SIGKILL);
        wait_out();
        return;
    }
}

int cg_run_proved(struct cg_call *call, const char *reason, bool (*approve)(struct cg_call *, pid_t, enum cg_stop, const void *), const void *context) {
    if (ptrace(PTRACE_SEIZE, call->tid, 0, PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL) != 0) return -1;
    if (ptrace(PTRACE_INTERRUPT, call->tid, 0, 0) == 0) {
        cg_answer_continue(call, reason);
        cg_let_others_receive(call); /* for as long as the kernel needs for the call; should the caller be killed, the wait says so */
        follow(call, approve, context);
    } else { /* it was killed meanwhile */
        cg_answer_error(call, EACCES);
        wait_out();
    }
    return 0;
}

#if defined(__x86_64__)
#define STACK_POINTER(registers) ((registers).rsp)
#elif defined(__aarch64__)
#define STACK_POINTER(registers) ((registers).sp)
#endif

/* The kernel gives fewer bytes for a program of another ABI: those have no stack that we could read. */
int cg_stopped_stack(pid_t pid, uint64_t *pointer) {
    struct user_regs_struct registers;
    struct iovec part = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &part) != 0 || part.iov_len != sizeof registers) return -1;
    *pointer = STACK_POINTER(registers);
    return 0;
}

int cg_move_stopped_stack(pid_t pid, uint64_t pointer) {
    struct user_regs_struct registers;
    struct iovec part = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &part) != 0 || part.iov_len != sizeof registers) return -1;
    STACK_POINTER(registers) = pointer;
    return ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &part) == 0 ? 0 : -1;
}
