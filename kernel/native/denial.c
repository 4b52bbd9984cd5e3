/* Verdicts, refusals and their records. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "supervisor.h"

#define HELLO_WAITS 100
#define HELLO_WAIT_US 500

void cg_denial_write(struct cg_writer *out, const struct cg_denial *denial) {
    cg_write_u32(out, denial->scope);
    cg_write_u32(out, denial->operation);
    cg_write_i32(out, denial->rule);
    cg_write_u32(out, denial->pid);
    cg_write_u64(out, denial->time);
    cg_write_bytes(out, denial->subject, denial->subject_length);
    cg_write_bytes(out, denial->requested, denial->requested_length);
    cg_write_bytes(out, denial->program, strlen(denial->program));
    cg_write_bytes(out, denial->reason, strlen(denial->reason));
}

/* What the caller runs, as the VM sees it; "" when that cannot be told. */
static void program_of(struct cg_vm *vm, pid_t tid, char *to, size_t size) {
    char path[32];
    snprintf(path, sizeof path, "%d/exe", tid);
    ssize_t n = readlinkat(vm->root.host_proc, path, to, size - 1);
    to[n > 0 ? n : 0] = '\0';
}

static void send_record(struct cg_vm *vm, pid_t tid, const struct cg_denial *denial, bool may_wait) {
    uint8_t buffer[sizeof *denial + 128];
    struct cg_writer out = {buffer, buffer, buffer + sizeof buffer, 0};
    bool certain;
    uint32_t number = cg_run_of(vm, tid, &certain);
    for (int wait = 0; may_wait && !certain && wait < HELLO_WAITS; wait++) { /* the main thread is about to learn whose it is */
        usleep(HELLO_WAIT_US);
        number = cg_run_of(vm, tid, &certain);
    }
    pthread_mutex_lock(&vm->runs_lock);
    struct cg_run *run = number ? cg_run_find(vm, number) : NULL;
    if (run && (run->over || run->events < 0)) run = NULL;
    if (!run) {
        atomic_fetch_add(&vm->dropped, 1);
    } else {
        cg_write_u32(&out, CG_EVENT_DENIAL);
        cg_write_u32(&out, run->number);
        cg_denial_write(&out, denial);
        if (run->sent_denials >= CG_DENIALS_PER_RUN || out.failed ||
            send(run->events, buffer, (size_t)(out.at - buffer), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            run->dropped_denials++; /* counted, and told with the run's end */
        else run->sent_denials++;
    }
    pthread_mutex_unlock(&vm->runs_lock);
}

static void describe(struct cg_denial *denial, struct cg_vm *vm, pid_t tid, enum cg_scope scope, unsigned operation, int32_t rule, const char *subject,
                     size_t length, const char *requested, const char *reason) {
    struct timespec now;
    struct cg_caller caller;
    clock_gettime(CLOCK_REALTIME, &now);
    denial->scope = scope;
    denial->operation = operation;
    denial->rule = rule;
    denial->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    denial->pid = tid && cg_caller_of(vm, tid, &caller) == 0 ? (uint32_t)caller.inner_tgid : 0;
    denial->subject_length = length < sizeof denial->subject ? length : sizeof denial->subject;
    memcpy(denial->subject, subject, denial->subject_length);
    const char *asked = requested && requested[0] ? requested : NULL;
    denial->requested_length = asked ? strnlen(asked, sizeof denial->requested) : denial->subject_length;
    memcpy(denial->requested, asked ? asked : subject, denial->requested_length);
    denial->program[0] = '\0';
    if (tid) program_of(vm, tid, denial->program, sizeof denial->program);
    snprintf(denial->reason, sizeof denial->reason, "%s", reason);
    atomic_fetch_add(&vm->denials, 1);
}

void cg_record(struct cg_call *call, enum cg_scope scope, unsigned operation, int32_t rule, const char *subject, size_t length, const char *requested,
               const char *reason) {
    struct cg_denial local, *denial = call->denial ? call->denial : &local;
    describe(denial, call->vm, call->tid, scope, operation, rule, subject, length, requested, reason);
    if (call->tid) send_record(call->vm, call->tid, denial, true);
}

void cg_refuse(struct cg_call *call, enum cg_scope scope, unsigned operation, int32_t rule, const char *subject, size_t length, const char *requested,
               const char *reason) {
    if (call->tentative) return;
    cg_record(call, scope, operation, rule, subject, length, requested, reason);
    cg_answer_error(call, EACCES);
}

void cg_refused_elsewhere(struct cg_vm *vm, pid_t tid, unsigned operation, int32_t rule, const char *subject, size_t length, const char *reason) {
    struct cg_denial denial;
    describe(&denial, vm, tid, CG_SCOPE_NETWORK, operation, rule, subject, length, NULL, reason);
    send_record(vm, tid, &denial, false);
}

bool cg_judge(struct cg_call *call, enum cg_scope scope, unsigned operation, const char *subject, size_t length, const char *requested) {
    int32_t rule = CG_RULE_DEFAULT;
    if (call->unchecked || cg_policy_decide(call->vm->launch.policy, scope, operation, subject, length, &rule) == 1) return true;
    cg_refuse(call, scope, operation, rule, subject, length, requested, "");
    return false;
}
