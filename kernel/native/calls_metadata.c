/* Calls that look at or change a file without changing names: the stat, chmod, chown, times and attribute families. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "calls.h"
#include "fs_target.h"
#include "trace.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#define OVERFLOW_ID 65534u /* how an id without a mapping looks inside */

/* ---- looking ---- */

static uint32_t inner_id(uint32_t id, uint32_t guest_outside, uint32_t guest_inside) { return id == guest_outside ? guest_inside : OVERFLOW_ID; }

static void write_stat(struct cg_call *call, int fd, uint64_t to) {
    struct stat st;
    if (fstat(fd, &st) != 0) { cg_answer_error(call, errno); return; }
    st.st_uid = inner_id(st.st_uid, call->vm->uid, call->vm->launch.guest_uid);
    st.st_gid = inner_id(st.st_gid, call->vm->gid, call->vm->launch.guest_gid);
    int error = cg_write_memory(call, to, &st, sizeof st);
    error ? cg_answer_error(call, -error) : cg_answer_value(call, 0);
}

static void write_statx(struct cg_call *call, int fd, unsigned flags, unsigned mask, uint64_t to) {
    struct statx st;
    if (statx(fd, "", (int)(AT_EMPTY_PATH | (flags & (AT_STATX_SYNC_TYPE | AT_NO_AUTOMOUNT))), mask, &st) != 0) { cg_answer_error(call, errno); return; }
    st.stx_uid = inner_id(st.stx_uid, call->vm->uid, call->vm->launch.guest_uid);
    st.stx_gid = inner_id(st.stx_gid, call->vm->gid, call->vm->launch.guest_gid);
    int error = cg_write_memory(call, to, &st, sizeof st);
    error ? cg_answer_error(call, -error) : cg_answer_value(call, 0);
}

void fs_stat(struct cg_call *call) {
    int dirfd = AT_FDCWD;
    uint64_t pointer = call->args[0], to = call->args[1], flags = 0, mask = 0;
    switch (call->nr) {
    case SYS_lstat: flags = AT_SYMLINK_NOFOLLOW; break;
    case SYS_newfstatat: dirfd = (int)call->args[0], pointer = call->args[1], to = call->args[2], flags = (uint32_t)call->args[3]; break;
    case SYS_statx: dirfd = (int)call->args[0], pointer = call->args[1], flags = (uint32_t)call->args[2], mask = (uint32_t)call->args[3], to = call->args[4];
    }
    const uint64_t known = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | (call->nr == SYS_statx ? AT_STATX_SYNC_TYPE : 0);
    if (flags & ~known || mask & 0x80000000u || (flags & AT_STATX_SYNC_TYPE) == AT_STATX_SYNC_TYPE) { cg_answer_error(call, EINVAL); return; }

    struct cg_fs_target target;
    struct cg_path path;
    if (pointer == 0 && flags & AT_EMPTY_PATH && dirfd != AT_FDCWD) {
        if (fs_target_descriptor(call, dirfd, &target) != 0) return;
    } else if (fs_target_read(call, dirfd, pointer, FS_TARGET_EMPTY | FS_TARGET_LOOKS, &target) != 0) return;
    const bool follow = !(flags & AT_SYMLINK_NOFOLLOW);
    if (target.path[0] == '\0' && flags & AT_EMPTY_PATH && dirfd != AT_FDCWD) {
        /* The same question as fstat(2) of a descriptor the caller holds, which no policy judges. */
        call->nr == SYS_statx ? write_statx(call, target.base, (unsigned)flags, (unsigned)mask, to) : write_stat(call, target.base, to);
    } else if (fs_find(call, &target, (follow ? CG_RESOLVE_FOLLOW : 0) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0), CG_FS_OP_STAT, &path) == 0) {
        call->nr == SYS_statx ? write_statx(call, path.object, (unsigned)flags, (unsigned)mask, to) : write_stat(call, path.object, to);
        cg_path_release(&path);
    }
    fs_target_release(&target);
}

void fs_access(struct cg_call *call) {
    const bool at = call->nr != SYS_access;
    const int dirfd = at ? (int)call->args[0] : AT_FDCWD;
    const uint64_t pointer = call->args[at ? 1 : 0], mode = (uint32_t)call->args[at ? 2 : 1];
    const uint64_t flags = call->nr == SYS_faccessat2 ? (uint32_t)call->args[3] : 0;
    if (mode & ~7u || flags & ~(uint64_t)(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) { cg_answer_error(call, EINVAL); return; }
    struct cg_fs_target target;
    struct cg_path path;
    if (fs_target_read(call, dirfd, pointer, FS_TARGET_EMPTY | FS_TARGET_LOOKS, &target) != 0) return;
    const unsigned resolve = (flags & AT_SYMLINK_NOFOLLOW ? 0 : CG_RESOLVE_FOLLOW) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0);
    if (fs_find(call, &target, resolve, CG_FS_OP_STAT, &path) == 0) {
        if (syscall(SYS_faccessat2, path.object, "", (int)mode, AT_EMPTY_PATH | AT_EACCESS) == 0) cg_answer_value(call, 0);
        else cg_answer_error(call, errno);
        cg_path_release(&path);
    }
    fs_target_release(&target);
}

/* flock and the locks of fcntl that belong to an open file: notified only so that none is still held by our copy of a file that its holder has closed. */
void fs_lock(struct cg_call *call) {
    cg_await_handed_over(call);
    cg_answer_continue(call, "the descriptor is the caller's own, and no policy has a say in locks");
}

void fs_readlink(struct cg_call *call) {
    const bool at = call->nr == SYS_readlinkat;
    const uint64_t pointer = call->args[at ? 1 : 0], to = call->args[at ? 2 : 1];
    const int size = (int)call->args[at ? 3 : 2];
    if (size <= 0) { cg_answer_error(call, EINVAL); return; }
    struct cg_fs_target target;
    struct cg_path path;
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, pointer, FS_TARGET_EMPTY | FS_TARGET_LOOKS, &target) != 0) return;
    if (fs_find(call, &target, at ? CG_RESOLVE_EMPTY : 0, CG_FS_OP_READLINK, &path) == 0) {
        char text[PATH_MAX];
        struct cg_caller who;
        ssize_t n;
        /* The kernel would answer for us, who are not in the VM's /proc. */
        if (strcmp(path.text, "/proc/self") == 0 && cg_caller_of(call->vm, call->tid, &who) == 0)
            n = snprintf(text, sizeof text, "%d", who.inner_tgid);
        else if (strcmp(path.text, "/proc/thread-self") == 0 && cg_caller_of(call->vm, call->tid, &who) == 0)
            n = snprintf(text, sizeof text, "%d/task/%d", who.inner_tgid, who.inner_tid);
        else n = readlinkat(path.object, "", text, sizeof text);
        if (n < 0) cg_answer_error(call, errno == ENOENT && target.path[0] ? EINVAL : errno); /* "" of what is not a link: ENOENT, by name EINVAL */
        else {
            if (n > size) n = size;
            int error = cg_write_memory(call, to, text, (size_t)n);
            error ? cg_answer_error(call, -error) : cg_answer_value(call, n);
        }
        cg_path_release(&path);
    }
    fs_target_release(&target);
}

void fs_statfs(struct cg_call *call) {
    struct cg_fs_target target;
    struct cg_path path;
    if (fs_target_read(call, AT_FDCWD, call->args[0], FS_TARGET_LOOKS, &target) != 0) return;
    if (fs_find(call, &target, CG_RESOLVE_FOLLOW, CG_FS_OP_STAT, &path) == 0) {
        struct statfs fs;
        int error = fstatfs(path.object, &fs) == 0 ? cg_write_memory(call, call->args[1], &fs, sizeof fs) : -errno;
        error ? cg_answer_error(call, -error) : cg_answer_value(call, 0);
        cg_path_release(&path);
    }
    fs_target_release(&target);
}

struct directory { dev_t device; ino_t inode; };

static struct directory cwd_of(struct cg_call *call, pid_t tid, struct cg_path *path) {
    struct stat st = {0};
    char what[32];
    snprintf(what, sizeof what, "%d/cwd", tid);
    path->object = openat(call->vm->root.host_proc, what, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (path->object < 0 || fstat(path->object, &st) != 0 || cg_descriptor_text(&call->vm->root, path->object, path->text, sizeof path->text, &path->length) != 0)
        path->length = 0;
    if (path->object >= 0) close(path->object); /* only whether there was one matters to the caller */
    return (struct directory){st.st_dev, st.st_ino};
}

/* The caller is where it was before, or in a directory that it may be told exists. */
static bool approve_directory(struct cg_call *call, pid_t tid, enum cg_stop stop, const void *context) {
    const struct directory *before = context;
    struct cg_path path;
    const struct directory now = cwd_of(call, tid, &path);
    if (path.object < 0 && (errno == ENOENT || errno == ESRCH)) return true; /* a thread that is being killed (by another's exec, say) has none and runs no more */
    if (stop != CG_STOP_RETURN) return false;
    return (now.device == before->device && now.inode == before->inode) || (path.length && fs_would_allow(call, CG_FS_OP_STAT, path.text, path.length));
}

void fs_chdir(struct cg_call *call) {
    struct cg_fs_target target;
    struct cg_path path, here;
    struct stat st;
    if (fs_target_read(call, AT_FDCWD, call->args[0], 0, &target) != 0) return;
    if (fs_find(call, &target, CG_RESOLVE_FOLLOW, CG_FS_OP_STAT, &path) == 0) {
        if (fstat(path.object, &st) == 0 && !S_ISDIR(st.st_mode)) cg_answer_error(call, ENOTDIR);
        else if (syscall(SYS_faccessat2, path.object, "", X_OK, AT_EMPTY_PATH | AT_EACCESS) != 0) cg_answer_error(call, errno);
        else {
            /* Only the caller itself can change its directory. A directory gives it no right, since every use of it is judged by the path it then has;
             * so that not even its existence is told, the caller is killed before it learns that it got into one it may not stat. */
            const struct directory before = cwd_of(call, call->tid, &here);
            if (cg_run_proved(call, "where the caller got to is judged again before it runs on", approve_directory, &before) != 0)
                fs_refuse(call, &target, CG_FS_OP_STAT, CG_RULE_UNSUPPORTED, &path, CG_TRACED);
        }
        cg_path_release(&path);
    }
    fs_target_release(&target);
}

/* ---- changing ---- */

void fs_do_chmod(struct cg_call *call, const struct cg_fs_target *target, unsigned resolve_flags, mode_t mode) {
    struct cg_path path;
    struct stat st;
    if (mode & 06000 && call->vm->launch.flags & CG_LAUNCH_NO_SETID) { cg_answer_error(call, EPERM); return; }
    if (fs_find(call, target, resolve_flags, CG_FS_OP_CHMOD, &path) != 0) return;
    if (fstat(path.object, &st) == 0 && S_ISLNK(st.st_mode)) cg_answer_error(call, EOPNOTSUPP);
    else if (fchmodat(AT_FDCWD, fs_own_path(path.object).text, mode & 07777, 0) == 0) cg_answer_value(call, 0);
    else cg_answer_error(call, errno);
    cg_path_release(&path);
}

void fs_chmod(struct cg_call *call) {
    const bool at = call->nr != SYS_chmod;
    const uint64_t flags = call->nr == SYS_fchmodat2 ? (uint32_t)call->args[3] : 0;
    struct cg_fs_target target;
    if (flags & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) { cg_answer_error(call, EINVAL); return; }
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], FS_TARGET_EMPTY, &target) != 0) return;
    fs_do_chmod(call, &target, (flags & AT_SYMLINK_NOFOLLOW ? 0 : CG_RESOLVE_FOLLOW) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0),
                (mode_t)call->args[at ? 2 : 1]);
    fs_target_release(&target);
}

void fs_fchmod(struct cg_call *call) {
    struct cg_fs_target target;
    if (fs_target_open_file(call, (int)call->args[0], &target) != 0) return;
    fs_do_chmod(call, &target, CG_RESOLVE_EMPTY, (mode_t)call->args[1]);
    fs_target_release(&target);
}

/* The caller's own limit on a file's size (setrlimit(2)): made longer on behalf, it must hold as well. True: answered. */
static bool too_long(struct cg_call *call, int object, int64_t length) {
    struct rlimit limit;
    struct stat st;
    struct cg_caller who;
    if (call->tid == 0 || fstat(object, &st) != 0 || length <= st.st_size || prlimit(call->tid, RLIMIT_FSIZE, NULL, &limit) != 0 ||
        (uint64_t)length <= limit.rlim_cur)
        return false;
    if (cg_caller_of(call->vm, call->tid, &who) == 0 && cg_still_waiting(call)) syscall(SYS_tgkill, who.tgid, call->tid, SIGXFSZ);
    cg_answer_error(call, EFBIG);
    return true;
}

void fs_do_truncate(struct cg_call *call, const struct cg_fs_target *target, int64_t length) {
    struct cg_path path;
    if (fs_find(call, target, CG_RESOLVE_FOLLOW, CG_FS_OP_TRUNCATE, &path) != 0) return;
    if (too_long(call, path.object, length)) {
        cg_path_release(&path);
        return;
    }
    const int error = truncate(fs_own_path(path.object).text, length) == 0 ? 0 : errno;
    cg_path_release(&path); /* before the answer: the caller may remove it next, and then it must be gone */
    error ? cg_answer_error(call, error) : cg_answer_value(call, 0);
}

void fs_truncate(struct cg_call *call) {
    struct cg_fs_target target;
    if ((int64_t)call->args[1] < 0) { cg_answer_error(call, EINVAL); return; }
    if (fs_target_read(call, AT_FDCWD, call->args[0], 0, &target) != 0) return;
    fs_do_truncate(call, &target, (int64_t)call->args[1]);
    fs_target_release(&target);
}

void fs_ftruncate(struct cg_call *call) {
    /* The descriptor itself, not its file: whether it is open for writing is the descriptor's. */
    struct cg_fs_target target = {.base = cg_take_descriptor(call, (int)call->args[0]), .path = ""};
    struct cg_path path;
    if (target.base < 0) { cg_answer_error(call, -target.base); return; }
    if (fs_find(call, &target, CG_RESOLVE_EMPTY, CG_FS_OP_TRUNCATE, &path) == 0) {
        const bool refused = too_long(call, path.object, (int64_t)call->args[1]);
        const int error = refused || ftruncate(target.base, (int64_t)call->args[1]) == 0 ? 0 : errno;
        cg_path_release(&path);
        fs_target_release(&target); /* before the answer: the caller may close its own and execute the file next */
        error ? cg_answer_error(call, error) : cg_answer_value(call, 0);
    }
    fs_target_release(&target);
}

static uint32_t outer_id(uint32_t id, uint32_t guest_inside, uint32_t guest_outside) {
    return id == UINT32_MAX ? UINT32_MAX : id == guest_inside ? guest_outside : OVERFLOW_ID;
}

static void do_chown(struct cg_call *call, const struct cg_fs_target *target, unsigned resolve_flags, uint32_t uid, uint32_t gid) {
    struct cg_path path;
    const struct cg_launch *launch = &call->vm->launch;
    if (fs_find(call, target, resolve_flags, CG_FS_OP_WRITE, &path) != 0) return;
    if ((uid != UINT32_MAX && uid != launch->guest_uid) || (gid != UINT32_MAX && gid != launch->guest_gid)) cg_answer_error(call, EINVAL); /* no such id in the VM */
    else if (fchownat(path.object, "", outer_id(uid, launch->guest_uid, call->vm->uid), outer_id(gid, launch->guest_gid, call->vm->gid), AT_EMPTY_PATH) == 0)
        cg_answer_value(call, 0);
    else cg_answer_error(call, errno);
    cg_path_release(&path);
}

void fs_chown(struct cg_call *call) {
    const bool at = call->nr == SYS_fchownat;
    const uint64_t flags = at ? (uint32_t)call->args[4] : call->nr == SYS_lchown ? AT_SYMLINK_NOFOLLOW : 0;
    struct cg_fs_target target;
    if (flags & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) { cg_answer_error(call, EINVAL); return; }
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], FS_TARGET_EMPTY, &target) != 0) return;
    do_chown(call, &target, (flags & AT_SYMLINK_NOFOLLOW ? 0 : CG_RESOLVE_FOLLOW) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0),
             (uint32_t)call->args[at ? 2 : 1], (uint32_t)call->args[at ? 3 : 2]);
    fs_target_release(&target);
}

void fs_fchown(struct cg_call *call) {
    struct cg_fs_target target;
    if (fs_target_open_file(call, (int)call->args[0], &target) != 0) return;
    do_chown(call, &target, CG_RESOLVE_EMPTY, (uint32_t)call->args[1], (uint32_t)call->args[2]);
    fs_target_release(&target);
}

/* The times argument in any of its four forms; 0 or a negative errno. */
static int read_times(struct cg_call *call, uint64_t pointer, struct timespec times[2]) {
    int error;
    if (call->nr == SYS_utimensat) return cg_read_memory(call, pointer, times, 2 * sizeof *times);
    if (call->nr == SYS_utime) {
        struct utimbuf both;
        error = cg_read_memory(call, pointer, &both, sizeof both);
        times[0] = (struct timespec){.tv_sec = both.actime}, times[1] = (struct timespec){.tv_sec = both.modtime};
        return error;
    }
    struct timeval both[2];
    error = cg_read_memory(call, pointer, both, sizeof both);
    for (int i = 0; i < 2 && !error; i++) {
        if (both[i].tv_usec < 0 || both[i].tv_usec >= 1000000) return -EINVAL;
        times[i] = (struct timespec){both[i].tv_sec, both[i].tv_usec * 1000};
    }
    return error;
}

void fs_utimes(struct cg_call *call) {
    const bool at = call->nr == SYS_utimensat || call->nr == SYS_futimesat;
    const int dirfd = at ? (int)call->args[0] : AT_FDCWD;
    const uint64_t pointer = call->args[at ? 1 : 0], when = call->args[at ? 2 : 1];
    const uint64_t flags = call->nr == SYS_utimensat ? (uint32_t)call->args[3] : 0;
    struct timespec times[2];
    struct cg_fs_target target;
    struct cg_path path;
    if (flags & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) { cg_answer_error(call, EINVAL); return; }
    int error = when ? read_times(call, when, times) : 0;
    if (error) { cg_answer_error(call, -error); return; }
    if (call->nr == SYS_utimensat && when && times[0].tv_nsec == UTIME_OMIT && times[1].tv_nsec == UTIME_OMIT) { /* nothing is even looked up */
        cg_answer_value(call, 0);
        return;
    }
    if (pointer == 0 && dirfd != AT_FDCWD && flags) { cg_answer_error(call, EINVAL); return; }
    if (pointer == 0 && at && dirfd != AT_FDCWD) { /* futimens(3) */
        if (fs_target_open_file(call, dirfd, &target) != 0) return;
    } else if (fs_target_read(call, dirfd, pointer, FS_TARGET_EMPTY, &target) != 0) return;
    const unsigned resolve = (flags & AT_SYMLINK_NOFOLLOW ? 0 : CG_RESOLVE_FOLLOW) | (flags & AT_EMPTY_PATH || (at && pointer == 0) ? CG_RESOLVE_EMPTY : 0);
    if (fs_find(call, &target, resolve, CG_FS_OP_WRITE, &path) == 0) {
        if (utimensat(AT_FDCWD, fs_own_path(path.object).text, when ? times : NULL, 0) == 0) cg_answer_value(call, 0);
        else cg_answer_error(call, errno);
        cg_path_release(&path);
    }
    fs_target_release(&target);
}

/* ---- watches, handles, mounts ---- */

void fs_watch(struct cg_call *call) {
    const uint32_t mask = (uint32_t)call->args[2];
    struct cg_fs_target target;
    struct cg_path path;
    struct stat st;
    if (fs_target_read(call, AT_FDCWD, call->args[1], 0, &target) != 0) return;
    fs_resolve(call, &target, mask & IN_DONT_FOLLOW ? 0 : CG_RESOLVE_FOLLOW, &path);
    const bool directory = path.object >= 0 && fstat(path.object, &st) == 0 && S_ISDIR(st.st_mode);
    if (path.text[0] == '\0' && path.error) cg_answer_error(call, path.error);
    else if (!fs_judge(call, &target, directory ? CG_FS_OP_READDIR : CG_FS_OP_READ, &path)) {
    } else if (path.error) cg_answer_error(call, path.error);
    else {
        int notify = cg_take_descriptor(call, (int)call->args[0]); /* the caller's own: the watch is added to what it reads from */
        int watch = notify < 0 ? notify : inotify_add_watch(notify, fs_own_path(path.object).text, mask & ~(uint32_t)IN_DONT_FOLLOW);
        const int error = notify < 0 ? -notify : errno;
        if (notify >= 0) close(notify);
        watch >= 0 ? cg_answer_value(call, watch) : cg_answer_error(call, error);
    }
    cg_path_release(&path);
    fs_target_release(&target);
}

void fs_handle(struct cg_call *call) {
    struct cg_fs_target target;
    struct cg_path path;
    const uint64_t flags = (uint32_t)call->args[4];
    if (fs_target_read(call, (int)call->args[0], call->args[1], FS_TARGET_EMPTY, &target) != 0) return;
    if (fs_find(call, &target, (flags & AT_SYMLINK_FOLLOW ? CG_RESOLVE_FOLLOW : 0) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0), CG_FS_OP_STAT, &path) == 0) {
        cg_answer_error(call, EOPNOTSUPP); /* as on a filesystem without handles: nothing in a VM may open one */
        cg_path_release(&path);
    }
    fs_target_release(&target);
}

void fs_mount(struct cg_call *call) {
    struct cg_fs_target target;
    struct cg_path path;
    uint64_t pointer = 0;
    switch (call->nr) {
    case SYS_mount: pointer = call->args[1]; break;
    case SYS_umount2: case SYS_pivot_root: case SYS_chroot: pointer = call->args[0];
    }
    if (pointer) {
        if (fs_target_read(call, AT_FDCWD, pointer, 0, &target) != 0) return;
    } else fs_target_set(&target, "/");
    fs_resolve(call, &target, CG_RESOLVE_FOLLOW, &path);
    if (fs_judge(call, &target, CG_FS_OP_MOUNT_SENSITIVE, &path)) cg_answer_error(call, EPERM); /* allowed by the policy, but no guest has the capability */
    cg_path_release(&path);
    fs_target_release(&target);
}
