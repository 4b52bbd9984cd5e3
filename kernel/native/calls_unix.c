/* Names of unix sockets: judged by the fs scope as a write, and reached as the object that was judged. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs_target.h"
#include "network.h"

bool cg_has_path(const struct cg_address *address) {
    return address->any.sa_family == AF_UNIX && address->length > offsetof(struct sockaddr_un, sun_path) && address->unix_.sun_path[0] != '\0';
}

static int unix_target(struct cg_call *call, const struct cg_address *address, struct cg_fs_target *target) {
    fs_target_set(target, "");
    const size_t n = strnlen(address->unix_.sun_path, address->length - offsetof(struct sockaddr_un, sun_path));
    memcpy(target->path, address->unix_.sun_path, n);
    target->path[n] = '\0';
    if (target->path[0] != '/' && (target->base = cg_pin_cwd(call)) < 0) {
        cg_answer_error(call, -target->base);
        return -1;
    }
    return 0;
}

int cg_pin_peer(struct cg_call *call, struct cg_address *address, struct cg_path *path) {
    struct cg_fs_target target;
    path->object = path->parent = -1;
    if (!cg_has_path(address)) return 0;
    if (unix_target(call, address, &target) != 0) return -1;
    int result = fs_find(call, &target, CG_RESOLVE_FOLLOW, CG_FS_OP_WRITE, path);
    fs_target_release(&target);
    if (result != 0) return -1;
    int n = snprintf(address->unix_.sun_path, sizeof address->unix_.sun_path, "%s", fs_own_path(path->object).text);
    address->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n + 1);
    return 0;
}

/* A bind keeps the name as it was written, for getsockname(2) and the peers: it must be made where that text means what it means to the guest. A child of
 * ours enters the VM's mount namespace (the supervisor owns the user namespace), drops the rights that gives, and binds. 0 or an errno. */
static int bind_inside(struct cg_call *call, int fd, const struct cg_address *address, int cwd) {
    char what[64];
    const struct cg_root *root = &call->vm->root;
    snprintf(what, sizeof what, "%d/ns/user", call->tid);
    int user = openat(root->host_proc, what, O_RDONLY | O_CLOEXEC);
    snprintf(what, sizeof what, "%d/ns/mnt", call->tid);
    int mount = openat(root->host_proc, what, O_RDONLY | O_CLOEXEC), error = ESRCH;
    struct cg_caller who;
    if (user >= 0 && mount >= 0 && cg_caller_of(call->vm, call->tid, &who) == 0 && cg_still_waiting(call)) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* a copy of this thread alone: system calls only from here */
        if (child == 0) {
            struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
            struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
            if (setns(user, CLONE_NEWUSER) != 0 || setns(mount, CLONE_NEWNS) != 0 || (cwd >= 0 && fchdir(cwd) != 0) || syscall(SYS_capset, &header, none) != 0)
                syscall(SYS_exit_group, EACCES);
            umask(who.umask);
            syscall(SYS_exit_group, syscall(SYS_bind, fd, &address->any, address->length) == 0 ? 0 : errno);
        }
        int status;
        error = child < 0 ? errno : EACCES;
        if (child > 0 && waitpid(child, &status, __WALL) == child && WIFEXITED(status)) error = WEXITSTATUS(status);
    }
    if (user >= 0) close(user);
    if (mount >= 0) close(mount);
    return error;
}

void cg_bind_path(struct cg_call *call, const struct cg_socket *socket, const struct cg_address *address) {
    struct cg_fs_target target;
    struct cg_path path;
    if (unix_target(call, address, &target) != 0) return;
    /* Between judging and binding no guest may make the text mean another place. */
    pthread_rwlock_wrlock(&call->vm->names);
    fs_resolve_parent(call, &target, 0, &path);
    if (path.text[0] == '\0' && path.error) cg_answer_error(call, path.error);
    else if (!fs_judge(call, &target, CG_FS_OP_WRITE, &path)) {
    } else if (path.object >= 0) cg_answer_error(call, EADDRINUSE);
    else if (path.error != ENOENT || path.parent < 0) cg_answer_error(call, path.error);
    else {
        const int error = bind_inside(call, socket->fd, address, target.base);
        error ? cg_answer_error(call, error) : cg_answer_value(call, 0);
    }
    pthread_rwlock_unlock(&call->vm->names);
    cg_path_release(&path);
    fs_target_release(&target);
}
