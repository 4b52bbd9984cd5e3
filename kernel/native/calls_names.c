/* Calls that make, remove and move names: mkdir, unlink, rename, symlink, link, mknod. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "fs_target.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#define RENAME_WHITEOUT 4
#endif

#define WIDENING "its new name would give it, or something below it, an operation it does not have"

/* The answer comes after our own hold on the objects is gone: a file removed on behalf is then really gone, and its space free. */
static void done(struct cg_call *call, int result, struct cg_path *one, struct cg_path *other) {
    const int error = errno;
    if (one) cg_path_release(one);
    if (other) cg_path_release(other);
    result == 0 ? cg_answer_value(call, 0) : cg_answer_error(call, error);
}

/* The name to be made: judged, and answered unless it is free to be made. 0 = go on. Who was killed meanwhile makes none: whoever killed it may know already. */
static int find_new(struct cg_call *call, const struct cg_fs_target *target, unsigned operation, struct cg_path *path) {
    fs_resolve_parent(call, target, 0, path);
    if (path->text[0] == '\0' && path->error) cg_answer_error(call, path->error);
    else if (!fs_judge(call, target, operation, path)) {
    } else if (path->object >= 0) cg_answer_error(call, EEXIST);
    else if (path->error != ENOENT || path->parent < 0 || path->name[0] == '\0') cg_answer_error(call, path->error ? path->error : ENOENT);
    else if (cg_still_waiting(call)) return 0;
    else cg_answer_error(call, ESRCH);
    cg_path_release(path);
    return -1;
}

/* The name to be removed or moved: there, and judged. */
static int find_old(struct cg_call *call, const struct cg_fs_target *target, unsigned operation, int no_name, struct cg_path *path) {
    fs_resolve_parent(call, target, 0, path);
    if (path->text[0] == '\0' && path->error) cg_answer_error(call, path->error);
    else if (!fs_judge(call, target, operation, path)) {
    } else if (path->error) cg_answer_error(call, path->error);
    else if (path->name[0] == '\0' || path->parent < 0) cg_answer_error(call, no_name);
    else if (cg_still_waiting(call)) return 0;
    else cg_answer_error(call, ESRCH);
    cg_path_release(path);
    return -1;
}

/* A mount point of the VM. The kernel would let us take it away, mount and all: it is none in the namespace that we are in. */
static bool is_mount_point(const struct cg_path *path) {
    struct statx st;
    return path->object >= 0 && (statx(path->object, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) != 0 || st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static void make_directory(struct cg_call *call, const struct cg_fs_target *target, mode_t mode) {
    struct cg_path path;
    if (find_new(call, target, CG_FS_OP_CREATE_DIR, &path) != 0) return;
    fs_use_umask(call);
    done(call, mkdirat(path.parent, path.name, mode & 07777), &path, NULL);
}

/* What was judged is what is done: between the two no name moves (see supervisor.h, names). */
void fs_do_mkdir(struct cg_call *call, const struct cg_fs_target *target, mode_t mode) {
    pthread_rwlock_rdlock(&call->vm->names);
    make_directory(call, target, mode);
    pthread_rwlock_unlock(&call->vm->names);
}

void fs_mkdir(struct cg_call *call) {
    const bool at = call->nr == SYS_mkdirat;
    struct cg_fs_target target;
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], 0, &target) != 0) return;
    fs_do_mkdir(call, &target, (mode_t)call->args[at ? 2 : 1]);
    fs_target_release(&target);
}

void fs_mknod(struct cg_call *call) {
    const bool at = call->nr == SYS_mknodat;
    const mode_t mode = (mode_t)call->args[at ? 2 : 1], type = mode & S_IFMT;
    struct cg_fs_target target;
    struct cg_path path;
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], 0, &target) != 0) return;
    pthread_rwlock_rdlock(&call->vm->names);
    if (find_new(call, &target, CG_FS_OP_WRITE, &path) == 0) {
        fs_use_umask(call);
        if (type == S_IFCHR || type == S_IFBLK || type == S_IFDIR) cg_answer_error(call, EPERM); /* no devices in a VM */
        else if (type && type != S_IFREG && type != S_IFIFO && type != S_IFSOCK) cg_answer_error(call, EINVAL);
        else if (strchr(path.name, '/')) cg_answer_error(call, ENOENT);
        else if (call->vm->launch.flags & CG_LAUNCH_NO_SETID && mode & 06000) cg_answer_error(call, EPERM);
        else done(call, mknodat(path.parent, path.name, mode, 0), &path, NULL);
        cg_path_release(&path);
    }
    pthread_rwlock_unlock(&call->vm->names);
    fs_target_release(&target);
}

/* Why a path without a last name cannot be removed as a directory: rmdir(2). */
static int nameless(const char *path) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--;
    if (n == 0) return EBUSY; /* the root */
    return n >= 2 && path[n - 2] == '.' && path[n - 1] == '.' && (n == 2 || path[n - 3] == '/') ? ENOTEMPTY : EINVAL;
}

static void remove_name(struct cg_call *call, const struct cg_fs_target *target, bool directory) {
    struct cg_path path;
    if (find_old(call, target, CG_FS_OP_RM, directory ? nameless(target->path) : EISDIR, &path) != 0) return;
    if (is_mount_point(&path)) {
        cg_answer_error(call, EBUSY);
        cg_path_release(&path);
        return;
    }
    done(call, unlinkat(path.parent, path.name, directory ? AT_REMOVEDIR : 0), &path, NULL);
}

void fs_do_unlink(struct cg_call *call, const struct cg_fs_target *target, bool directory) {
    pthread_rwlock_rdlock(&call->vm->names);
    remove_name(call, target, directory);
    pthread_rwlock_unlock(&call->vm->names);
}

void fs_unlink(struct cg_call *call) {
    const bool at = call->nr == SYS_unlinkat;
    const uint64_t flags = at ? (uint32_t)call->args[2] : call->nr == SYS_rmdir ? AT_REMOVEDIR : 0;
    struct cg_fs_target target;
    if (flags & ~(uint64_t)AT_REMOVEDIR) { cg_answer_error(call, EINVAL); return; }
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], 0, &target) != 0) return;
    cg_await_handed_over(call); /* the space of a removed file is free at once, if nobody has it open */
    fs_do_unlink(call, &target, flags & AT_REMOVEDIR);
    fs_target_release(&target);
}

/* No widening (SPEC 3.1): neither the object nor anything below it may gain an operation by its new name. */
static bool widens(struct cg_call *call, const struct cg_path *from, const struct cg_path *to) {
    struct stat st;
    if (call->unchecked) return false;
    const int directory = fstat(from->object, &st) != 0 || S_ISDIR(st.st_mode);
    return cg_policy_subtree_differs(call->vm->launch.policy, from->text, from->length, to->text, to->length, directory) != 0;
}

/* Nothing that could be judged was found: not even a name. */
static bool unjudgeable(const struct cg_path *path) { return path->text[0] == '\0' && path->error; }

/* The look-up failed before the last name. */
static bool no_directory(const struct cg_path *path) { return path->error && (path->error != ENOENT || path->parent < 0); }

static void move_name(struct cg_call *call, const struct cg_fs_target *from, const struct cg_fs_target *to, unsigned flags) {
    struct cg_path old, new;
    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) || (flags & RENAME_EXCHANGE && flags != RENAME_EXCHANGE)) {
        cg_answer_error(call, EINVAL);
        return;
    }
    if (flags & RENAME_WHITEOUT) { cg_answer_error(call, EPERM); return; } /* makes a device */
    fs_resolve_parent(call, from, 0, &old);
    fs_resolve_parent(call, to, 0, &new);
    const bool replaces = new.object >= 0, exchange = flags & RENAME_EXCHANGE;
    /* Every verdict first, then the errnos in the kernel's order: both directories, what has no name, what is missing. */
    if (unjudgeable(&old)) cg_answer_error(call, old.error);
    else if (!fs_judge(call, from, CG_FS_OP_RENAME, &old)) {
    } else if (unjudgeable(&new)) cg_answer_error(call, new.error);
    else if (!fs_judge(call, to, CG_FS_OP_RENAME, &new)) {
    } else if (replaces && !exchange && !(flags & RENAME_NOREPLACE) && !fs_judge(call, to, CG_FS_OP_RM, &new)) {
    } else if (no_directory(&old)) cg_answer_error(call, old.error);
    else if (no_directory(&new)) cg_answer_error(call, new.error);
    else if (old.name[0] == '\0' || old.parent < 0) cg_answer_error(call, EBUSY);
    else if (new.name[0] == '\0' || new.parent < 0) cg_answer_error(call, flags & RENAME_NOREPLACE ? EEXIST : EBUSY);
    else if (old.error) cg_answer_error(call, old.error);
    else if (exchange && !replaces) cg_answer_error(call, ENOENT);
    else if (is_mount_point(&old) || is_mount_point(&new)) cg_answer_error(call, EBUSY);
    else if (widens(call, &old, &new)) fs_refuse(call, from, CG_FS_OP_RENAME, CG_RULE_WIDENING, &old, WIDENING);
    else if (exchange && widens(call, &new, &old)) fs_refuse(call, to, CG_FS_OP_RENAME, CG_RULE_WIDENING, &new, WIDENING);
    else if (!cg_still_waiting(call)) cg_answer_error(call, ESRCH);
    else {
        /* What was not there to be judged as removed must not be replaced: a guest may make it natively meanwhile. */
        if (!replaces && !call->unchecked && cg_policy_constant(call->vm->launch.policy, CG_SCOPE_FS, CG_FS_OP_RM) != 1) flags |= RENAME_NOREPLACE;
        done(call, (int)syscall(SYS_renameat2, old.parent, old.name, new.parent, new.name, flags), &old, &new);
    }
    cg_path_release(&old);
    cg_path_release(&new);
}

void fs_do_rename(struct cg_call *call, const struct cg_fs_target *from, const struct cg_fs_target *to, unsigned flags) {
    pthread_rwlock_wrlock(&call->vm->names);
    move_name(call, from, to, flags);
    pthread_rwlock_unlock(&call->vm->names);
}

void fs_rename(struct cg_call *call) {
    const bool at = call->nr != SYS_rename;
    struct cg_fs_target from, to;
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], 0, &from) != 0) return;
    if (fs_target_read(call, at ? (int)call->args[2] : AT_FDCWD, call->args[at ? 3 : 1], 0, &to) == 0) {
        cg_await_handed_over(call); /* as for unlink: it may replace a file */
        fs_do_rename(call, &from, &to, call->nr == SYS_renameat2 ? (unsigned)call->args[4] : 0);
        fs_target_release(&to);
    }
    fs_target_release(&from);
}

static void make_symlink(struct cg_call *call, const char *text, const struct cg_fs_target *link) {
    struct cg_path path;
    if (find_new(call, link, CG_FS_OP_SYMLINK, &path) != 0) return;
    if (strchr(path.name, '/')) cg_answer_error(call, ENOENT);
    else done(call, symlinkat(text, path.parent, path.name), &path, NULL);
    cg_path_release(&path);
}

void fs_do_symlink(struct cg_call *call, const char *text, const struct cg_fs_target *link) {
    pthread_rwlock_rdlock(&call->vm->names);
    make_symlink(call, text, link);
    pthread_rwlock_unlock(&call->vm->names);
}

void fs_symlink(struct cg_call *call) {
    const bool at = call->nr == SYS_symlinkat;
    char text[PATH_MAX];
    struct cg_fs_target link;
    int error = cg_read_string(call, call->args[0], text, sizeof text);
    if (!error && text[0] == '\0') error = -ENOENT;
    if (error) { cg_answer_error(call, -error); return; }
    if (fs_target_read(call, at ? (int)call->args[1] : AT_FDCWD, call->args[at ? 2 : 1], 0, &link) != 0) return;
    fs_do_symlink(call, text, &link);
    fs_target_release(&link);
}

static void make_link(struct cg_call *call, const struct cg_fs_target *from, bool follow, const struct cg_fs_target *to) {
    struct cg_path old, new;
    struct stat st = {0};
    fs_resolve(call, from, (follow ? CG_RESOLVE_FOLLOW : 0) | CG_RESOLVE_EMPTY, &old);
    fs_resolve_parent(call, to, 0, &new);
    if (unjudgeable(&old)) cg_answer_error(call, old.error);
    else if (!fs_judge(call, from, CG_FS_OP_WRITE, &old)) {
    } else if (unjudgeable(&new)) cg_answer_error(call, new.error);
    else if (!fs_judge(call, to, CG_FS_OP_WRITE, &new)) {
    } else if (old.error) cg_answer_error(call, old.error);
    else if (new.object >= 0) cg_answer_error(call, EEXIST);
    else if (no_directory(&new) || new.name[0] == '\0') cg_answer_error(call, new.error ? new.error : ENOENT);
    else if (strchr(new.name, '/')) cg_answer_error(call, ENOENT);
    else if (fstat(old.object, &st) == 0 && S_ISDIR(st.st_mode)) cg_answer_error(call, EPERM);
    /* A file without a name (O_TMPFILE) has none to compare with: it is created by this link, which was judged as a write. */
    else if (st.st_nlink > 0 && widens(call, &old, &new)) fs_refuse(call, from, CG_FS_OP_WRITE, CG_RULE_WIDENING, &old, WIDENING);
    else done(call, linkat(AT_FDCWD, fs_own_path(old.object).text, new.parent, new.name, AT_SYMLINK_FOLLOW), &old, &new);
    cg_path_release(&new);
    cg_path_release(&old);
}

void fs_do_link(struct cg_call *call, const struct cg_fs_target *from, bool follow, const struct cg_fs_target *to) {
    pthread_rwlock_rdlock(&call->vm->names);
    make_link(call, from, follow, to);
    pthread_rwlock_unlock(&call->vm->names);
}

void fs_link(struct cg_call *call) {
    const bool at = call->nr == SYS_linkat;
    const uint64_t flags = at ? (uint32_t)call->args[4] : 0;
    struct cg_fs_target from, to;
    if (flags & ~(uint64_t)(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH)) { cg_answer_error(call, EINVAL); return; }
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], FS_TARGET_EMPTY, &from) != 0) return;
    if (from.path[0] == '\0' && !(flags & AT_EMPTY_PATH)) cg_answer_error(call, ENOENT);
    else if (fs_target_read(call, at ? (int)call->args[2] : AT_FDCWD, call->args[at ? 3 : 1], 0, &to) == 0) {
        fs_do_link(call, &from, flags & AT_SYMLINK_FOLLOW, &to);
        fs_target_release(&to);
    }
    fs_target_release(&from);
}
