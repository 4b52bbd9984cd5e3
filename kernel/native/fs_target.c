/* Path arguments: read once, resolved on pinned descriptors, judged as what they resolve to. */
#define _GNU_SOURCE
#include "fs_target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs_target.h"

int fs_target_read(struct cg_call *call, int dirfd, uint64_t pointer, unsigned how, struct cg_fs_target *target) {
    target->base = -1;
    int error = cg_read_string(call, pointer, target->path, sizeof target->path);
    if (error == 0 && target->path[0] == '\0' && !(how & FS_TARGET_EMPTY)) error = -ENOENT;
    if (error == 0 && target->path[0] != '/') {
        target->base = dirfd == AT_FDCWD ? cg_pin_cwd(call) : cg_pin_descriptor(call, dirfd);
        if (target->base < 0) error = target->base;
    }
    /* What was read is the caller's only if the caller still waits: a pid can be recycled between two calls on it. */
    if (error == 0 && !(how & FS_TARGET_LOOKS) && !cg_still_waiting(call)) error = -ESRCH;
    if (error == 0) return 0;
    fs_target_release(target);
    cg_answer_error(call, -error);
    return -1;
}

int fs_target_descriptor(struct cg_call *call, int fd, struct cg_fs_target *target) {
    target->path[0] = '\0';
    target->base = cg_pin_descriptor(call, fd);
    if (target->base >= 0 && cg_still_waiting(call)) return 0;
    int error = target->base < 0 ? -target->base : ESRCH;
    fs_target_release(target);
    cg_answer_error(call, error);
    return -1;
}

int fs_target_open_file(struct cg_call *call, int fd, struct cg_fs_target *target) {
    const int same = cg_take_descriptor(call, fd);
    const int flags = same < 0 ? 0 : fcntl(same, F_GETFL);
    if (same >= 0) close(same);
    if (!(flags & O_PATH)) return fs_target_descriptor(call, fd, target);
    cg_answer_error(call, EBADF);
    return -1;
}

void fs_target_set(struct cg_fs_target *target, const char *path) {
    target->base = -1;
    snprintf(target->path, sizeof target->path, "%s", path);
}

void fs_target_release(struct cg_fs_target *target) {
    if (target->base >= 0) close(target->base);
    target->base = -1;
}

static struct cg_self self_of(void *context) {
    struct cg_call *call = context;
    struct cg_caller who;
    if (call->tid == 0 || cg_caller_of(call->vm, call->tid, &who) != 0) return (struct cg_self){0, 0};
    return (struct cg_self){who.inner_tgid, who.inner_tid};
}

bool fs_would_allow(struct cg_call *call, unsigned operation, const char *text, size_t length) {
    return call->unchecked || cg_policy_decide(call->vm->launch.policy, CG_SCOPE_FS, operation, text, length, NULL) == 1;
}

/* The caller's own entries of /proc, which programs need to run: reading them is always allowed (SPEC 3.1). */
static bool own_proc(struct cg_call *call, unsigned operation, const char *text) {
    const unsigned reading = 1u << CG_FS_OP_READ | 1u << CG_FS_OP_STAT | 1u << CG_FS_OP_READDIR | 1u << CG_FS_OP_READLINK;
    if (!(reading >> operation & 1) || strncmp(text, "/proc/", 6) != 0) return false;
    char *end;
    const long pid = strtol(text + 6, &end, 10);
    if (end == text + 6 || (*end != '/' && *end != '\0')) return false;
    const struct cg_self self = self_of(call);
    return pid > 0 && (pid == self.tgid || pid == self.tid);
}

/* Whether the caller may be told that a name it only passes through exists. */
static int may_pass(void *context, const char *text, size_t length) {
    struct cg_call *call = context;
    return fs_would_allow(call, CG_FS_OP_STAT, text, length) || own_proc(call, CG_FS_OP_STAT, text);
}

/* Where everything may be looked at the way need not be judged, and the kernel's own look-up will do. */
static struct cg_resolver resolver(struct cg_call *call) {
    const bool judged = !call->unchecked && cg_policy_constant(call->vm->launch.policy, CG_SCOPE_FS, CG_FS_OP_STAT) != 1;
    return (struct cg_resolver){.context = call, .self = self_of, .traverse = judged ? may_pass : NULL};
}

int fs_resolve(struct cg_call *call, const struct cg_fs_target *target, unsigned flags, struct cg_path *out) {
    const struct cg_resolver who = resolver(call);
    /* Names stand still: a plain path is judged by its own text, which must be where it led. (Held twice by calls that make a name: readers may.) */
    pthread_rwlock_rdlock(&call->vm->names);
    const int error = cg_resolve(&call->vm->root, target->base, target->path, flags, &who, out);
    pthread_rwlock_unlock(&call->vm->names);
    return error;
}

int fs_resolve_parent(struct cg_call *call, const struct cg_fs_target *target, unsigned flags, struct cg_path *out) {
    const struct cg_resolver who = resolver(call);
    return cg_resolve_parent(&call->vm->root, target->base, target->path, flags, &who, out);
}

/* Whether what follows /proc/<pid> is the process's memory: `mem`, or a thread's `task/<tid>/mem`. */
static bool is_memory(const char *rest) {
    if (strncmp(rest, "/task/", 6) == 0) rest += 6 + strcspn(rest + 6, "/");
    return strcmp(rest, "/mem") == 0;
}

/* Another process's /proc/<pid> is judged by the process scope as well, and its memory like process_vm_readv(2) (SPEC 3.4). False: refused and answered. */
static bool may_inspect(struct cg_call *call, unsigned operation, const char *text) {
    char *end, subject[48];
    if (call->tid == 0 || strncmp(text, "/proc/", 6) != 0 || cg_policy_constant(call->vm->launch.policy, CG_SCOPE_PROCESS, 0) == 1) return true;
    const long number = strtol(text + 6, &end, 10);
    if (end == text + 6 || (*end != '/' && *end != '\0')) return true;
    const long process = cg_process_of(call->vm, number);
    if (process == self_of(call).tgid) return true;
    int n = snprintf(subject, sizeof subject, "inspect:%ld", process);
    if (!cg_judge(call, CG_SCOPE_PROCESS, 0, subject, (size_t)n, NULL)) return false;
    if ((operation != CG_FS_OP_READ && operation != CG_FS_OP_WRITE) || !is_memory(end)) return true;
    n = snprintf(subject, sizeof subject, "ptrace:%ld", process);
    return cg_judge(call, CG_SCOPE_PROCESS, 0, subject, (size_t)n, NULL);
}

/* Entries of /proc that show the namespaces of whoever opens them: on behalf, the host's. Not performed, except those that are the same everywhere. */
static bool shows_opener(const char *text) {
    static const char *const same[] = {"kernel/cap_last_cap", "kernel/ngroups_max", "kernel/osrelease", "kernel/ostype", "kernel/overflowgid", "kernel/overflowuid",
                                       "kernel/pid_max", "kernel/random/", "kernel/threads-max", "kernel/version", "vm/max_map_count", "vm/overcommit_memory",
                                       "fs/file-max", "fs/nr_open", "fs/pipe-max-size"};
    if (strncmp(text, "/proc/sysvipc", 13) == 0 || strcmp(text, "/proc/keys") == 0 || strcmp(text, "/proc/key-users") == 0) return true;
    if (strncmp(text, "/proc/sys/", 10) != 0) return false;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const size_t n = strlen(same[i]);
        if (strncmp(text + 10, same[i], n) == 0 && (same[i][n - 1] == '/' || text[10 + n] == '\0')) return false;
    }
    return true;
}

void fs_refuse(struct cg_call *call, const struct cg_fs_target *target, unsigned operation, int32_t rule, const struct cg_path *path, const char *reason) {
    char requested[2 * PATH_MAX];
    size_t n = 0;
    const char *asked = target->path;
    if (asked[0] != '/') {
        if (target->base < 0 || cg_descriptor_text(&call->vm->root, target->base, requested, PATH_MAX, &n) != 0) n = 0;
        while (n > 0 && requested[n - 1] == '/') n--;
        while (asked[0] == '.' && asked[1] == '/') asked += 2;
        if (strcmp(asked, ".") == 0) asked = "";
        if (n == 0 || asked[0]) requested[n++] = '/';
    }
    snprintf(requested + n, sizeof requested - n, "%s", asked);
    cg_refuse(call, CG_SCOPE_FS, operation, rule, path->text, path->length, requested, reason);
}

bool fs_judge(struct cg_call *call, const struct cg_fs_target *target, unsigned operation, const struct cg_path *path) {
    int32_t rule = CG_RULE_DEFAULT;
    if (call->unchecked) return true;
    if (path->refused && cg_policy_decide(call->vm->launch.policy, CG_SCOPE_FS, operation, path->text, path->length, &rule) == 1) {
        static _Thread_local struct cg_path way; /* what is refused is not the name itself, but to be told about one on the way */
        memcpy(way.text, path->way, path->way_length + 1);
        way.length = path->way_length;
        cg_policy_decide(call->vm->launch.policy, CG_SCOPE_FS, CG_FS_OP_STAT, way.text, way.length, &rule);
        fs_refuse(call, target, CG_FS_OP_STAT, rule, &way, "");
        return false;
    }
    if (path->text[0] != '/' && path->object >= 0) return true; /* a pipe, a socket: a descriptor the caller already has */
    if (cg_policy_decide(call->vm->launch.policy, CG_SCOPE_FS, operation, path->text, path->length, &rule) == 1) {
        if (!may_inspect(call, operation, path->text)) return false;
        if (!shows_opener(path->text)) return true;
        fs_refuse(call, target, operation, CG_RULE_UNSUPPORTED, path, "on behalf, this entry would show the host");
        return false;
    }
    if (own_proc(call, operation, path->text)) return true;
    fs_refuse(call, target, operation, rule, path, "");
    return false;
}

int fs_find(struct cg_call *call, const struct cg_fs_target *target, unsigned flags, unsigned operation, struct cg_path *out) {
    fs_resolve(call, target, flags, out);
    /* Judged before it is said whether it exists: the answer for a denied name is the same either way. */
    if (out->text[0] == '\0' && out->error) cg_answer_error(call, out->error);
    else if (fs_judge(call, target, operation, out) && out->error) cg_answer_error(call, out->error);
    if (!call->answered) return 0;
    cg_path_release(out);
    return -1;
}

void fs_use_umask(struct cg_call *call) {
    struct cg_caller who;
    /* Only /proc tells a thread's umask, which is slow. To be told of changes instead, umask(2) would have to be notified: a call that cannot fail would then fail with
     * EINTR whenever a signal came before it was received, and what it returns is taken for a mask. */
    if (call->tid == 0) umask(CG_FIRST_UMASK);
    else umask(cg_caller_of(call->vm, call->tid, &who) == 0 ? who.umask : 077);
}

int fs_reopen(struct cg_call *call, int object, int flags, mode_t mode) {
    char number[16];
    snprintf(number, sizeof number, "%d", object);
    return openat(call->vm->root.own_fds, number, flags, mode);
}

struct cg_own_path fs_own_path(int fd) {
    struct cg_own_path path;
    snprintf(path.text, sizeof path.text, "/proc/self/fd/%d", fd);
    return path;
}
