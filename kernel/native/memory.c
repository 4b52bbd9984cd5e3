/* Guest memory, guest descriptors, and what /proc says of a caller.
 *
 * Everything read here is a copy taken once; what is decided and done later uses the copy. A bad pointer is the guest's EFAULT.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "supervisor.h"

#define PAGE 4096u
#define USUAL 256u
#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif

int cg_read_memory(struct cg_call *call, uint64_t address, void *to, size_t length) {
    struct iovec mine = {to, length}, theirs = {(void *)(uintptr_t)address, length};
    if (length == 0) return 0;
    ssize_t n = process_vm_readv(call->tid, &mine, 1, &theirs, 1, 0);
    if (n == (ssize_t)length) return 0;
    return n < 0 && errno == ESRCH ? -ESRCH : -EFAULT;
}

int cg_read_structure(struct cg_call *call, uint64_t address, uint64_t size, void *to, size_t known) {
    uint8_t rest[256];
    if (size < known) return -EINVAL;
    if (size > PAGE) return -E2BIG;
    int error = cg_read_memory(call, address, to, known);
    for (uint64_t at = known; !error && at < size;) {
        const uint64_t n = size - at < sizeof rest ? size - at : sizeof rest;
        error = cg_read_memory(call, address + at, rest, n);
        for (uint64_t i = 0; !error && i < n; i++)
            if (rest[i]) error = -E2BIG;
        at += n;
    }
    return error;
}

int cg_write_memory(struct cg_call *call, uint64_t address, const void *from, size_t length) {
    struct iovec mine = {(void *)(uintptr_t)from, length}, theirs = {(void *)(uintptr_t)address, length};
    if (length == 0) return 0;
    /* Only while this very call waits: a recycled pid must not be written to. */
    if (!cg_still_waiting(call)) return -ESRCH;
    ssize_t n = process_vm_writev(call->tid, &mine, 1, &theirs, 1, 0);
    if (n == (ssize_t)length) return 0;
    return n < 0 && errno == ESRCH ? -ESRCH : -EFAULT;
}

int cg_read_string(struct cg_call *call, uint64_t address, char *to, size_t size) {
    size_t done = 0;
    while (done < size) {
        /* Never across a page: the string may end just before an unmapped one. */
        size_t chunk = PAGE - (size_t)((address + done) % PAGE);
        if (chunk > size - done) chunk = size - done;
        if (done == 0 && chunk > USUAL) chunk = USUAL; /* most strings are short, and copying costs */
        int error = cg_read_memory(call, address + done, to + done, chunk);
        if (error) return error;
        if (memchr(to + done, '\0', chunk)) return 0;
        done += chunk;
    }
    return -ENAMETOOLONG;
}

static int open_proc(struct cg_call *call, const char *what, int flags) {
    char path[64];
    snprintf(path, sizeof path, "%d/%s", call->tid, what);
    int fd = openat(call->vm->root.host_proc, path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int cg_pin_descriptor(struct cg_call *call, int number) {
    char what[32];
    if (number < 0) return -EBADF;
    snprintf(what, sizeof what, "fd/%d", number);
    int fd = open_proc(call, what, O_PATH);
    if (fd == -ENOENT || fd == -ESRCH) return -EBADF;
    if (fd != -EACCES) return fd;
    /* Of a program that its caller may execute and not read, that folder is root's. Its descriptors can be had all the same. */
    const int taken = cg_take_descriptor(call, number);
    if (taken < 0) return taken;
    char own[40];
    snprintf(own, sizeof own, "/proc/self/fd/%d", taken);
    fd = open(own, O_PATH | O_CLOEXEC);
    const int error = errno;
    close(taken);
    return fd < 0 ? -error : fd;
}

int cg_pin_cwd(struct cg_call *call) { return open_proc(call, "cwd", O_PATH | O_DIRECTORY); }

/* The calling thread, kept from one call of it to the next: it is this thread and no later one of its number. */
static int pin_caller(struct cg_call *call) {
    if (call->pinned_tid == call->tid) return 0;
    cg_unpin_caller(call);
    /* The calling thread's own table: the first thread may have ended before it. */
    struct cg_caller caller;
    int error, pidfd = (int)syscall(SYS_pidfd_open, call->tid, PIDFD_THREAD);
    if (pidfd < 0 && errno == EINVAL) { /* before Linux 6.9 */
        if ((error = cg_caller_of(call->vm, call->tid, &caller)) != 0) return error;
        pidfd = (int)syscall(SYS_pidfd_open, caller.tgid, 0);
    }
    if (pidfd < 0) return -errno;
    call->pinned_tid = call->tid, call->pinned = pidfd;
    return 0;
}

void cg_unpin_caller(struct cg_call *call) {
    if (call->pinned_tid) close(call->pinned);
    call->pinned_tid = 0;
}

int cg_take_descriptor(struct cg_call *call, int number) {
    for (bool again = call->pinned_tid == call->tid;; again = false) {
        int error = pin_caller(call);
        if (error) return error;
        int fd = cg_still_waiting(call) ? (int)syscall(SYS_pidfd_getfd, call->pinned, number, 0) : (errno = ESRCH, -1);
        if (fd >= 0) return fd;
        if (errno != ESRCH || !again) return -errno;
        cg_unpin_caller(call); /* an earlier thread of this number */
    }
}

/* The last number of a line such as "NSpid:\t21208\t2": the innermost namespace's. */
static pid_t last_number(const char *line) {
    long value = 0;
    for (char *end; *line && *line != '\n'; line = end) {
        long next = strtol(line, &end, 10);
        if (end == line) break;
        value = next;
    }
    return (pid_t)value;
}

int cg_caller_of(struct cg_vm *vm, pid_t tid, struct cg_caller *out) {
    char text[4096], path[64];
    memset(out, 0, sizeof *out);
    snprintf(path, sizeof path, "%d/status", tid);
    int fd = openat(vm->root.host_proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -ESRCH;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return -ESRCH;
    text[n] = '\0';
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, "State:\tZ", 8) == 0 || strncmp(line, "State:\tX", 8) == 0) out->zombie = true;
        else if (strncmp(line, "Umask:", 6) == 0) out->umask = (mode_t)strtol(line + 6, NULL, 8);
        else if (strncmp(line, "Tgid:", 5) == 0) out->tgid = (pid_t)strtol(line + 5, NULL, 10);
        else if (strncmp(line, "PPid:", 5) == 0) out->ppid = (pid_t)strtol(line + 5, NULL, 10);
        else if (strncmp(line, "NSpgid:", 7) == 0) out->group = (pid_t)strtol(line + 7, NULL, 10), out->inner_group = last_number(line + 7);
        else if (strncmp(line, "NStgid:", 7) == 0) out->inner_tgid = last_number(line + 7);
        else if (strncmp(line, "NSpid:", 6) == 0) out->inner_tid = last_number(line + 6);
    }
    return out->tgid > 0 && out->inner_tgid > 0 ? 0 : -ESRCH;
}

/* The process that a number means: these calls take a thread's as well. The number itself where there is no such thread. */
long cg_process_of(struct cg_vm *vm, long number) {
    char path[64], text[1024];
    long group = number;
    snprintf(path, sizeof path, "proc/%ld/status", number);
    int fd = number > 0 ? openat(vm->root.top, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0) return number;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "\nTgid:"); /* a newline in the program's name is shown as \\n */
    if (line) sscanf(line, "\nTgid:%ld", &group);
    return group > 0 ? group : number;
}
