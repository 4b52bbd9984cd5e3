/* open, openat, openat2, creat: judged on the pinned object, opened from it, and put into the caller's table. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "calls.h"
#include "fs_target.h"

#define RACES_MAX 16                      /* something appeared or vanished between look-up and open */
#define TMPFILE (O_TMPFILE & ~O_DIRECTORY)
#define OPENAT_FLAGS (O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | O_SYNC | O_DSYNC | O_ASYNC | O_DIRECT | \
                      O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC | O_PATH | TMPFILE | 0100000 /* O_LARGEFILE */)
#define AT_ONCE_FLAGS (O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | 0100000)
#define WRITER_MS 3 /* how late a writer that says nothing may be noticed */
#define PTS_MAJOR 136 /* of the terminals of a devpts */
#define PATH_FLAGS (O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC)

/* Every operation that the open implies, on what it would really touch. */
static bool judge_open(struct cg_call *call, const struct cg_fs_target *target, uint64_t flags, const struct cg_path *path, bool creates, mode_t type) {
    const uint64_t access = flags & O_ACCMODE;
    if (flags & O_PATH) return fs_judge(call, target, CG_FS_OP_STAT, path);
    const bool directory = access == O_RDONLY && (S_ISDIR(type) || flags & O_DIRECTORY); /* by what is asked, or the answer would tell what is there */
    if (access != O_WRONLY && !(flags & TMPFILE) && !fs_judge(call, target, directory ? CG_FS_OP_READDIR : CG_FS_OP_READ, path)) return false;
    if (access == O_RDWR && flags & TMPFILE && !fs_judge(call, target, CG_FS_OP_READ, path)) return false;
    if ((access != O_RDONLY || creates || flags & (TMPFILE | O_TRUNC)) && !fs_judge(call, target, CG_FS_OP_WRITE, path)) return false;
    return !(flags & O_TRUNC) || fs_judge(call, target, CG_FS_OP_TRUNCATE, path);
}

/* An O_PATH descriptor cannot be handed over (ADDFD refuses them); one that may be read stands in for it, where reading is allowed too. */
static void open_path_only(struct cg_call *call, const struct cg_fs_target *target, const struct cg_path *path, mode_t type, uint64_t flags, bool cloexec) {
    if (S_ISLNK(type)) { /* may be looked at, but not by a descriptor: what callers that only want to change its mode take for an answer */
        cg_answer_error(call, EOPNOTSUPP);
        return;
    }
    const unsigned reading = S_ISDIR(type) ? CG_FS_OP_READDIR : CG_FS_OP_READ;
    if ((!S_ISDIR(type) && !S_ISREG(type)) || !fs_would_allow(call, reading, path->text, path->length)) {
        fs_refuse(call, target, CG_FS_OP_STAT, CG_RULE_UNSUPPORTED, path, "an O_PATH descriptor without the right to read is not supported");
        return;
    }
    int fd = fs_reopen(call, path->object, O_RDONLY | O_NOCTTY | O_CLOEXEC | (int)(flags & O_DIRECTORY), 0);
    if (fd < 0) cg_answer_error(call, errno);
    else cg_answer_fd(call, fd, cloexec);
}

/* /dev/tty is the terminal of whoever opens it, and we have none: the caller's is opened by its own name. */
static int open_terminal_of_caller(struct cg_call *call, int flags) {
    char path[32], text[1024];
    unsigned number = 0; /* major in bits 8 to 19, minor in the others: proc_pid_stat(5) */
    snprintf(path, sizeof path, "%d/stat", call->tid);
    const int fd = openat(call->vm->root.host_proc, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *after_name = strrchr(text, ')');
    if (!after_name || sscanf(after_name, ") %*c %*d %*d %*d %u", &number) != 1 || (number >> 8 & 0xfff) != PTS_MAJOR) { errno = ENXIO; return -1; }
    snprintf(path, sizeof path, "/dev/pts/%u", (number & 0xff) | (number >> 12 & ~0xffu));
    return cg_open_plain(&call->vm->root, path, flags);
}

/* Opens by the pinned object, as the guest asked; what may block delays only its caller. */
static int reopen(struct cg_call *call, int object, int flags, mode_t mode, mode_t type) {
    struct stat st;
    if (S_ISCHR(type) && fstat(object, &st) == 0 && st.st_rdev == makedev(5, 0)) return open_terminal_of_caller(call, flags);
    const bool may_block = !S_ISREG(type) && !S_ISDIR(type);
    if (may_block) cg_block_begin(call);
    int fd = fs_reopen(call, object, flags, mode);
    if (may_block) cg_block_end(call);
    return fd;
}

/* Until the fifo has had a writer since this descriptor was opened, which is what open(2) for reading waits for. Whoever waits counts as its reader already, so a writer that
 * came was let in and may be gone again: then, or when there is something to read, poll tells; a writer that is there and silent is told by tee(2), which takes nothing away. */
static int await_writer(struct cg_call *call, int fd) {
    int scratch[2], error = 0;
    if (pipe2(scratch, O_CLOEXEC) != 0) return -1;
    cg_block_begin(call);
    for (int wait = 0; !error; wait = WRITER_MS) {
        struct pollfd on = {.fd = fd, .events = POLLIN};
        const int ready = poll(&on, 1, wait);
        if (ready < 0) error = errno;
        else if (ready > 0 || tee(fd, scratch[1], 1, SPLICE_F_NONBLOCK) != 0) break;
    }
    errno = error;
    cg_block_end(call);
    error = errno;
    close(scratch[0]), close(scratch[1]);
    errno = error;
    return error ? -1 : 0;
}

/* Most opens: reading what a plain absolute path names, where the policy lets it be read whether it is a file or a directory. Judged by the text, which is the resolved
 * path unless a link is met, and then opened without following any. False: it is not that simple, and nothing was done or said. */
static bool open_at_once(struct cg_call *call, const struct cg_fs_target *target, uint64_t flags, bool cloexec) {
    const char *path = target->path;
    const size_t n = call->tid == 0 || flags & ~(uint64_t)AT_ONCE_FLAGS ? 0 : cg_plain_length(path);
    if (n == 0 || strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/", 5) == 0) return false; /* more is asked there; opening a device may do something */
    if (!fs_would_allow(call, CG_FS_OP_READ, path, n) || !fs_would_allow(call, CG_FS_OP_READDIR, path, n)) return false;
    const int wanted = (int)flags | O_CLOEXEC | O_NOCTTY;
    struct stat st;
    pthread_rwlock_rdlock(&call->vm->names); /* so that the text is where it leads */
    int fd = cg_open_plain(&call->vm->root, path, wanted | O_NONBLOCK); /* a fifo would block */
    pthread_rwlock_unlock(&call->vm->names);
    if (fd < 0) return false;
    if (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
        if (!(flags & O_NONBLOCK)) fcntl(fd, F_SETFL, 0);
        cg_answer_file(call, fd, cloexec);
        return true;
    }
    if (!(flags & O_NONBLOCK) && S_ISFIFO(st.st_mode) && await_writer(call, fd) != 0) {
        cg_answer_error(call, errno);
        close(fd);
        return true;
    }
    if (!(flags & O_NONBLOCK)) fcntl(fd, F_SETFL, 0);
    cg_answer_fd(call, fd, cloexec);
    return true;
}

static void unlock_names(struct cg_call *call, bool *locked) {
    if (*locked) pthread_rwlock_unlock(&call->vm->names);
    *locked = false;
}

static void do_open(struct cg_call *call, const struct cg_fs_target *target, uint64_t flags, mode_t mode, uint64_t resolve, bool cloexec, bool create,
                    bool *locked) {
    const unsigned how = (resolve & RESOLVE_NO_SYMLINKS ? CG_RESOLVE_NO_LINKS : 0) | (resolve & RESOLVE_NO_MAGICLINKS ? CG_RESOLVE_NO_MAGIC : 0) |
                         (resolve & RESOLVE_BENEATH ? CG_RESOLVE_BENEATH : 0) | (resolve & RESOLVE_IN_ROOT ? CG_RESOLVE_IN_ROOT : 0) |
                         (resolve & RESOLVE_NO_XDEV ? CG_RESOLVE_NO_XDEV : 0);
    struct cg_path path;
    for (int race = 0; race < RACES_MAX; race++) {
        struct stat st = {0};
        bool named = create;
        if (create) fs_resolve_parent(call, target, how, &path);
        if (create && path.object >= 0 && fstat(path.object, &st) == 0 && S_ISLNK(st.st_mode) && !(flags & (O_EXCL | O_NOFOLLOW))) {
            cg_path_release(&path); /* creating follows a final link, a dangling one too */
            named = false;
        }
        if (!named) fs_resolve(call, target, how | (flags & (O_NOFOLLOW) || (create && flags & O_EXCL) ? 0 : CG_RESOLVE_FOLLOW), &path);
        const bool exists = path.object >= 0 && path.error == 0;
        if (exists && fstat(path.object, &st) != 0) { cg_answer_error(call, errno); break; }
        const bool creates = !exists && create && path.error == ENOENT && path.parent >= 0;
        if (path.text[0] == '\0' && path.error) { cg_answer_error(call, path.error); break; }
        if (!judge_open(call, target, flags, &path, creates, exists ? st.st_mode : 0)) break;

        if (!exists && !creates) { cg_answer_error(call, path.error); break; }
        if (create && (strchr(path.name, '/') || (exists && S_ISDIR(st.st_mode) && !(flags & O_EXCL)))) { cg_answer_error(call, EISDIR); break; }
        if (exists && create && flags & O_EXCL) { cg_answer_error(call, EEXIST); break; }
        if (exists && flags & O_PATH) { open_path_only(call, target, &path, st.st_mode, flags, cloexec); break; }
        if (exists && S_ISLNK(st.st_mode)) { cg_answer_error(call, flags & O_DIRECTORY ? ENOTDIR : ELOOP); break; }

        /* A terminal never becomes the supervisor's; our copy never outlives an exec of ours. */
        const int open_flags = (int)(flags & ~(uint64_t)(O_CREAT | O_EXCL | O_NOFOLLOW)) | O_CLOEXEC | O_NOCTTY;
        int fd;
        if ((creates || flags & O_TRUNC) && !cg_still_waiting(call)) { cg_answer_error(call, ESRCH); break; } /* it was killed: nothing more is done for it */
        if (creates) {
            fs_use_umask(call);
            fd = openat(path.parent, path.name, open_flags | O_CREAT | O_EXCL, mode & 07777);
            if (fd < 0 && errno == EEXIST) { cg_path_release(&path); continue; }
        } else {
            unlock_names(call, locked); /* the object is pinned, and opening it may block */
            if (flags & TMPFILE) fs_use_umask(call);
            fd = reopen(call, path.object, open_flags, mode & 07777, st.st_mode);
        }
        const int error = errno;
        cg_path_release(&path); /* before the answer: the caller may remove it next, and then it must be gone */
        if (fd < 0) cg_answer_error(call, error);
        else if (creates || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) cg_answer_file(call, fd, cloexec);
        else cg_answer_fd(call, fd, cloexec);
        break;
    }
    cg_path_release(&path);
    if (!call->answered) cg_answer_error(call, EACCES); /* a storm of races that never settled */
}

void fs_do_open(struct cg_call *call, const struct cg_fs_target *target, uint64_t flags, mode_t mode, uint64_t resolve, bool cloexec) {
    const bool create = flags & O_CREAT && !(flags & (O_PATH | TMPFILE));
    if (flags & (O_CREAT | TMPFILE) && mode & 06000 && call->vm->launch.flags & CG_LAUNCH_NO_SETID) {
        cg_answer_error(call, EPERM);
        return;
    }
    bool locked = create; /* as every call that makes a name: between judging and making it no directory is moved */
    if (locked) pthread_rwlock_rdlock(&call->vm->names);
    do_open(call, target, flags, mode, resolve, cloexec, create, &locked);
    unlock_names(call, &locked);
}

void fs_open(struct cg_call *call) {
    struct cg_fs_target target;
    struct open_how how = {0};
    int dirfd = AT_FDCWD;
    uint64_t pointer = call->args[0];
    switch (call->nr) {
    case SYS_open: how.flags = call->args[1], how.mode = call->args[2]; break;
    case SYS_creat: how.flags = O_CREAT | O_WRONLY | O_TRUNC, how.mode = call->args[1]; break;
    case SYS_openat: dirfd = (int)call->args[0], pointer = call->args[1], how.flags = call->args[2], how.mode = call->args[3]; break;
    case SYS_openat2: {
        dirfd = (int)call->args[0], pointer = call->args[1];
        int error = cg_read_structure(call, call->args[2], call->args[3], &how, sizeof how);
        const uint64_t makes = O_CREAT | TMPFILE;
        if (!error && (how.flags & ~(uint64_t)OPENAT_FLAGS || how.mode & ~07777ull || (how.mode && !(how.flags & makes)) || how.resolve & ~0x3full ||
                       (how.flags & O_PATH && how.flags & ~(uint64_t)PATH_FLAGS)))
            error = -EINVAL;
        if (!error && how.resolve & RESOLVE_CACHED) error = -EAGAIN; /* "would need more than the cache": always a legal answer */
        if (error) { cg_answer_error(call, -error); return; }
    }
    }
    how.flags = (uint32_t)how.flags & OPENAT_FLAGS; /* the older calls ignore what they do not know */
    if (how.flags & O_PATH) how.flags &= PATH_FLAGS;
    if ((how.flags & TMPFILE && ((how.flags & O_TMPFILE) != O_TMPFILE || (how.flags & O_ACCMODE) == O_RDONLY)) ||
        (how.flags & O_CREAT && how.flags & O_DIRECTORY)) {
        cg_answer_error(call, EINVAL);
        return;
    }
    const bool looks = (how.flags & (O_ACCMODE | O_CREAT | O_TRUNC | TMPFILE)) == 0;
    if (fs_target_read(call, dirfd, pointer, looks ? FS_TARGET_LOOKS : 0, &target) != 0) return;
    if (how.resolve == 0 && open_at_once(call, &target, how.flags, how.flags & O_CLOEXEC)) {
        fs_target_release(&target);
        return;
    }
    if (how.resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) && target.base < 0) { /* an absolute path: what it is absolute to */
        target.base = dirfd == AT_FDCWD ? cg_pin_cwd(call) : cg_pin_descriptor(call, dirfd);
        if (target.base < 0) { cg_answer_error(call, -target.base); return; }
    }
    if ((how.resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT)) == (RESOLVE_BENEATH | RESOLVE_IN_ROOT)) cg_answer_error(call, EINVAL);
    else fs_do_open(call, &target, how.flags, (mode_t)how.mode, how.resolve, how.flags & O_CLOEXEC);
    fs_target_release(&target);
}
