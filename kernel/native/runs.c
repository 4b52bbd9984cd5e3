/* Programs the host started, their leaders, and their ends.
 *
 * Everything a run's programs fork stays below the run's leader. When the first program ends, or the host says so, what is left below the
 * leader is killed, again and again until nothing is; only then does the run end for the host.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "env.h"
#include "init.h"
#include "supervisor.h"

#define DEATH_MS 100 /* far more than a process needs to end */

static uint64_t microseconds(struct timeval time) { return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec; }

/* False: the host has not read what was sent before; to be tried again. */
static bool send_exited(struct cg_vm *vm, const struct cg_run *run) {
    uint8_t buffer[64];
    struct cg_writer out;
    cg_writer_init(&out, buffer, sizeof buffer);
    cg_write_u32(&out, CG_EVENT_EXITED);
    cg_write_u32(&out, run->number);
    cg_write_i32(&out, run->status);
    cg_write_u64(&out, microseconds(run->usage.ru_utime));
    cg_write_u64(&out, microseconds(run->usage.ru_stime));
    cg_write_u64(&out, (uint64_t)run->usage.ru_maxrss);
    cg_write_u64(&out, atomic_load(&vm->notified) - run->notified_before);
    cg_write_u64(&out, run->dropped_denials);
    cg_write_u32(&out, run->exceeded);
    return send(run->events, buffer, cg_writer_size(&out), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

static void send_started(struct cg_run *run, pid_t inner) {
    uint8_t buffer[16];
    struct cg_writer out = {buffer, buffer, buffer + sizeof buffer, 0};
    cg_write_u32(&out, CG_EVENT_STARTED);
    cg_write_u32(&out, run->number);
    cg_write_u32(&out, (uint32_t)inner);
    send(run->events, buffer, (size_t)(out.at - buffer), MSG_NOSIGNAL);
}

static void send_exec_failed(struct cg_run *run, int error, const char *stage) {
    uint8_t buffer[64];
    struct cg_writer out = {buffer, buffer, buffer + sizeof buffer, 0};
    cg_write_u32(&out, CG_EVENT_EXEC_FAILED);
    cg_write_u32(&out, run->number);
    cg_write_i32(&out, error);
    cg_write_bytes(&out, stage, strlen(stage));
    send(run->events, buffer, (size_t)(out.at - buffer), MSG_NOSIGNAL);
    run->exec_failed = true;
}

static void release(struct cg_vm *vm, struct cg_run *run) {
    pthread_mutex_lock(&vm->runs_lock);
    if (run->events >= 0) close(run->events);
    if (run->leader_socket >= 0) close(run->leader_socket);
    free(run->fixed);
    memset(run, 0, sizeof *run);
    run->events = run->leader_socket = -1;
    pthread_mutex_unlock(&vm->runs_lock);
}

struct cg_run *cg_run_find(struct cg_vm *vm, uint32_t number) {
    for (size_t i = 0; i < CG_RUNS_MAX; i++)
        if (vm->runs[i].used && vm->runs[i].number == number) return &vm->runs[i];
    return NULL;
}

/* ---- starting ---- */

struct strings { char *text; size_t length, size; };

static int append(struct strings *to, const void *from, size_t length) {
    if (memchr(from, 0, length)) return EINVAL;
    if (to->length + length + 1 > to->size) {
        size_t size = (to->length + length + 1) * 2;
        char *bigger = realloc(to->text, size);
        if (!bigger) return ENOMEM;
        to->text = bigger, to->size = size;
    }
    memcpy(to->text + to->length, from, length);
    to->text[to->length + length] = '\0';
    to->length += length + 1;
    return 0;
}

/* 0 if the path, from the run's working directory, is a program that the guest may execute. */
static int executable(struct cg_vm *vm, int cwd, const char *path) {
    struct cg_path found;
    struct stat st;
    int error = cg_resolve(&vm->root, cwd, path, CG_RESOLVE_FOLLOW, NULL, &found);
    if (error == 0 && fstat(found.object, &st) != 0) error = errno;
    if (error == 0 && !S_ISREG(st.st_mode)) error = EACCES;
    if (error == 0 && syscall(SYS_faccessat2, found.object, "", X_OK, AT_EMPTY_PATH | AT_EACCESS) != 0) error = errno;
    cg_path_release(&found);
    return error;
}

/* The path of the program to execute, as execvp would find it; or an errno. */
static int find_program(struct cg_vm *vm, int cwd, const char *name, const char *search, char *to, size_t size) {
    if (name[0] == '\0') return ENOENT;
    if (strchr(name, '/')) {
        if ((size_t)snprintf(to, size, "%s", name) >= size) return ENAMETOOLONG;
        return executable(vm, cwd, to);
    }
    int result = ENOENT;
    for (const char *at = search; at; at = strchr(at, ':'), at = at ? at + 1 : NULL) {
        const int n = (int)strcspn(at, ":");
        if ((size_t)snprintf(to, size, "%.*s%s%s", n, at, n ? "/" : "./", name) >= size) continue;
        const int error = executable(vm, cwd, to);
        if (error == 0) return 0;
        if (error == EACCES) result = EACCES; /* found, but not executable: only if nothing better follows */
    }
    return result;
}

static int send_start(struct cg_vm *vm, const struct cg_start *start, const struct strings *strings, const int fds[5]) {
    struct cg_start head = *start;
    struct iovec parts[2] = {{&head, sizeof head}, {strings->text, strings->length}};
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int) * 6)]; } control;
    int all[6], count = 5, blob = -1;
    memcpy(all, fds, sizeof(int) * 5);
    struct msghdr out = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control};
    if (sizeof head + strings->length > CG_START_MAX) {
        blob = memfd_create("callgate-start", MFD_CLOEXEC);
        if (blob < 0) return errno;
        for (size_t done = 0; done < strings->length;) {
            ssize_t n = write(blob, strings->text + done, strings->length - done);
            if (n < 0) { int error = errno; close(blob); return error; }
            done += (size_t)n;
        }
        all[count++] = blob;
        out.msg_iovlen = 1;
    }
    memset(&control, 0, sizeof control);
    out.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *c = CMSG_FIRSTHDR(&out);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(c), all, sizeof(int) * (size_t)count);
    int error = sendmsg(vm->init_socket, &out, MSG_NOSIGNAL) < 0 ? errno : 0;
    if (blob >= 0) close(blob);
    return error;
}

/* Reads the payload of CG_MSG_RUN, finds the program with the operator's rights and has init start it. Takes the descriptors. */
int cg_run_start(struct cg_vm *vm, uint32_t request, struct cg_reader *payload, uint32_t flags, const int fds[4]) {
    struct strings strings = {0};
    struct cg_run *run = NULL;
    char program[PATH_MAX], *cwd_text = NULL, *search = strdup("/usr/local/bin:/usr/bin:/bin");
    const char *stage = "lookup";
    int pair[2] = {-1, -1}, error = 0;
    struct cg_path cwd = {.object = -1, .parent = -1};
    uint32_t n;

    const uint8_t *bytes = cg_read_bytes(payload, &n);
    if (!payload->failed && !memchr(bytes, 0, n)) cwd_text = strndup((const char *)bytes, n);
    uint32_t argc = cg_read_u32(payload);
    struct strings arguments = {0};
    for (uint32_t i = 0; i < argc && !payload->failed && !error; i++) {
        bytes = cg_read_bytes(payload, &n);
        if (!payload->failed) error = append(&arguments, bytes, n);
    }
    uint32_t envc = payload->failed || error ? 0 : cg_read_u32(payload);
    struct strings environment = {0};
    for (uint32_t i = 0; i < envc && !payload->failed && !error; i++) {
        bytes = cg_read_bytes(payload, &n);
        if (payload->failed || (error = append(&environment, bytes, n)) != 0) break;
        if (n > 5 && memcmp(bytes, "PATH=", 5) == 0) {
            free(search);
            search = strndup((const char *)bytes + 5, n - 5);
        }
    }
    if (!error && (payload->failed || !cg_reader_done(payload) || argc == 0 || !cwd_text || !search)) error = EINVAL;
    size_t fixed_length = 0;
    char *fixed = error ? NULL : cg_env_fixed_part(vm, environment.text, environment.length, &fixed_length);
    if (!error && !fixed && errno) error = ENOMEM;
    for (size_t i = 0; i < CG_RUNS_MAX && !run && !error; i++)
        if (!vm->runs[i].used) run = &vm->runs[i];
    if (!error && !run) error = EAGAIN;
    if (error) { /* nothing of it exists yet: the request itself fails */
        cg_reply(vm, request, error, 0, NULL, 0, -1, NULL);
        close(fds[3]);
        free(fixed);
        goto done;
    }
    pthread_mutex_lock(&vm->runs_lock);
    run->fixed = fixed, run->fixed_length = fixed_length;
    run->used = true;
    run->number = ++vm->next_run;
    run->events = fds[3];
    run->began_ms = cg_watch_now();
    run->notified_before = atomic_load(&vm->notified);
    pthread_mutex_unlock(&vm->runs_lock);
    cg_reply(vm, request, 0, run->number, NULL, 0, -1, NULL);

    error = cg_resolve(&vm->root, -1, cwd_text, CG_RESOLVE_FOLLOW, NULL, &cwd);
    struct stat st;
    if (!error && (fstat(cwd.object, &st) != 0 || !S_ISDIR(st.st_mode))) error = ENOTDIR;
    if (error) stage = "chdir";
    if (!error) error = find_program(vm, cwd.object, arguments.text, search, program, sizeof program);
    if (!error) error = append(&strings, program, strlen(program));
    if (!error) {
        const size_t total = strings.length + arguments.length + environment.length;
        char *bigger = realloc(strings.text, total);
        if (!bigger) error = ENOMEM;
        else {
            strings.text = bigger, strings.size = total;
            memcpy(strings.text + strings.length, arguments.text, arguments.length);
            if (environment.length) memcpy(strings.text + strings.length + arguments.length, environment.text, environment.length);
            strings.length = total;
        }
    }
    if (!error && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) error = errno, stage = "exec";
    const int yes = 1; /* the kernel then says who wrote, in our own numbers */
    if (!error && setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0) error = errno, stage = "exec";
    if (!error) {
        const int all[5] = {fds[0], fds[1], fds[2], pair[1], cwd.object};
        error = send_start(vm, &(struct cg_start){flags, argc}, &strings, all);
        stage = "exec";
    }
    if (error) {
        send_exec_failed(run, error, stage);
        if (pair[0] >= 0) close(pair[0]);
        release(vm, run);
    } else run->leader_socket = pair[0];
done:
    for (int i = 0; i < 3; i++) close(fds[i]);
    if (pair[1] >= 0) close(pair[1]);
    cg_path_release(&cwd);
    free(strings.text), free(arguments.text), free(environment.text), free(cwd_text), free(search);
    return 0;
}

/* ---- what the leader says ---- */

/* A process that ends closes its sockets some microseconds before it has ended: the run is over with the second. */
static void wait_for_death(pid_t pid) {
    int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pidfd < 0) return;
    struct pollfd on = {.fd = pidfd, .events = POLLIN};
    poll(&on, 1, DEATH_MS);
    close(pidfd);
}

void cg_run_leader_event(struct cg_vm *vm, struct cg_run *run) {
    struct cg_leader_event said;
    struct iovec part = {&said, sizeof said};
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(struct ucred))]; } control;
    struct msghdr in = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(run->leader_socket, &in, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n == sizeof said) {
        pid_t writer = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&in); c; c = CMSG_NXTHDR(&in, c))
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
                struct ucred who;
                memcpy(&who, CMSG_DATA(c), sizeof who);
                writer = who.pid;
            }
        switch (said.kind) {
        case CG_LEADER_HELLO:
            pthread_mutex_lock(&vm->runs_lock);
            run->leader = writer;
            run->inner_first = said.pid;
            pthread_mutex_unlock(&vm->runs_lock);
            send_started(run, said.pid);
            cg_run_send_early(vm, run);
            break;
        case CG_LEADER_FIRST:
            pthread_mutex_lock(&vm->runs_lock);
            run->first = writer;
            atomic_store(&run->may_exec, 1);
            atomic_store(&run->may_setsid, 1);
            pthread_mutex_unlock(&vm->runs_lock);
            if (send(run->leader_socket, "g", 1, MSG_NOSIGNAL) != 1) run->killing = true;
            break;
        case CG_LEADER_FAILED: send_exec_failed(run, said.error, "exec"); break;
        case CG_LEADER_STATUS:
            run->ended = true;
            run->status = said.status;
            run->usage = said.usage;
        }
        return;
    }
    wait_for_death(run->leader);
    /* The leader is gone. If a guest killed it, what was below it is now init's: for the next sweep. */
    if (!run->ended) run->status = SIGKILL, run->lost = vm->strays = true;
    pthread_mutex_lock(&vm->runs_lock);
    close(run->leader_socket);
    run->leader_socket = -1;
    run->lost_leader = run->lost ? run->leader : 0;
    run->leader = 0;
    run->over = true;
    pthread_mutex_unlock(&vm->runs_lock);
    if (run->exec_failed || (!run->lost && send_exited(vm, run))) release(vm, run);
}

/* ---- ending ---- */

static bool is_leader(struct cg_vm *vm, pid_t pid) {
    for (size_t i = 0; i < CG_RUNS_MAX; i++)
        if (vm->runs[i].used && !vm->runs[i].over && (vm->runs[i].leader == pid || vm->runs[i].leader == 0)) return true; /* 0: one is being made */
    return false;
}

/* SIGKILL for every child of `parent` that is not a leader; how many of them lived. By process group where there is one: a single call then ends thousands, before a
 * machine that is busy with them lets us make the next. A run's programs are in sessions of their own, so no group holds another run's, or ours. */
static int kill_children(struct cg_vm *vm, pid_t parent) {
    const size_t room = 1 << 18; /* more children than a guest may have */
    char *text = malloc(room);
    struct cg_caller who;
    int alive = 0;
    pid_t done = 0;
    ssize_t n = text ? cg_children_of(vm, parent, text, room) : -1;
    for (char *at = text, *end; n > 0 && *at; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at || (*end != ' ' && n == (ssize_t)room - 1)) break; /* the last number may be cut off: next time */
        while (*end == ' ') end++;
        if (pid <= 0 || is_leader(vm, (pid_t)pid) || cg_caller_of(vm, (pid_t)pid, &who) != 0 || who.zombie) continue;
        alive++;
        if (who.group == done && done > 0) continue;
        if (who.group > 1 && who.group != getpgrp()) kill(-who.group, SIGKILL), done = who.group;
        else cg_signal_child(vm, parent, (pid_t)pid, SIGKILL);
    }
    free(text);
    return alive;
}

/* End what lives below a leader. The leader is stopped meanwhile: what it does not reap keeps its place under the guest's limit of processes, so that something that
 * forks faster than it is killed runs out of places. Whoever loses its parent becomes the leader's child; once none of those lives, nothing does. */
static void end_tree(struct cg_vm *vm, struct cg_run *run) {
    if (!run->held) cg_signal_child(vm, vm->init, run->leader, SIGSTOP);
    run->held = true;
    if (kill_children(vm, run->leader) > 0) return;
    cg_signal_child(vm, vm->init, run->leader, SIGCONT);
    run->held = false;
}

static bool leader_is_dying(struct cg_vm *vm) {
    struct cg_caller who;
    for (size_t i = 0; i < CG_RUNS_MAX; i++)
        if (vm->runs[i].used && vm->runs[i].lost_leader && cg_caller_of(vm, vm->runs[i].lost_leader, &who) == 0 && !who.zombie && who.ppid == vm->init) return true;
    return false;
}

bool cg_runs_sweep(struct cg_vm *vm) {
    if (vm->strays) {
        /* A dying leader's socket ends before its children become init's: first the leader is gone, then finding none counts. */
        const bool dying = leader_is_dying(vm);
        vm->strays = kill_children(vm, vm->init) > 0 || dying;
    }
    bool left = vm->strays;
    for (size_t i = 0; i < CG_RUNS_MAX; i++) {
        struct cg_run *run = &vm->runs[i];
        if (run->used && run->over && !(run->lost && vm->strays) && send_exited(vm, run)) {
            release(vm, run);
            continue;
        }
        if (!run->used || (!run->ended && !run->killing && !run->over)) continue;
        left = true;
        if (run->over) continue;
        /* A leader with nothing below it ends by itself within microseconds: look only the second time. */
        if (run->leader > 0 && (run->killing || run->seen_ended)) end_tree(vm, run);
        run->seen_ended = true;
    }
    return left;
}

/* ---- whose is a process ---- */

uint32_t cg_run_of(struct cg_vm *vm, pid_t tid, bool *certain) {
    struct { pid_t leader; uint32_t number; } known[CG_RUNS_MAX];
    size_t count = 0;
    uint32_t any = 0;
    *certain = true;
    pthread_mutex_lock(&vm->runs_lock); /* only to copy: the walk below reads /proc at every step */
    for (size_t i = 0; i < CG_RUNS_MAX; i++) {
        const struct cg_run *run = &vm->runs[i];
        if (!run->used || run->over) continue;
        if (!any) any = run->number;
        if (!run->leader) *certain = false;
        else known[count].leader = run->leader, known[count++].number = run->number;
    }
    pthread_mutex_unlock(&vm->runs_lock);
    struct cg_caller who;
    pid_t pid = tid;
    for (int depth = 0; depth < 128 && cg_caller_of(vm, pid, &who) == 0; depth++) {
        for (size_t i = 0; i < count; i++)
            if (known[i].leader == who.tgid) {
                *certain = true;
                return known[i].number;
            }
        if (who.ppid <= 0 || who.ppid == vm->init) break;
        pid = who.ppid;
    }
    return any; /* its ancestors died under us: better told to another run than to nobody */
}

/* The first program's process runs our own code, in memory no guest shares, until its exec. */
static bool take(struct cg_vm *vm, pid_t tid, bool exec) {
    bool took = false;
    pthread_mutex_lock(&vm->runs_lock);
    for (size_t i = 0; i < CG_RUNS_MAX && !took; i++)
        if (vm->runs[i].used && vm->runs[i].first == tid)
            took = atomic_exchange(exec ? &vm->runs[i].may_exec : &vm->runs[i].may_setsid, 0) == 1;
    pthread_mutex_unlock(&vm->runs_lock);
    return took;
}

bool cg_take_exec(struct cg_vm *vm, pid_t tid) { return take(vm, tid, true); }

bool cg_take_setsid(struct cg_vm *vm, pid_t tid) { return take(vm, tid, false); }
