/* Moving a guest's socket into another network namespace: a new one there, like it, in the place of every descriptor that means it.
 *
 * What the guest set on the old one is set on the new one; duplicates of the descriptor in the same table go along, and so do registrations in
 * epolls made before. Not the local port: outside, ports are the host's, and no guest takes one by its number.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "network.h"

#define FOUND_MAX 64   /* duplicates of one socket, epolls of one process, registrations of one socket */
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* Linux 5.18; struct sock_buf_lock */
#endif

/* ---- options ---- */

/* An int option, and what it is where nobody set it. Few: each is a system call in the way of every connection. */
struct number { int level, name, usual; };
static const struct number numbers_any[] = {
    {SOL_SOCKET, SO_PRIORITY, 0}, {SOL_SOCKET, SO_RCVLOWAT, 1}, {SOL_SOCKET, SO_ZEROCOPY, 0}, {IPPROTO_IP, IP_TOS, 0}, {IPPROTO_IP, IP_TTL, 64}, {IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT},
};
static const struct number numbers_v6[] = {
    {IPPROTO_IPV6, IPV6_V6ONLY, 0}, {IPPROTO_IPV6, IPV6_TCLASS, 0}, {IPPROTO_IPV6, IPV6_UNICAST_HOPS, 64}, {IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_WANT},
};
static const struct number numbers_tcp[] = {
    {SOL_SOCKET, SO_KEEPALIVE, 0}, {SOL_SOCKET, SO_OOBINLINE, 0}, {IPPROTO_TCP, TCP_NODELAY, 0}, {IPPROTO_TCP, TCP_CORK, 0}, {IPPROTO_TCP, TCP_KEEPIDLE, 7200},
    {IPPROTO_TCP, TCP_KEEPINTVL, 75}, {IPPROTO_TCP, TCP_KEEPCNT, 9}, {IPPROTO_TCP, TCP_SYNCNT, 6}, {IPPROTO_TCP, TCP_LINGER2, 60},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 0}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0}, {IPPROTO_TCP, TCP_MAXSEG, 536},
};
static const struct number numbers_udp[] = {
    {SOL_SOCKET, SO_KEEPALIVE, 0}, {SOL_SOCKET, SO_OOBINLINE, 0},
    {SOL_SOCKET, SO_TIMESTAMP, 0}, {SOL_SOCKET, SO_TIMESTAMPNS, 0}, {SOL_SOCKET, SO_RXQ_OVFL, 0}, {IPPROTO_IP, IP_RECVERR, 0}, {IPPROTO_IP, IP_RECVTTL, 0},
    {IPPROTO_IP, IP_RECVTOS, 0}, {IPPROTO_IP, IP_PKTINFO, 0}, {IPPROTO_UDP, UDP_SEGMENT, 0}, {IPPROTO_UDP, UDP_GRO, 0},
};
static const struct number numbers_udp_v6[] = {
    {IPPROTO_IPV6, IPV6_RECVERR, 0}, {IPPROTO_IPV6, IPV6_RECVPKTINFO, 0}, {IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 0}, {IPPROTO_IPV6, IPV6_RECVTCLASS, 0},
    {IPPROTO_IPV6, IPV6_DONTFRAG, 0},
};

static void copy_numbers(int from, int to, const struct number *table, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int value = table[i].usual;
        socklen_t size = sizeof value;
        if (getsockopt(from, table[i].level, table[i].name, &value, &size) != 0 || value == table[i].usual) continue;
        if (setsockopt(to, table[i].level, table[i].name, &value, sizeof value) != 0) continue; /* one that cannot be set there: no matter of the policy */
    }
}

#define COPY_NUMBERS(table) copy_numbers(from->fd, to, table, sizeof(table) / sizeof *(table))

static void copy_bytes(int from, int to, int level, int name, const void *usual, socklen_t size) {
    char value[32] = {0};
    socklen_t n = size;
    if (getsockopt(from, level, name, value, &n) == 0 && memcmp(value, usual, size) != 0 && setsockopt(to, level, name, value, n) != 0) return;
}

static void copy_congestion_control(int from, int to) {
    char usual[32] = {0};
    socklen_t size = 16;
    if (getsockopt(to, IPPROTO_TCP, TCP_CONGESTION, usual, &size) == 0) copy_bytes(from, to, IPPROTO_TCP, TCP_CONGESTION, usual, 16);
}

static void copy_buffer_sizes(int from, int to) {
    int locked = 0, size;
    socklen_t n = sizeof locked;
    if (getsockopt(from, SOL_SOCKET, SO_BUF_LOCK, &locked, &n) != 0) return;
    const struct { int lock, name; } buffers[] = {{1, SO_SNDBUF}, {2, SO_RCVBUF}}; /* SOCK_SNDBUF_LOCK, SOCK_RCVBUF_LOCK: set by hand */
    for (size_t i = 0; i < 2; i++) {
        n = sizeof size;
        if (!(locked & buffers[i].lock) || getsockopt(from, SOL_SOCKET, buffers[i].name, &size, &n) != 0) continue;
        size /= 2; /* the kernel doubles what it is given: socket(7) */
        if (setsockopt(to, SOL_SOCKET, buffers[i].name, &size, sizeof size) != 0) continue;
    }
}

void cg_socket_copy_options(const struct cg_socket *from, int to) {
    static const char zero[32] = {0};
    COPY_NUMBERS(numbers_any);
    if (from->domain == AF_INET6) COPY_NUMBERS(numbers_v6);
    if (from->type == SOCK_STREAM) {
        COPY_NUMBERS(numbers_tcp);
        copy_congestion_control(from->fd, to);
    } else {
        COPY_NUMBERS(numbers_udp);
        if (from->domain == AF_INET6) COPY_NUMBERS(numbers_udp_v6);
    }
    copy_bytes(from->fd, to, SOL_SOCKET, SO_LINGER, zero, sizeof(struct linger));
    copy_bytes(from->fd, to, SOL_SOCKET, SO_RCVTIMEO, zero, sizeof(struct timeval));
    copy_bytes(from->fd, to, SOL_SOCKET, SO_SNDTIMEO, zero, sizeof(struct timeval));
    copy_buffer_sizes(from->fd, to);
}

static atomic_int *spare_of(struct cg_vm *vm, const struct cg_socket *like) {
    return like->type == SOCK_STREAM ? &vm->spare_sockets[like->domain == AF_INET6] : NULL;
}

/* A socket takes about as long to make as everything else here together, so one is made after each that was used. One more than its number: 0 is none. */
void cg_socket_prepare_next(struct cg_vm *vm, const struct cg_socket *like) {
    atomic_int *spare = spare_of(vm, like);
    int fd = spare && atomic_load(spare) == 0 ? socket(like->domain, like->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1, none = 0;
    if (fd >= 0 && !atomic_compare_exchange_strong(spare, &none, fd + 1)) close(fd);
}

int cg_socket_outside(struct cg_vm *vm, const struct cg_socket *like) {
    atomic_int *spare = spare_of(vm, like);
    int fd = (spare ? atomic_exchange(spare, 0) : 0) - 1;
    if (fd < 0) fd = socket(like->domain, like->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    cg_socket_copy_options(like, fd);
    return fd;
}

/* The child shares the table of descriptors, so that what it makes is ours; it enters the VM's namespaces by right of the supervisor's owning them. */
int cg_socket_inside(struct cg_vm *vm, int domain, int type) {
    int place = fcntl(vm->wake, F_DUPFD_CLOEXEC, 0), error = EACCES, status; /* any descriptor: the number is what is wanted */
    if (place < 0) return -errno;
    pid_t child = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0); /* a copy of this thread alone: system calls only from here */
    if (child == 0) {
        long made = -1;
        if (syscall(SYS_setns, vm->user_namespace, CLONE_NEWUSER) == 0 && syscall(SYS_setns, vm->network_namespace, CLONE_NEWNET) == 0)
            made = syscall(SYS_socket, domain, type | SOCK_CLOEXEC, 0);
        if (made >= 0 && syscall(SYS_dup3, made, place, O_CLOEXEC) >= 0 && syscall(SYS_close, made) == 0) syscall(SYS_exit_group, 0);
        syscall(SYS_exit_group, errno > 0 && errno < 256 ? errno : EACCES);
    }
    if (child < 0) error = errno;
    else if (waitpid(child, &status, __WALL) == child && WIFEXITED(status)) error = WEXITSTATUS(status);
    if (error == 0) return place;
    close(place);
    return -error;
}

/* ---- what means the old socket ---- */

struct watched { int epoll, number; struct epoll_event event; };
struct found { int numbers[FOUND_MAX], epolls[FOUND_MAX]; size_t number_count, epoll_count; };

static void add_number(int *numbers, size_t *count, int number) {
    if (*count < FOUND_MAX) numbers[(*count)++] = number;
}

/* By comparing one number after the other, except its own, with the socket; false where that is not possible, or would take long. */
static bool compare_numbers(struct cg_call *call, int socket, int own, struct found *found) {
    char path[32];
    struct stat st;
    snprintf(path, sizeof path, "%d/fd", call->tid);
    if (fstatat(call->vm->root.host_proc, path, &st, 0) != 0 || st.st_size == 0) return false; /* since Linux 6.2 how many are open */
    const pid_t self = (pid_t)syscall(SYS_gettid);
    for (long open = 0, number = 0; open < st.st_size; number++) {
        struct kcmp_epoll_slot slot = {(uint32_t)number, UINT32_MAX, 0};
        if (number > 2 * st.st_size + 64) return false;
        if (number == own) { open++; continue; }
        if (syscall(SYS_kcmp, self, call->tid, KCMP_EPOLL_TFD, socket, &slot) == 0 || errno == ENOENT) add_number(found->epolls, &found->epoll_count, (int)number);
        else if (errno == EINVAL) {
            const long order = syscall(SYS_kcmp, self, call->tid, KCMP_FILE, socket, number);
            if (order == 0) add_number(found->numbers, &found->number_count, (int)number);
            if (order < 0 && errno != EBADF) return false;
        } else if (errno != EBADF) return false;
        else continue;
        open++;
    }
    return true;
}

struct entry { uint64_t inode; int64_t next; unsigned short length; unsigned char type; char name[]; }; /* getdents64(2) */

/* By what /proc says each number is. */
static void read_links(struct cg_call *call, uint64_t inode, struct found *found) {
    char path[32], text[64], wanted[64];
    _Alignas(struct entry) char buffer[4096];
    snprintf(path, sizeof path, "%d/fd", call->tid);
    snprintf(wanted, sizeof wanted, "socket:[%" PRIu64 "]", inode);
    int table = openat(call->vm->root.host_proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (table < 0) return;
    for (long n; (n = syscall(SYS_getdents64, table, buffer, sizeof buffer)) > 0;)
        for (long at = 0; at < n;) {
            const struct entry *entry = (const struct entry *)(buffer + at);
            at += entry->length;
            ssize_t length = entry->name[0] == '.' ? -1 : readlinkat(table, entry->name, text, sizeof text - 1);
            if (length < 0) continue;
            text[length] = '\0';
            if (strcmp(text, wanted) == 0) add_number(found->numbers, &found->number_count, atoi(entry->name));
            else if (strcmp(text, "anon_inode:[eventpoll]") == 0) add_number(found->epolls, &found->epoll_count, atoi(entry->name));
        }
    close(table);
}

/* The numbers in the caller's table that mean the socket, and those of its epolls. */
static void search_table(struct cg_call *call, const struct cg_socket *socket, uint64_t inode, struct found *found) {
    *found = (struct found){.number_count = 0};
    if (compare_numbers(call, socket->fd, socket->number, found)) return;
    *found = (struct found){.number_count = 0};
    read_links(call, inode, found);
}

static int open_fdinfo(struct cg_call *call, int number) {
    char path[48];
    snprintf(path, sizeof path, "%d/fdinfo/%d", call->tid, number);
    return openat(call->vm->root.host_proc, path, O_RDONLY | O_CLOEXEC);
}

static bool closes_on_exec(struct cg_call *call, int number) {
    char text[256];
    unsigned flags = 0;
    int fd = open_fdinfo(call, number);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "flags:");
    return line && sscanf(line, "flags: %o", &flags) == 1 && flags & O_CLOEXEC;
}

/* The registrations of the socket in one of the caller's epolls (proc_pid_fdinfo(5)). */
static size_t search_epoll(struct cg_call *call, int number, uint64_t inode, struct watched *watched, size_t count) {
    char line[256];
    int fd = open_fdinfo(call, number), epoll = -1;
    FILE *info = fd < 0 ? NULL : fdopen(fd, "re");
    if (!info && fd >= 0) close(fd);
    while (info && count < FOUND_MAX && fgets(line, sizeof line, info)) {
        int target;
        unsigned events;
        uint64_t data, target_inode;
        if (sscanf(line, "tfd: %d events: %x data: %" SCNx64 " pos:%*d ino:%" SCNx64, &target, &events, &data, &target_inode) != 4 || target_inode != inode) continue;
        if (epoll < 0 && (epoll = cg_take_descriptor(call, number)) < 0) break;
        watched[count++] = (struct watched){epoll, target, {.events = events, .data.u64 = data}};
    }
    if (info) fclose(info);
    return count;
}

/* A registration is known by the number it was made with, so it has to be made in a table where the new socket has the guest's number: a child's. */
static void watch(struct watched *watched, size_t count, int old, int fd) {
    int highest = fd > old ? fd : old;
    for (size_t i = 0; i < count; i++) {
        if (watched[i].number > highest) highest = watched[i].number;
        if (watched[i].epoll > highest) highest = watched[i].epoll;
    }
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* a copy of this thread alone, with a table of its own: system calls only from here */
    if (child == 0) {
        /* Every number up to the highest may be overwritten once what is needed stands above it. */
        const long from = syscall(SYS_fcntl, old, F_DUPFD_CLOEXEC, highest + 1), to = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, highest + 1);
        for (size_t i = 0; i < count; i++) watched[i].epoll = (int)syscall(SYS_fcntl, watched[i].epoll, F_DUPFD_CLOEXEC, highest + 1);
        for (size_t i = 0; i < count; i++) {
            const int number = watched[i].number, epoll = watched[i].epoll;
            if (syscall(SYS_dup3, from, number, O_CLOEXEC) >= 0) syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_DEL, number, NULL);
            if (syscall(SYS_dup3, to, number, O_CLOEXEC) >= 0) syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, number, &watched[i].event);
        }
        syscall(SYS_exit_group, 0);
    }
    if (child > 0) waitpid(child, NULL, __WALL);
}

static int set_descriptor(struct cg_call *call, int number, int fd) {
    struct seccomp_notif_addfd add = {.id = call->id, .flags = SECCOMP_ADDFD_FLAG_SETFD, .srcfd = (uint32_t)fd, .newfd = (uint32_t)number,
                                      .newfd_flags = closes_on_exec(call, number) ? O_CLOEXEC : 0};
    return ioctl(call->vm->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) >= 0 ? 0 : -errno;
}

/* Not one that was just made to be connected, as getaddrinfo(3) makes them: that is the most frequent kind. */
static bool may_be_waited_for(const struct cg_call *call, const struct cg_socket *old) {
    struct cg_address own = {.length = sizeof own.raw};
    uint8_t bytes[16];
    uint16_t port = 0;
    return call->nr != SYS_connect || (getsockname(old->fd, &own.any, &own.length) == 0 && cg_address_bytes(&own, bytes, &port) > 0 && port != 0);
}

int cg_socket_replace(struct cg_call *call, const struct cg_socket *old, int fd) {
    struct found found;
    struct watched watched[FOUND_MAX];
    struct stat st;
    size_t count = 0;
    if (fstat(old->fd, &st) != 0) return -errno;
    search_table(call, old, st.st_ino, &found);
    for (size_t i = 0; i < found.epoll_count; i++) count = search_epoll(call, found.epolls[i], st.st_ino, watched, count);
    int error = set_descriptor(call, old->number, fd);
    for (size_t i = 0; !error && i < found.number_count; i++)
        if (found.numbers[i] != old->number) error = set_descriptor(call, found.numbers[i], fd);
    if (!error && count > 0) watch(watched, count, old->fd, fd);
    if (!error && old->type == SOCK_DGRAM && may_be_waited_for(call, old)) {
        add_number(found.numbers, &found.number_count, old->number);
        cg_socket_restart_readers(call, found.numbers, found.number_count);
    }
    for (size_t i = 0; i < count; i++)
        if (i == 0 || watched[i].epoll != watched[i - 1].epoll) close(watched[i].epoll);
    return error;
}

/* Any port, before a guest has the socket: it could otherwise have the kernel choose one that others share (SO_REUSEADDR), and take what is sent to them. */
static int take_port(int fd, int domain) {
    struct cg_address any = {.length = domain == AF_INET ? sizeof any.v4 : sizeof any.v6};
    any.any.sa_family = (sa_family_t)domain;
    return bind(fd, &any.any, any.length) == 0 ? 0 : -errno;
}

static pthread_mutex_t moving = PTHREAD_MUTEX_INITIALIZER;

/* Another thread of the guest's may have had it moved while we waited: what stands in its place is then the one to use, for a third would take the answers from it. */
static void follow(struct cg_call *call, struct cg_socket *socket, bool outside) {
    struct cg_socket now;
    struct stat old, other;
    if (socket->type != SOCK_DGRAM || cg_socket_take(call, socket->number, &now) != 0) return;
    const bool moved = fstat(socket->fd, &old) == 0 && fstat(now.fd, &other) == 0 && old.st_ino != other.st_ino;
    if (!moved || now.domain != socket->domain || now.type != socket->type || now.outside != outside) { close(now.fd); return; }
    close(socket->fd);
    *socket = now;
}

static int move(struct cg_call *call, struct cg_socket *socket, bool outside, const struct cg_address *peer) {
    follow(call, socket, outside);
    if (socket->outside == outside) return 0;
    int fd = outside ? cg_socket_outside(call->vm, socket) : cg_socket_inside(call->vm, socket->domain, socket->type);
    if (fd < 0) return fd;
    if (!outside) cg_socket_copy_options(socket, fd);
    const int status = fcntl(socket->fd, F_GETFL);
    int error = status >= 0 && fcntl(fd, F_SETFL, status & O_NONBLOCK) == 0 ? 0 : -errno;
    if (!error && outside) error = cg_socket_hear(fd, socket->type, peer);
    if (!error && outside) error = take_port(fd, socket->domain);
    if (!error) error = cg_socket_replace(call, socket, fd);
    if (error) { close(fd); return error; }
    close(socket->fd);
    socket->fd = fd, socket->outside = outside;
    return 0;
}

int cg_socket_move(struct cg_call *call, struct cg_socket *socket, bool outside, const struct cg_address *peer) {
    if (socket->outside == outside) return 0;
    pthread_mutex_lock(&moving);
    const int error = move(call, socket, outside, peer);
    pthread_mutex_unlock(&moving);
    return error;
}
