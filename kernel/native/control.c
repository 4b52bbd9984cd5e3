/* Messages from the host: start a run, signal it, operate on the VM's files, tell the counters. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs_target.h"
#include "network.h"
#include "supervisor.h"

#define DESCRIPTORS_MAX 6 /* five are used; control data is padded to an even number, and the kernel fills the room */
#define KNOWN_FLAGS (O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

void cg_reply(struct cg_vm *vm, uint32_t request, int error, uint64_t value, const void *data, size_t length, int fd, const struct cg_denial *denial) {
    static uint8_t buffer[CG_MESSAGE_MAX]; /* only the main thread replies */
    struct cg_writer out;
    cg_writer_init(&out, buffer, sizeof buffer);
    cg_write_u32(&out, CG_MSG_REPLY);
    cg_write_u32(&out, request);
    cg_write_i32(&out, error);
    cg_write_u64(&out, value);
    cg_write_bytes(&out, data, length);
    cg_write_u32(&out, denial ? 1 : 0);
    if (denial) cg_denial_write(&out, denial);
    struct iovec part = {buffer, cg_writer_size(&out)};
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int))]; } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (part.iov_len) sendmsg(vm->control, &message, MSG_NOSIGNAL); /* a host that is gone is seen by the main loop */
}

static void fs_stat_reply(struct cg_vm *vm, struct cg_call *call, uint32_t request, const struct cg_fs_target *target, bool follow) {
    struct cg_path path;
    struct stat st;
    if (fs_find(call, target, follow ? CG_RESOLVE_FOLLOW : 0, CG_FS_OP_STAT, &path) != 0) return;
    if (fstat(path.object, &st) != 0) cg_answer_error(call, errno);
    else {
        uint8_t data[80];
        struct cg_writer out;
        cg_writer_init(&out, data, sizeof data);
        const uint64_t second = 1000000000u;
        cg_write_u64(&out, st.st_mode), cg_write_u64(&out, st.st_ino), cg_write_u64(&out, st.st_dev), cg_write_u64(&out, st.st_nlink);
        cg_write_u64(&out, st.st_uid == vm->uid ? vm->launch.guest_uid : 65534), cg_write_u64(&out, st.st_gid == vm->gid ? vm->launch.guest_gid : 65534);
        cg_write_u64(&out, (uint64_t)st.st_size);
        cg_write_u64(&out, (uint64_t)st.st_atim.tv_sec * second + (uint64_t)st.st_atim.tv_nsec);
        cg_write_u64(&out, (uint64_t)st.st_mtim.tv_sec * second + (uint64_t)st.st_mtim.tv_nsec);
        cg_write_u64(&out, (uint64_t)st.st_ctim.tv_sec * second + (uint64_t)st.st_ctim.tv_nsec);
        cg_reply(vm, request, 0, 0, data, cg_writer_size(&out), -1, NULL);
        call->fd = -2; /* answered here */
        cg_answer_value(call, 0);
    }
    cg_path_release(&path);
}

static void fs_readlink_reply(struct cg_vm *vm, struct cg_call *call, uint32_t request, const struct cg_fs_target *target) {
    struct cg_path path;
    char text[PATH_MAX];
    if (fs_find(call, target, 0, CG_FS_OP_READLINK, &path) != 0) return;
    ssize_t n = readlinkat(path.object, "", text, sizeof text);
    if (n < 0) cg_answer_error(call, errno == ENOENT ? EINVAL : errno);
    else {
        cg_reply(vm, request, 0, 0, text, (size_t)n, -1, NULL);
        call->fd = -2;
        cg_answer_value(call, 0);
    }
    cg_path_release(&path);
}

/* vm.fs: the guest's calls, made by the host. Judged the same, unless the operator says unchecked. */
static void do_fs(struct cg_vm *vm, uint32_t request, struct cg_reader *in) {
    static struct cg_denial denial;
    static struct cg_call call;
    static struct cg_fs_target one, two;
    const uint32_t operation = cg_read_u32(in), flags = cg_read_u32(in), a = cg_read_u32(in), b = cg_read_u32(in);
    uint32_t n, m;
    const uint8_t *first = cg_read_bytes(in, &n), *second = cg_read_bytes(in, &m);
    char path[PATH_MAX], other[PATH_MAX];
    if (!cg_reader_done(in) || n == 0 || n >= sizeof path || m >= sizeof other || memchr(first, 0, n) || memchr(second, 0, m)) {
        cg_reply(vm, request, n >= sizeof path || m >= sizeof other ? ENAMETOOLONG : EINVAL, 0, NULL, 0, -1, NULL);
        return;
    }
    memcpy(path, first, n), path[n] = '\0';
    memcpy(other, second, m), other[m] = '\0';
    memset(&call, 0, sizeof call);
    memset(&denial, 0, sizeof denial);
    call.vm = vm, call.fd = -1, call.denial = &denial, call.unchecked = flags & CG_FS_UNCHECKED;
    fs_target_set(&one, path);
    fs_target_set(&two, other);
    switch (operation) {
    case CG_FS_OPEN:
        /* Never block the main thread: a fifo opens at once or not at all. */
        fs_do_open(&call, &one, (a & KNOWN_FLAGS) | O_NONBLOCK, (mode_t)b, 0, true);
        break;
    case CG_FS_STAT: fs_stat_reply(vm, &call, request, &one, a & 1); break;
    case CG_FS_MKDIR: fs_do_mkdir(&call, &one, (mode_t)b); break;
    case CG_FS_UNLINK: fs_do_unlink(&call, &one, a & 1); break;
    case CG_FS_RENAME: fs_do_rename(&call, &one, &two, 0); break;
    case CG_FS_SYMLINK: fs_do_symlink(&call, other, &one); break;
    case CG_FS_READLINK: fs_readlink_reply(vm, &call, request, &one); break;
    case CG_FS_CHMOD: fs_do_chmod(&call, &one, CG_RESOLVE_FOLLOW, (mode_t)b); break;
    case CG_FS_LINK: fs_do_link(&call, &one, false, &two); break;
    case CG_FS_TRUNCATE: fs_do_truncate(&call, &one, (int64_t)((uint64_t)b << 32 | a)); break;
    default: cg_answer_error(&call, EINVAL);
    }
    if (call.fd == -2) return;
    cg_reply(vm, request, call.error, (uint64_t)call.value, NULL, 0, call.fd, call.error == EACCES && denial.time ? &denial : NULL);
    if (call.fd >= 0) close(call.fd);
}

static void do_run(struct cg_vm *vm, uint32_t request, struct cg_reader *in, const int *fds, int count) {
    const uint32_t flags = cg_read_u32(in);
    struct stat st;
    if (flags & CG_RUN_IN_MEMFD && count == 5 && fstat(fds[4], &st) == 0 && st.st_size > 0) {
        uint8_t *blob = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fds[4], 0);
        close(fds[4]);
        if (blob != MAP_FAILED) {
            struct cg_reader payload;
            cg_reader_init(&payload, blob, (size_t)st.st_size);
            cg_run_start(vm, request, &payload, flags, fds);
            munmap(blob, (size_t)st.st_size);
            return;
        }
        count = 4;
    } else if (!(flags & CG_RUN_IN_MEMFD) && count == 4) {
        cg_run_start(vm, request, in, flags, fds);
        return;
    }
    for (int i = 0; i < count; i++) close(fds[i]);
    cg_reply(vm, request, EINVAL, 0, NULL, 0, -1, NULL);
}

static void do_stats(struct cg_vm *vm, uint32_t request) {
    uint8_t data[40];
    struct cg_writer out;
    uint64_t alive = 0;
    for (size_t i = 0; i < CG_RUNS_MAX; i++) alive += vm->runs[i].used;
    pthread_mutex_lock(&vm->workers_lock);
    const int workers = vm->worker_count;
    pthread_mutex_unlock(&vm->workers_lock);
    cg_writer_init(&out, data, sizeof data);
    cg_write_u64(&out, atomic_load(&vm->notified));
    cg_write_u64(&out, atomic_load(&vm->denials));
    cg_write_u64(&out, atomic_load(&vm->dropped));
    cg_write_u64(&out, (uint64_t)workers);
    cg_write_u64(&out, alive);
    cg_reply(vm, request, 0, 0, data, cg_writer_size(&out), -1, NULL);
}

static void do_socket(struct cg_vm *vm, uint32_t request, struct cg_reader *in) {
    const uint32_t domain = cg_read_u32(in), type = cg_read_u32(in);
    const bool known = cg_reader_done(in) && (domain == AF_INET || domain == AF_INET6) && (type == SOCK_STREAM || type == SOCK_DGRAM);
    const int fd = known ? cg_socket_inside(vm, (int)domain, (int)type) : -EINVAL;
    cg_reply(vm, request, fd < 0 ? -fd : 0, 0, NULL, 0, fd, NULL);
    if (fd >= 0) close(fd);
}

int cg_control_receive(struct cg_vm *vm) {
    static uint8_t buffer[CG_MESSAGE_MAX];
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)]; } control;
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(vm->control, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0) return -1;
    int fds[DESCRIPTORS_MAX], count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        if (count > DESCRIPTORS_MAX) count = DESCRIPTORS_MAX; /* the kernel cut the rest: MSG_CTRUNC */
        memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
    }
    struct cg_reader in;
    cg_reader_init(&in, buffer, (size_t)n);
    const uint32_t type = cg_read_u32(&in), request = cg_read_u32(&in);
    if (type == CG_MSG_RUN && !in.failed && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        do_run(vm, request, &in, fds, count);
        return 0;
    }
    if (type == CG_MSG_CPU_CLOCK && count == 1 && cg_reader_done(&in) && vm->watch.cpu_clock < 0) {
        vm->watch.cpu_clock = fds[0];
        cg_reply(vm, request, 0, 0, NULL, 0, -1, NULL);
        return 0;
    }
    for (int i = 0; i < count; i++) close(fds[i]);
    switch (in.failed || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? 0 : type) {
    case CG_MSG_SIGNAL: {
        const uint32_t run = cg_read_u32(&in), signal = cg_read_u32(&in), whom = cg_read_u32(&in);
        cg_reply(vm, request, cg_reader_done(&in) ? cg_run_signal(vm, run, (int)signal, whom) : EINVAL, 0, NULL, 0, -1, NULL);
        break;
    }
    case CG_MSG_FS: do_fs(vm, request, &in); break;
    case CG_MSG_STATS: do_stats(vm, request); break;
    case CG_MSG_NAME: cg_reply(vm, request, cg_name_learn(vm, &in), 0, NULL, 0, -1, NULL); break;
    case CG_MSG_LOOKUP_DENIED: cg_reply(vm, request, cg_lookup_denied(vm, &in), 0, NULL, 0, -1, NULL); break;
    case CG_MSG_SOCKET: do_socket(vm, request, &in); break;
    default: cg_reply(vm, request, EINVAL, 0, NULL, 0, -1, NULL);
    }
    return 0;
}
