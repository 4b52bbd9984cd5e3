/* The least that a supervisor of user notifications can do: receive a call, read its path, make the call, answer it.
 * No policy and no resolution.
 *
 *   floor FILTER SYNC WORKERS PROGRAM [ARGUMENT...]
 *
 * FILTER: a file of struct sock_filter, the one that a VM has, so that the same calls are notified. SYNC 1: wake the other
 * side on the caller's own processor (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP). Paths are taken as absolute ones; calls it does
 * not know are let through unread, which is no way to confine anything.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1ul << 5)
#endif
#define SYNC_WAKE_UP 1ull
#define PAGE 4096u
#define WORKERS_MAX 64

static int listener;
static size_t request_size = sizeof(struct seccomp_notif), response_size = sizeof(struct seccomp_notif_resp);

_Noreturn static void fail(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* A string of the caller's, a page at a time: it may end just before an unmapped one. */
static int read_path(pid_t pid, uint64_t address, char *to) {
    for (size_t done = 0; done < PATH_MAX;) {
        size_t n = PAGE - (address + done) % PAGE;
        if (n > PATH_MAX - done) n = PATH_MAX - done;
        struct iovec mine = {to + done, n}, theirs = {(void *)(uintptr_t)(address + done), n};
        if (process_vm_readv(pid, &mine, 1, &theirs, 1, 0) != (ssize_t)n) return EFAULT;
        if (memchr(to + done, 0, n)) return 0;
        done += n;
    }
    return ENAMETOOLONG;
}

static int write_back(pid_t pid, uint64_t address, const void *from, size_t n) {
    struct iovec mine = {(void *)(uintptr_t)from, n}, theirs = {(void *)(uintptr_t)address, n};
    return process_vm_writev(pid, &mine, 1, &theirs, 1, 0) == (ssize_t)n ? 0 : EFAULT;
}

/* 0 and the value, or an errno; -1: already answered; -2: not a call it knows. */
static int perform(const struct seccomp_notif *request, int64_t *value) {
    const uint64_t *a = (const uint64_t *)request->data.args;
    const pid_t pid = (pid_t)request->pid;
    char path[PATH_MAX], other[PATH_MAX];
    struct stat st;
    int error;
    switch (request->data.nr) {
    case SYS_open:
    case SYS_openat: {
        const int at = request->data.nr == SYS_openat;
        const uint64_t flags = (unsigned)a[at + 1];
        struct open_how how = {.flags = flags | O_CLOEXEC, .mode = flags & (O_CREAT | O_TMPFILE) ? a[at + 2] & 07777 : 0};
        if ((error = read_path(pid, a[at], path)) != 0) return error;
        int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
        if (fd < 0) return errno;
        struct seccomp_notif_addfd add = {.id = request->id, .flags = SECCOMP_ADDFD_FLAG_SEND, .srcfd = (unsigned)fd,
                                          .newfd_flags = flags & O_CLOEXEC};
        error = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ? errno : -1;
        close(fd);
        return error;
    }
    case SYS_stat:
    case SYS_newfstatat: {
        const int at = request->data.nr == SYS_newfstatat;
        if ((error = read_path(pid, a[at], path)) != 0) return error;
        if (path[0] == '\0') return -2; /* fstat as some C libraries make it: the descriptor is not ours to look at */
        if (fstatat(AT_FDCWD, path, &st, 0) != 0) return errno;
        return write_back(pid, a[at + 1], &st, sizeof st);
    }
    case SYS_access:
        if ((error = read_path(pid, a[0], path)) != 0) return error;
        return access(path, (int)a[1]) != 0 ? errno : 0;
    case SYS_readlink: {
        if ((error = read_path(pid, a[0], path)) != 0) return error;
        ssize_t n = readlink(path, other, sizeof other);
        if (n < 0) return errno;
        *value = n;
        return write_back(pid, a[1], other, (size_t)n);
    }
    case SYS_mkdir:
        if ((error = read_path(pid, a[0], path)) != 0) return error;
        return mkdir(path, (mode_t)a[1]) != 0 ? errno : 0;
    case SYS_rmdir:
        if ((error = read_path(pid, a[0], path)) != 0) return error;
        return rmdir(path) != 0 ? errno : 0;
    case SYS_unlink:
        if ((error = read_path(pid, a[0], path)) != 0) return error;
        return unlink(path) != 0 ? errno : 0;
    case SYS_chmod:
        if ((error = read_path(pid, a[0], path)) != 0) return error;
        return chmod(path, (mode_t)a[1]) != 0 ? errno : 0;
    case SYS_rename:
        if ((error = read_path(pid, a[0], path)) != 0 || (error = read_path(pid, a[1], other)) != 0) return error;
        return rename(path, other) != 0 ? errno : 0;
    default: return -2;
    }
}

static void *work(void *unused) {
    struct seccomp_notif *request = calloc(1, request_size);
    struct seccomp_notif_resp *response = calloc(1, response_size);
    (void)unused;
    if (!request || !response) fail("memory");
    for (;;) {
        memset(request, 0, request_size);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, request) != 0) {
            if (errno == EINTR || errno == ENOENT) continue;
            return NULL;
        }
        int64_t value = 0;
        const int error = perform(request, &value);
        if (error == -1) continue;
        memset(response, 0, response_size);
        response->id = request->id;
        response->val = error ? 0 : value;
        response->error = error > 0 ? -error : 0;
        response->flags = error == -2 ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0;
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, response);
    }
}

/* Installs the filter, says where its listener is, waits until that has been taken, and becomes the program. */
_Noreturn static void child(const struct sock_fprog *program, int tell, int go, char **argv) {
    char byte;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("no_new_privs");
    const unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, program);
    if (write(tell, &fd, sizeof fd) != sizeof fd || fd < 0 || read(go, &byte, 1) != 1) _exit(1);
    close(fd);
    execv(argv[0], argv);
    _exit(127);
}

int main(int argc, char **argv) {
    static struct sock_filter instructions[4096];
    struct seccomp_notif_sizes sizes;
    int tell[2], go[2], status, number;
    if (argc < 5) { fputs("usage: floor FILTER SYNC WORKERS PROGRAM [ARGUMENT...]\n", stderr); return 2; }
    const long workers = strtol(argv[3], NULL, 10);
    if (workers < 1 || workers > WORKERS_MAX) { fputs("floor: wrong number of workers\n", stderr); return 2; }
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, instructions, sizeof instructions);
    if (n <= 0 || n % (ssize_t)sizeof *instructions != 0) fail(argv[1]);
    close(fd);
    const struct sock_fprog program = {(unsigned short)((size_t)n / sizeof *instructions), instructions};
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0) fail("SECCOMP_GET_NOTIF_SIZES");
    if (sizes.seccomp_notif > request_size) request_size = sizes.seccomp_notif;
    if (sizes.seccomp_notif_resp > response_size) response_size = sizes.seccomp_notif_resp;
    if (pipe2(tell, O_CLOEXEC) != 0 || pipe2(go, O_CLOEXEC) != 0) fail("pipe2");
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) child(&program, tell[1], go[0], argv + 4);
    close(tell[1]);
    if (read(tell[0], &number, sizeof number) != sizeof number || number < 0) { fputs("floor: no listener\n", stderr); return 1; }
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    listener = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    if (listener < 0) fail("pidfd_getfd");
    if (argv[2][0] == '1' && ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) != 0) fail("SYNC_WAKE_UP");
    for (long i = 0; i < workers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0) fail("pthread_create");
    }
    if (write(go[1], "g", 1) != 1) fail("write");
    if (waitpid(pid, &status, 0) != pid) fail("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
