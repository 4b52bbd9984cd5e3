/* Threads that wait for a datagram on a socket which another thread has just had moved. They would go on waiting for the old one.
 *
 * Each is stopped and at once let go, which has the kernel begin its call anew with what the descriptor means now (ptrace(2); signal(7): these calls are begun again after a stop, except
 * one with a timeout of the socket's, which is EINTR). A child of ours does it: at its end the kernel lets go of whatever it holds, also of a thread that did not stop in time.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "network.h"

#define READERS_MAX 64
#define PATIENCE_MS 50

/* By the call that it sleeps in: whether that is, or may be, on one of these descriptors. */
static bool may_wait(int tasks, const char *thread, const int *numbers, size_t count) {
    char path[48], text[64];
    long call = -1;
    unsigned long first = 0;
    snprintf(path, sizeof path, "%.20s/syscall", thread);
    int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%ld 0x%lx", &call, &first) != 2) return false; /* "running" */
    if (call == SYS_poll || call == SYS_ppoll || call == SYS_select || call == SYS_pselect6) return true;
    if (call != SYS_recvfrom && call != SYS_recvmsg && call != SYS_recvmmsg && call != SYS_read && call != SYS_readv) return false;
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == (int)first) return true;
    return false;
}

static void restart(const pid_t *threads, size_t count) {
    const struct timespec moment = {0, 1000000};
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* a copy of this thread alone: system calls only from here */
    if (child == 0) {
        size_t moving = 0;
        for (size_t i = 0; i < count; i++)
            if (syscall(SYS_ptrace, PTRACE_SEIZE, threads[i], 0, 0) == 0 && syscall(SYS_ptrace, PTRACE_INTERRUPT, threads[i], 0, 0) == 0) moving++;
        for (int waited = 0; moving > 0 && waited < PATIENCE_MS;) {
            const long stopped = syscall(SYS_wait4, -1, NULL, WNOHANG | __WALL, NULL);
            if (stopped < 0) break;
            if (stopped > 0) moving--;
            else waited++, syscall(SYS_nanosleep, &moment, NULL);
        }
        syscall(SYS_exit_group, 0);
    }
    if (child > 0) waitpid(child, NULL, __WALL);
}

void cg_socket_restart_readers(struct cg_call *call, const int *numbers, size_t count) {
    char path[32];
    struct stat st;
    pid_t readers[READERS_MAX];
    size_t found = 0;
    snprintf(path, sizeof path, "%d/task", call->tid);
    int tasks = openat(call->vm->root.host_proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A link for each thread besides its own two: most programs have the caller alone. */
    DIR *list = tasks >= 0 && fstat(tasks, &st) == 0 && st.st_nlink > 3 ? fdopendir(tasks) : NULL;
    if (!list) {
        if (tasks >= 0) close(tasks);
        return;
    }
    for (struct dirent *entry; found < READERS_MAX && (entry = readdir(list)) != NULL;) {
        const pid_t thread = (pid_t)atoi(entry->d_name);
        if (thread > 0 && thread != call->tid && may_wait(tasks, entry->d_name, numbers, count)) readers[found++] = thread;
    }
    closedir(list);
    if (found > 0) restart(readers, found);
}
