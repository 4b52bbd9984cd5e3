/* A supervisor that makes the mistake: it looks at a call's arguments, and then lets the kernel read them again.
 *
 *   unsafe_supervisor DENIED-PATH DENIED-PORT COMMAND ARGUMENT...
 *
 * It refuses (EACCES) opening or executing DENIED-PATH or anything below it (or, if that holds a '=', executing anything with it as the first variable), openat2 with other flags than O_RDONLY, and connecting or
 * sending to DENIED-PORT or with a UDP socket when DENIED-PORT is 0; everything else is continued (SECCOMP_USER_NOTIF_FLAG_CONTINUE).
 * Races are run under it to show that they can be won on this machine: a test of a supervisor that cannot be raced would otherwise prove
 * nothing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *denied_path;
static uint16_t denied_port;

static void fail(const char *what) {
    fprintf(stderr, "unsafe_supervisor: %s: %s\n", what, strerror(errno));
    exit(98);
}

static int guest_memory(pid_t pid, uint64_t address, void *to, size_t length) {
    struct iovec mine = {to, length}, theirs = {(void *)(uintptr_t)address, length};
    return process_vm_readv(pid, &mine, 1, &theirs, 1, 0) > 0 ? 0 : -1;
}

static int path_is_denied(pid_t pid, int dirfd, uint64_t address) {
    char link[64], path[8192] = "", resolved[8192];
    char text[4097] = "";
    if (guest_memory(pid, address, text, sizeof text - 1) != 0) return 0;
    if (text[0] != '/') {
        if (dirfd == AT_FDCWD) snprintf(link, sizeof link, "/proc/%d/cwd", pid);
        else snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, dirfd);
        const ssize_t n = readlink(link, path, PATH_MAX);
        if (n < 0) return 0;
        path[n] = '/';
        path[n + 1] = '\0';
    }
    strncat(path, text, sizeof path - strlen(path) - 1);
    if (!realpath(path, resolved)) snprintf(resolved, sizeof resolved, "%s", path);
    const size_t n = strlen(denied_path);
    return strncmp(resolved, denied_path, n) == 0 && (resolved[n] == '\0' || resolved[n] == '/');
}

static int variable_is_denied(pid_t pid, uint64_t environment) {
    uint64_t first = 0;
    char text[4097] = "";
    guest_memory(pid, environment, &first, sizeof first);
    guest_memory(pid, first, text, sizeof text - 1);
    return strcmp(text, denied_path) == 0;
}

static int is_udp(pid_t pid, int fd) {
    int type = 0;
    socklen_t size = sizeof type;
    const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    const int copy = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    if (pidfd < 0 || copy < 0 || getsockopt(copy, SOL_SOCKET, SO_TYPE, &type, &size) != 0) fail("socket of the guest");
    close(copy), close(pidfd);
    return type == SOCK_DGRAM;
}

static pid_t leader; /* the guest's first thread, whose descriptors all of them share */

static int is_denied(const struct seccomp_notif *call) {
    const uint64_t *a = (const uint64_t *)call->data.args;
    const pid_t pid = (pid_t)call->pid;
    struct sockaddr_in peer = {0};
    struct open_how how = {0};
    switch (call->data.nr) {
    case SYS_execve:
        if (strchr(denied_path, '=')) return variable_is_denied(pid, a[2]);
        return path_is_denied(pid, AT_FDCWD, a[0]);
    case SYS_open: return path_is_denied(pid, AT_FDCWD, a[0]);
    case SYS_openat: return path_is_denied(pid, (int)a[0], a[1]);
    case SYS_openat2: return guest_memory(pid, a[2], &how, sizeof how) != 0 || how.flags != O_RDONLY;
    case SYS_connect: guest_memory(pid, a[1], &peer, sizeof peer); break;
    case SYS_sendto: guest_memory(pid, a[4], &peer, sizeof peer); break;
    }
    if (peer.sin_family != AF_INET) return 0;
    return denied_port ? peer.sin_port == denied_port : is_udp(leader, (int)a[0]);
}

static int install_filter(void) {
    static const int notified[] = {SYS_open, SYS_openat, SYS_openat2, SYS_execve, SYS_connect, SYS_sendto};
    enum { COUNT = sizeof notified / sizeof *notified };
    struct sock_filter filter[COUNT + 3];
    filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) filter[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)notified[i], (uint8_t)(COUNT - i), 0);
    filter[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    const struct sock_fprog program = {COUNT + 3, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void supervise(int listener) {
    for (;;) {
        struct pollfd on = {.fd = listener, .events = POLLIN};
        struct seccomp_notif call = {0};
        struct seccomp_notif_resp answer = {0};
        if (poll(&on, 1, -1) < 0 || (on.revents & (POLLHUP | POLLIN)) == POLLHUP) return;
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
        answer.id = call.id;
        if (is_denied(&call)) answer.error = -EACCES;
        else answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE; /* the mistake */
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

int main(int argc, char **argv) {
    int status, ready[2], listener;
    char number[16];
    if (argc < 4) fail("DENIED-PATH DENIED-PORT COMMAND...");
    denied_path = argv[1];
    denied_port = htons((uint16_t)atoi(argv[2]));
    if (pipe(ready) != 0) fail("pipe");
    leader = fork();
    if (leader == 0) {
        listener = install_filter();
        snprintf(number, sizeof number, "%15d", listener);
        if (listener < 0 || write(ready[1], number, 15) != 15) fail("filter");
        close(ready[1]), close(ready[0]);
        execv(argv[3], argv + 3);
        fail(argv[3]);
    }
    close(ready[1]);
    if (read(ready[0], number, 15) != 15) fail("the guest's filter");
    number[15] = '\0';
    const int pidfd = (int)syscall(SYS_pidfd_open, leader, 0);
    listener = (int)syscall(SYS_pidfd_getfd, pidfd, atoi(number), 0);
    if (listener < 0) fail("listener");
    supervise(listener);
    if (waitpid(leader, &status, 0) != leader) fail("wait");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}
