/* Worker threads: receive a notified call, hand it to its handler, answer it exactly once.
 *
 * Two workers at a time are receivers: one waits while the other handles a call. A notification wakes every thread that waits for one, so more would
 * only get in each other's way. A receiver keeps its role while it handles a call, and passes it on (to a waiting worker, or to a new one) when
 * nobody else receives and another call is already there, or when its own may block (opening a fifo, a full socket): such a call delays only its caller.
 * Where calls wait already, a worker that has just ended one takes the next without any role.
 * All signals stay blocked: an interrupted answer would leave the caller hanging.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "supervisor.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#define ERESTARTSYS 512 /* the kernel's own: EINTR, or begin again after the handler (SA_RESTART) */
#define SYNC_WAKE_UP 1ull /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6 */
#define RECEIVERS 2
#define SPARE_WORKERS 2 /* that may wait to become receivers */
#define STACK (512u * 1024)

struct cg_worker {
    struct cg_vm *vm;
    pthread_t thread;
    struct seccomp_notif *received;
    struct seccomp_notif_resp *response;
    bool receiver;                    /* this thread has one of vm->receivers */
    atomic_uint_least64_t blocked_in; /* id of the call while it may block; 0 otherwise */
    atomic_int blocked_for;           /* its caller */
    atomic_bool signalled;            /* interrupted because a signal waits for the caller */
};

static void pass_on(struct cg_worker *worker);

typedef void (*handler)(struct cg_call *);
static const handler handlers[CG_SYSCALL_MAX + 1] = {
#define CG_SYSCALL(number, name, function) [number] = function,
#include "syscall_table.h"
#undef CG_SYSCALL
};

static void respond(struct cg_call *call, int64_t value, int error, uint32_t flags) {
    struct seccomp_notif_resp *response = call->worker->response;
    memset(response, 0, call->vm->response_size);
    response->id = call->id;
    response->val = value;
    response->error = error;
    response->flags = flags;
    call->answered = true;
    /* ENOENT: the caller was killed meanwhile, there is nobody to answer. */
    while (ioctl(call->vm->listener, SECCOMP_IOCTL_NOTIF_SEND, response) != 0 && errno == EINTR) {}
}

/* Kept until the handler has returned, and with that has let go of all that it pinned: the caller may remove the file next, and then it must be gone. */
void cg_answer_error(struct cg_call *call, int error) {
    if (call->answered) return;
    call->answered = call->kept = true, call->error = error, call->value = 0;
}

void cg_answer_value(struct cg_call *call, int64_t value) {
    if (call->answered) return;
    call->answered = call->kept = true, call->error = 0, call->value = value;
}

void cg_send_answer(struct cg_call *call) {
    if (call->kept && call->tid != 0) respond(call, call->value, -call->error, 0);
    call->kept = false;
}

void cg_answer_continue(struct cg_call *call, const char *reason) {
    (void)reason; /* for the reader, and for the test that collects these sites */
    if (call->answered) return;
    if (call->tid == 0) { cg_answer_error(call, EACCES); return; }
    respond(call, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}

void cg_answer_fd(struct cg_call *call, int fd, bool close_on_exec) {
    if (call->tid == 0 && !call->answered) { call->answered = true, call->fd = fd; return; }
    if (call->answered) { close(fd); return; }
    /* Two steps, with ours closed between them. In one (ADDFD with SEND) the caller could run on while we still hold the open file, and a fifo would seem to have
     * one more end. Nothing can come between the two but the caller's death: it waits killable only. */
    struct seccomp_notif_addfd add = {.id = call->id, .srcfd = (uint32_t)fd, .newfd_flags = close_on_exec ? O_CLOEXEC : 0};
    const int theirs = ioctl(call->vm->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add), error = errno;
    close(fd);
    if (theirs >= 0) cg_answer_value(call, theirs);
    else cg_answer_error(call, error == EBADF || error == EINVAL ? EACCES : error); /* EMFILE: the guest's own limit */
}

void cg_answer_file(struct cg_call *call, int fd, bool close_on_exec) {
    if (call->tid == 0 || call->answered) { cg_answer_fd(call, fd, close_on_exec); return; }
    /* One step, which saves waking the caller twice. Only a lock of the open file and an exec of what was written can tell that we hold it a moment longer: they wait,
     * see cg_await_handed_over. */
    struct seccomp_notif_addfd add = {
        .id = call->id, .flags = SECCOMP_ADDFD_FLAG_SEND, .srcfd = (uint32_t)fd, .newfd_flags = close_on_exec ? O_CLOEXEC : 0};
    pthread_rwlock_rdlock(&call->vm->handing_over);
    const int theirs = ioctl(call->vm->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add), error = errno;
    close(fd);
    pthread_rwlock_unlock(&call->vm->handing_over);
    if (theirs >= 0) call->answered = true;
    else cg_answer_error(call, error == EBADF || error == EINVAL ? EACCES : error);
}

void cg_await_handed_over(struct cg_call *call) {
    pthread_rwlock_wrlock(&call->vm->handing_over);
    pthread_rwlock_unlock(&call->vm->handing_over);
}

bool cg_still_waiting(struct cg_call *call) {
    return call->tid == 0 || ioctl(call->vm->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &call->id) == 0;
}

static void interrupted(int signal) { (void)signal; }

void cg_let_others_receive(struct cg_call *call) {
    if (call->tid) pass_on(call->worker);
}

void cg_block_begin(struct cg_call *call) {
    if (call->tid == 0) return;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pass_on(call->worker);
    atomic_store(&call->worker->signalled, false);
    atomic_store(&call->worker->blocked_for, call->tid);
    atomic_store(&call->worker->blocked_in, call->id);
    atomic_fetch_add(&call->vm->blocked_workers, 1);
    const uint64_t more = 1;
    if (write(call->vm->wake, &more, sizeof more) < 0) {} /* full is fine: the main thread will look */
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

void cg_block_end(struct cg_call *call) {
    if (call->tid == 0) return;
    /* The signal is delivered when the caller returns: whether the call is then begun anew is decided there, as for any other (signal(7)). */
    const int error = errno == EINTR && atomic_load(&call->worker->signalled) ? ERESTARTSYS : errno;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    atomic_fetch_sub(&call->vm->blocked_workers, 1);
    atomic_store(&call->worker->blocked_in, 0);
    errno = error;
}

/* A signal that the caller would take, were it not waiting for us (it waits killable only). */
static bool signal_waits(struct cg_vm *vm, pid_t tid) {
    char path[32], text[4096];
    uint64_t pending = 0, shared = 0, blocked = 0, ignored = 0;
    snprintf(path, sizeof path, "%d/status", tid);
    int fd = openat(vm->root.host_proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "\nSigPnd:");
    return line && sscanf(line, "\nSigPnd: %" SCNx64 " ShdPnd: %" SCNx64 " SigBlk: %" SCNx64 " SigIgn: %" SCNx64, &pending, &shared, &blocked, &ignored) == 4 &&
           ((pending | shared) & ~blocked & ~ignored);
}

void cg_notify_tick(struct cg_vm *vm) {
    pthread_mutex_lock(&vm->workers_lock); /* none leaves meanwhile */
    for (size_t i = 0; i < CG_WORKERS_MAX; i++) {
        struct cg_worker *worker = vm->workers[i];
        if (!worker) continue;
        uint64_t id = atomic_load(&worker->blocked_in);
        if (!id) continue;
        if (ioctl(vm->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0) {
            if (!signal_waits(vm, atomic_load(&worker->blocked_for)) || atomic_load(&worker->blocked_in) != id) continue;
            atomic_store(&worker->signalled, true);
        }
        pthread_kill(worker->thread, SIGUSR1);
    }
    pthread_mutex_unlock(&vm->workers_lock);
}

static void *work(void *context);

static void release(struct cg_worker *worker) {
    free(worker->received), free(worker->response);
    free(worker);
}

static int start_worker(struct cg_vm *vm) {
    struct cg_worker *worker = calloc(1, sizeof *worker);
    pthread_attr_t attributes;
    int error = EAGAIN;
    size_t place = 0;
    if (!worker) return ENOMEM;
    worker->vm = vm;
    worker->received = calloc(1, vm->notif_size);
    worker->response = calloc(1, vm->response_size);
    pthread_mutex_lock(&vm->workers_lock);
    while (place < CG_WORKERS_MAX && vm->workers[place]) place++;
    if (place < CG_WORKERS_MAX && worker->received && worker->response && pthread_attr_init(&attributes) == 0) {
        pthread_attr_setstacksize(&attributes, STACK);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        atomic_fetch_add(&vm->waiting_workers, 1);
        error = pthread_create(&worker->thread, &attributes, work, worker);
        pthread_attr_destroy(&attributes);
        if (error) atomic_fetch_sub(&vm->waiting_workers, 1);
        else vm->workers[place] = worker, vm->worker_count++;
    }
    pthread_mutex_unlock(&vm->workers_lock);
    if (error) release(worker); /* the calls that are in flight go on with the workers there are */
    return error;
}

static void pass_on(struct cg_worker *worker) {
    struct cg_vm *vm = worker->vm;
    int free;
    if (worker->receiver) sem_post(&vm->receivers);
    worker->receiver = false;
    /* In this order: a worker that seems to be waiting may have just taken a call without any role; if that blocks as well, it gets here and sees the free one. */
    if (sem_getvalue(&vm->receivers, &free) == 0 && free > 0 && atomic_load(&vm->waiting_workers) == 0) start_worker(vm);
}

static bool is_pending(struct cg_vm *vm) {
    struct pollfd on = {.fd = vm->listener, .events = POLLIN};
    return poll(&on, 1, 0) > 0 && on.revents & POLLIN;
}

/* After a call was received by the last one that was receiving: who takes the next? */
static void keep_receiving(struct cg_worker *worker) {
    if (!atomic_exchange(&worker->vm->second_started, true)) start_worker(worker->vm);
    else if (is_pending(worker->vm)) pass_on(worker);
}

/* A worker too many goes, once it is no longer needed. False: others went first. */
static bool leave(struct cg_worker *worker) {
    struct cg_vm *vm = worker->vm;
    if (atomic_fetch_sub(&vm->waiting_workers, 1) <= SPARE_WORKERS) {
        atomic_fetch_add(&vm->waiting_workers, 1);
        return false;
    }
    pthread_mutex_lock(&vm->workers_lock);
    for (size_t i = 0; i < CG_WORKERS_MAX; i++)
        if (vm->workers[i] == worker) vm->workers[i] = NULL;
    vm->worker_count--;
    pthread_mutex_unlock(&vm->workers_lock);
    return true;
}

static void *work(void *context) {
    struct cg_worker *worker = context;
    struct cg_vm *vm = worker->vm;
    struct cg_call *call = calloc(1, sizeof *call);
    /* An umask and a working directory of its own: creating for a guest uses the guest's. */
    if (!call || unshare(CLONE_FS) != 0) abort(); /* fail closed: the VM dies with the supervisor */
    for (;;) {
        if (!worker->receiver) {
            cg_unpin_caller(call); /* one that waits, or goes, keeps nothing */
            worker->receiver = sem_trywait(&vm->receivers) == 0;
            if (!worker->receiver && !is_pending(vm)) { /* otherwise it takes that call, role or not: many callers at once are worth as many workers */
                if (atomic_load(&vm->waiting_workers) > SPARE_WORKERS && leave(worker)) break;
                while (sem_wait(&vm->receivers) != 0) {} /* EINTR */
                worker->receiver = true;
            }
            atomic_fetch_sub(&vm->waiting_workers, 1);
        }
        memset(worker->received, 0, vm->notif_size);
        atomic_fetch_add(&vm->receiving_workers, 1);
        const int received = ioctl(vm->listener, SECCOMP_IOCTL_NOTIF_RECV, worker->received), error = errno;
        const bool last = atomic_fetch_sub(&vm->receiving_workers, 1) == 1;
        if (received != 0) {
            if (error == EINTR) continue;
            struct pollfd on = {.fd = vm->listener, .events = POLLIN};
            if (error == ENOENT && poll(&on, 1, 0) >= 0 && !(on.revents & POLLHUP)) continue; /* that caller was killed */
            if (worker->receiver) sem_post(&vm->receivers);
            return NULL; /* no task is left under the filter: the main thread sees init end */
        }
        if (last) keep_receiving(worker);
        const struct seccomp_data *data = &worker->received->data;
        call->vm = vm;
        call->worker = worker;
        call->id = worker->received->id;
        call->tid = (pid_t)worker->received->pid;
        call->nr = data->nr;
        memcpy(call->args, data->args, sizeof call->args);
        call->answered = call->kept = call->unchecked = call->tentative = false;
        call->denial = NULL;
        atomic_fetch_add(&vm->notified, 1);
        handler function = call->tid > 0 && call->nr >= 0 && call->nr <= CG_SYSCALL_MAX ? handlers[call->nr] : NULL;
        if (function) function(call);
        if (!call->answered) cg_answer_error(call, EACCES); /* no handler, or one that did not decide: a denial */
        cg_send_answer(call);
        if (!worker->receiver) atomic_fetch_add(&vm->waiting_workers, 1);
    }
    cg_unpin_caller(call);
    free(call);
    release(worker);
    return NULL;
}

int cg_notify_start(struct cg_vm *vm) {
    struct seccomp_notif_sizes sizes;
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0) return -1;
    vm->notif_size = sizes.seccomp_notif > sizeof(struct seccomp_notif) ? sizes.seccomp_notif : sizeof(struct seccomp_notif);
    vm->response_size =
        sizes.seccomp_notif_resp > sizeof(struct seccomp_notif_resp) ? sizes.seccomp_notif_resp : sizeof(struct seccomp_notif_resp);
    vm->features = CG_FEATURE_WAIT_KILLABLE;
    if (ioctl(vm->listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) == 0) vm->features |= CG_FEATURE_SYNC_WAKE_UP;
    struct sigaction action = {.sa_handler = interrupted}; /* no SA_RESTART: it is there to interrupt */
    if (sigaction(SIGUSR1, &action, NULL) != 0) return -1;
    mallopt(M_ARENA_MAX, 1); /* an arena per thread would cost more memory than their sharing one costs time */
    pthread_rwlockattr_t attributes;
    if (sem_init(&vm->receivers, 0, RECEIVERS) != 0) return -1;
    errno = pthread_mutex_init(&vm->workers_lock, NULL);
    if (!errno) errno = pthread_rwlockattr_init(&attributes);
    if (!errno) errno = pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    if (!errno) errno = pthread_rwlock_init(&vm->handing_over, &attributes);
    if (errno) return -1;
    errno = start_worker(vm);
    return errno ? -1 : 0;
}
