/* Sending a signal to another process: judged as kill:<pid>. What a process sends to itself is never judged.
 *
 * A signal to one process by its number is sent by the kernel after an allow: the number is a register argument. One to a process group or to everybody, and one by
 * a pidfd, which another thread can exchange for a different one, are sent on behalf where the policy does not allow them all alike: one by one, to those whom
 * the policy allows. The receiver then sees SI_USER with the guest's uid and pid 0, as of any sender outside its pid namespace (the kernel insists).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actions.h"
#include "calls.h"

#ifndef PIDFD_SELF_THREAD
#define PIDFD_SELF_THREAD (-10000) /* Linux 6.15 */
#define PIDFD_SELF_THREAD_GROUP (-10001)
#endif
#ifndef PIDFD_SIGNAL_PROCESS_GROUP
#define PIDFD_SIGNAL_PROCESS_GROUP 4u /* Linux 6.9 */
#endif

#define ANYBODY "every process may be signalled, whichever it is by then"
#define ITSELF ": itself"

static int send_signal(struct cg_call *call, const struct cg_member *to) {
    const int signal = (int)call->args[1];
    struct cg_caller now;
    int pidfd = (int)syscall(SYS_pidfd_open, to->pid, 0), error = 0;
    if (pidfd < 0) return errno;
    /* Still the process that was judged, not another that was given its number. */
    if (cg_caller_of(call->vm, to->pid, &now) != 0 || now.inner_tgid != to->inner || now.inner_group != to->inner_group) error = ESRCH;
    else if (syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) != 0) error = errno;
    close(pidfd);
    return error;
}

/* kill(2): success if it could be sent to one of them. */
static void answer_signals(struct cg_call *call, struct cg_outcome outcome) {
    cg_answer_error(call, outcome.done ? 0 : outcome.refused ? EACCES : outcome.error ? outcome.error : ESRCH);
}

static void signal_many(struct cg_call *call, const struct cg_caller *who, bool everybody, pid_t group) {
    if (cg_may_act_on_any(call, "kill") == 1) cg_answer_continue(call, ANYBODY);
    else answer_signals(call, cg_act_on_each(call, who, "kill", (struct cg_selection){everybody, group, !everybody && group == who->inner_group}, send_signal));
}

static void kill_process(struct cg_call *call, const struct cg_caller *who) {
    const int target = (int)call->args[0];
    if (target == INT_MIN) cg_answer_error(call, ESRCH);
    else if (target <= 0) signal_many(call, who, target == -1, target == 0 ? who->inner_group : -target);
    else if (target == who->inner_tgid) cg_answer_continue(call, CG_REGISTERS ITSELF);
    else if (cg_may_act(call, who, "kill", target)) cg_answer_continue(call, CG_REGISTERS);
}

/* rt_sigqueueinfo and the calls that aim at a thread take no groups. */
static void signal_number(struct cg_call *call, const struct cg_caller *who) {
    const int target = (int)call->args[0];
    if (target <= 0) cg_answer_continue(call, "no process has such a number");
    else if (cg_may_act(call, who, "kill", target)) cg_answer_continue(call, CG_REGISTERS);
}

/* By the duplicate that was looked at. The caller's siginfo passes through the kernel's own test: a sender other than the process itself may not pretend to be the kernel. */
static void signal_by_descriptor(struct cg_call *call, const struct cg_caller *who) {
    const int number = (int)call->args[0], signal = (int)call->args[1];
    const unsigned flags = (unsigned)call->args[3];
    struct cg_member to;
    char info[sizeof(siginfo_t)];
    if (number == PIDFD_SELF_THREAD || number == PIDFD_SELF_THREAD_GROUP) { cg_answer_continue(call, CG_REGISTERS ITSELF); return; }
    if (cg_may_act_on_any(call, "kill") == 1) { cg_answer_continue(call, ANYBODY); return; }
    if (call->args[2] && cg_read_memory(call, call->args[2], info, sizeof info) != 0) { cg_answer_error(call, EFAULT); return; }
    const int pidfd = cg_take_descriptor(call, number);
    const int error = pidfd < 0 ? -pidfd : -cg_pidfd_process(call->vm, pidfd, &to);
    if (error) cg_answer_error(call, error);
    else if (flags & PIDFD_SIGNAL_PROCESS_GROUP) {
        if (flags != PIDFD_SIGNAL_PROCESS_GROUP) cg_answer_error(call, EINVAL);
        else signal_many(call, who, false, to.inner);
    } else if (cg_may_act(call, who, "kill", to.inner)) {
        /* From outside the namespace a signal would reach init, which is deaf to those from inside. */
        const long sent = to.pid == call->vm->init ? 0 : syscall(SYS_pidfd_send_signal, pidfd, signal, call->args[2] ? info : NULL, flags);
        cg_answer_error(call, sent == 0 ? 0 : errno);
    }
    if (pidfd >= 0) close(pidfd);
}

void process_signal(struct cg_call *call) {
    struct cg_caller who;
    if (cg_caller_of(call->vm, call->tid, &who) != 0) cg_answer_error(call, ESRCH);
    else if (call->nr == SYS_kill) kill_process(call, &who);
    else if (call->nr == SYS_pidfd_send_signal) signal_by_descriptor(call, &who);
    else signal_number(call, &who);
}
