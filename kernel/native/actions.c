/* Verdicts of the process scope: on one process by its number, and on several one by one. */
#define _GNU_SOURCE
#include "actions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS_MAX 64 /* looks for processes that were made meanwhile, which the kernel's own call would not have missed */

/* A refusal is recorded, and not answered. */
static bool judge(struct cg_call *call, const char *action, long process) {
    char subject[64];
    int32_t rule = CG_RULE_DEFAULT;
    const int n = snprintf(subject, sizeof subject, "%s:%ld", action, process);
    if (cg_policy_decide(call->vm->launch.policy, CG_SCOPE_PROCESS, 0, subject, (size_t)n, &rule) == 1) return true;
    cg_record(call, CG_SCOPE_PROCESS, 0, rule, subject, (size_t)n, NULL, "");
    return false;
}

/* The process that a number means (that of its thread) and its parent, in the VM's numbers. False: there is none, in this VM. */
static bool find_process(struct cg_vm *vm, long number, long *process, long *parent) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "proc/%ld/status", number);
    int fd = openat(vm->root.top, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *tgid = strstr(text, "\nTgid:"), *ppid = strstr(text, "\nPPid:"); /* a newline in the program's name is shown as \\n */
    if (!tgid || !ppid) return false;
    *process = strtol(tgid + 6, NULL, 10), *parent = strtol(ppid + 6, NULL, 10);
    return true;
}

bool cg_may_act(struct cg_call *call, const struct cg_caller *who, const char *action, long number) {
    long process, parent;
    if (number < 0) return true; /* nobody: the kernel says which error that is */
    if (!find_process(call->vm, number, &process, &parent)) { cg_answer_error(call, ESRCH); return false; }
    /* A thread's number as well as its process's: should the thread end meanwhile, its number may come to be another process's. */
    if (process == who->inner_tgid || (judge(call, action, process) && (process == number || judge(call, action, number)))) return true;
    cg_answer_error(call, EACCES);
    return false;
}

/* Leaders are the children of init. So is what a killed leader left, until it is killed too. */
bool cg_is_leader_number(struct cg_vm *vm, long number) {
    long process, parent;
    return number > 0 && find_process(vm, number, &process, &parent) && parent == 1;
}

int cg_may_act_on_any(struct cg_call *call, const char *action) {
    char prefix[32];
    const int n = snprintf(prefix, sizeof prefix, "%s:", action);
    return cg_policy_constant_below(call->vm->launch.policy, CG_SCOPE_PROCESS, 0, prefix, (size_t)n);
}

static void act_on(struct cg_call *call, const struct cg_caller *who, const char *action, const struct cg_member *member,
                   int (*act)(struct cg_call *, const struct cg_member *), struct cg_outcome *outcome) {
    if (member->pid != who->tgid && !judge(call, action, member->inner)) {
        outcome->refused++;
        return;
    }
    const int error = act(call, member);
    if (error == 0) outcome->done++;
    else if (error != ESRCH) outcome->error = error; /* ESRCH: it has ended meanwhile */
}

struct cg_outcome cg_act_on_each(struct cg_call *call, const struct cg_caller *who, const char *action, struct cg_selection which,
                                 int (*act)(struct cg_call *, const struct cg_member *)) {
    struct cg_outcome outcome = {0, 0, 0};
    struct cg_members members = {0};
    size_t looked_at = 0;
    for (int round = 0; round < ROUNDS_MAX && cg_still_waiting(call); round++) {
        const int added = cg_members_add(call->vm, &members);
        if (added < 0) outcome.error = ENOMEM;
        if (added < 0 || (added == 0 && cg_members_complete(call->vm, &members))) break;
        for (; looked_at < members.count; looked_at++) {
            const struct cg_member *member = &members.list[looked_at];
            if (member->ours || member->pid == who->tgid || (!which.everybody && member->inner_group != which.group)) continue;
            act_on(call, who, action, member, act, &outcome);
        }
    }
    cg_members_release(&members);
    const struct cg_member itself = {who->tgid, who->inner_tgid, who->inner_group, false};
    if (which.itself) act_on(call, who, action, &itself, act, &outcome);
    return outcome;
}
