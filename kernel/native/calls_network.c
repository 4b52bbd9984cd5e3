/* Sockets: connect, bind, listen and addressed sends, judged on a copied address and performed on a duplicate of the caller's socket.
 *
 * The duplicate is the object: a descriptor number can be made to mean another socket between two looks. It stays in the VM's
 * network namespace, whatever process acts on it. Names in the filesystem are judged by the fs scope, as a write.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "fs_target.h"

#define STREAM_CHUNK (256u * 1024) /* of a stream, one on-behalf send takes at most this: a short count is a legal answer */
#define DATAGRAM_MAX (1024u * 1024)
#define CONTROL_MAX 8192u
#define PASSED_MAX 253 /* SCM_MAX_FD */

struct address {
    socklen_t length;
    union { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; struct sockaddr_un unix_; struct sockaddr_storage storage; char raw[128]; };
};

static int read_address(struct cg_call *call, uint64_t pointer, uint64_t length, struct address *to) {
    if ((int)length < 0 || (uint32_t)length > sizeof to->raw) return -EINVAL;
    memset(to, 0, sizeof *to);
    to->length = (socklen_t)(uint32_t)length;
    return cg_read_memory(call, pointer, to->raw, to->length);
}

struct socket { int fd, domain, type; };

static int take_socket(struct cg_call *call, int number, struct socket *to) {
    socklen_t size = sizeof(int);
    to->fd = cg_take_descriptor(call, number);
    if (to->fd < 0) return to->fd;
    if (getsockopt(to->fd, SOL_SOCKET, SO_DOMAIN, &to->domain, &size) == 0 && getsockopt(to->fd, SOL_SOCKET, SO_TYPE, &to->type, &size) == 0) return 0;
    int error = errno;
    close(to->fd);
    return -error;
}

/* "tcp://127.0.0.1:80", in the one spelling of an address that policies are compiled to; false: not an internet address. */
static bool subject_of(const struct socket *socket, const struct address *address, char *to, size_t size) {
    char host[INET6_ADDRSTRLEN];
    const char *scheme = socket->type == SOCK_STREAM ? "tcp" : "udp";
    if (address->any.sa_family == AF_INET && address->length >= sizeof address->v4) {
        inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof host);
        snprintf(to, size, "%s://%s:%u", scheme, host, ntohs(address->v4.sin_port));
        return true;
    }
    if (address->any.sa_family != AF_INET6 || address->length < 24) return false; /* SIN6_LEN_RFC2133 */
    const struct in6_addr v6 = address->v6.sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        inet_ntop(AF_INET, v6.s6_addr + 12, host, sizeof host);
        snprintf(to, size, "%s://%s:%u", scheme, host, ntohs(address->v6.sin6_port));
    } else {
        inet_ntop(AF_INET6, &v6, host, sizeof host);
        snprintf(to, size, "%s://[%s]:%u", scheme, host, ntohs(address->v6.sin6_port));
    }
    return true;
}

/* Connecting to "any" means the loopback, but which one depends on the socket's own address: our copy names the one that is judged. */
static void no_unspecified(struct address *address) {
    static const struct in6_addr mapped_any = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}}};
    if (address->any.sa_family == AF_INET && address->v4.sin_addr.s_addr == INADDR_ANY) address->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (address->any.sa_family != AF_INET6) return;
    if (IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr)) address->v6.sin6_addr = in6addr_loopback;
    else if (memcmp(&address->v6.sin6_addr, &mapped_any, sizeof mapped_any) == 0) address->v6.sin6_addr.s6_addr[12] = 127, address->v6.sin6_addr.s6_addr[15] = 1;
}

static bool judge_peer(struct cg_call *call, const struct socket *socket, struct address *address, unsigned operation) {
    char subject[128];
    if (operation == CG_NET_OP_HTTP) no_unspecified(address);
    if (!subject_of(socket, address, subject, sizeof subject)) {
        cg_answer_error(call, address->any.sa_family == AF_INET || address->any.sa_family == AF_INET6 ? EINVAL : EAFNOSUPPORT);
        return false;
    }
    return cg_judge(call, CG_SCOPE_NETWORK, operation, subject, strlen(subject), subject);
}

/* ---- names of unix sockets ---- */

static bool has_path(const struct address *address) {
    return address->any.sa_family == AF_UNIX && address->length > offsetof(struct sockaddr_un, sun_path) && address->unix_.sun_path[0] != '\0';
}

static int unix_target(struct cg_call *call, const struct address *address, struct cg_fs_target *target) {
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

/* The address by which the judged socket, and no other, is reached. Keeps `path` pinned. */
static int pin_peer(struct cg_call *call, struct address *address, struct cg_path *path) {
    struct cg_fs_target target;
    path->object = path->parent = -1;
    if (!has_path(address)) return 0;
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
static int bind_inside(struct cg_call *call, int fd, const struct address *address, int cwd) {
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

static void bind_path(struct cg_call *call, const struct socket *socket, const struct address *address) {
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

/* ---- the calls ---- */

void net_socket(struct cg_call *call) {
    /* Only what the filter does not let through arrives here. */
    char subject[64];
    snprintf(subject, sizeof subject, "socket://family-%d/type-%d/protocol-%d", (int)call->args[0], (int)call->args[1] & 0xf, (int)call->args[2]);
    cg_refuse(call, CG_SCOPE_NETWORK, CG_NET_OP_HTTP, CG_RULE_UNSUPPORTED, subject, strlen(subject), NULL, "only TCP, UDP, unix and route netlink sockets exist in a VM");
}

void net_setsockopt(struct cg_call *call) {
    char subject[64];
    snprintf(subject, sizeof subject, "setsockopt://level-%d/option-%d", (int)call->args[1], (int)call->args[2]);
    cg_refuse(call, CG_SCOPE_NETWORK, CG_NET_OP_HTTP, CG_RULE_UNSUPPORTED, subject, strlen(subject), NULL, "this socket option would go round the policy");
}

void net_connect(struct cg_call *call) {
    struct socket socket;
    struct address address;
    struct cg_path peer = {.object = -1, .parent = -1};
    int error = read_address(call, call->args[1], call->args[2], &address);
    if (!error) error = take_socket(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    const bool internet = socket.domain == AF_INET || socket.domain == AF_INET6;
    if (address.length < sizeof address.any.sa_family) cg_answer_error(call, EINVAL);
    /* AF_UNSPEC only dissolves an association. */
    else if (internet && address.any.sa_family != AF_UNSPEC && !judge_peer(call, &socket, &address, CG_NET_OP_HTTP)) {
    } else if (socket.domain == AF_UNIX && pin_peer(call, &address, &peer) != 0) {
    } else {
        cg_block_begin(call);
        int result = connect(socket.fd, &address.any, address.length);
        cg_block_end(call);
        result == 0 ? cg_answer_value(call, 0) : cg_answer_error(call, errno);
    }
    cg_path_release(&peer);
    close(socket.fd);
}

void net_bind(struct cg_call *call) {
    struct socket socket;
    struct address address;
    int error = read_address(call, call->args[1], call->args[2], &address);
    if (!error) error = take_socket(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    const bool internet = socket.domain == AF_INET || socket.domain == AF_INET6;
    if (address.length < sizeof address.any.sa_family) cg_answer_error(call, EINVAL);
    else if (internet && !judge_peer(call, &socket, &address, CG_NET_OP_LISTEN)) {
    } else if (socket.domain == AF_UNIX && has_path(&address)) bind_path(call, &socket, &address);
    else if (bind(socket.fd, &address.any, address.length) == 0) cg_answer_value(call, 0);
    else cg_answer_error(call, errno);
    close(socket.fd);
}

void net_listen(struct cg_call *call) {
    struct socket socket;
    struct address address = {.length = sizeof address.raw};
    int error = take_socket(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    const bool internet = socket.domain == AF_INET || socket.domain == AF_INET6;
    /* Listening without a bind chooses a port by itself: judged here, on the name the socket has now. */
    if (internet && getsockname(socket.fd, &address.any, &address.length) != 0) cg_answer_error(call, errno);
    else if (internet && !judge_peer(call, &socket, &address, CG_NET_OP_LISTEN)) {
    } else if (listen(socket.fd, (int)call->args[1]) == 0) cg_answer_value(call, 0);
    else cg_answer_error(call, errno);
    close(socket.fd);
}

/* Judge where a message goes. 0: go on; the address may have been rewritten to the pinned peer. */
static int judge_destination(struct cg_call *call, const struct socket *socket, struct address *address, struct cg_path *peer) {
    if (address->length == 0) return 0;
    if (address->length < sizeof address->any.sa_family) { cg_answer_error(call, EINVAL); return -1; }
    if (socket->domain == AF_UNIX) return pin_peer(call, address, peer);
    if (socket->domain == AF_INET || socket->domain == AF_INET6) return judge_peer(call, socket, address, CG_NET_OP_HTTP) ? 0 : -1;
    return 0;
}

static ssize_t send_on_behalf(struct cg_call *call, const struct socket *socket, struct msghdr *message, int flags) {
    cg_block_begin(call);
    ssize_t n = sendmsg(socket->fd, message, flags | MSG_NOSIGNAL);
    cg_block_end(call);
    struct cg_caller who;
    if (n < 0 && errno == EPIPE && socket->type == SOCK_STREAM && !(flags & MSG_NOSIGNAL) && cg_caller_of(call->vm, call->tid, &who) == 0 && cg_still_waiting(call)) {
        syscall(SYS_tgkill, who.tgid, call->tid, SIGPIPE); /* the caller's, not ours: send(2) */
        return -EPIPE;
    }
    return n < 0 ? -errno : n;
}

void net_sendto(struct cg_call *call) {
    struct socket socket;
    struct address address;
    struct cg_path peer = {.object = -1, .parent = -1};
    size_t length = call->args[2];
    uint8_t *data = NULL;
    int error = read_address(call, call->args[4], call->args[5], &address);
    if (!error) error = take_socket(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    if (judge_destination(call, &socket, &address, &peer) == 0) {
        if (socket.type == SOCK_STREAM && length > STREAM_CHUNK) length = STREAM_CHUNK;
        if (length > DATAGRAM_MAX) error = -EMSGSIZE;
        else if (!(data = malloc(length + 1))) error = -ENOMEM;
        else error = cg_read_memory(call, call->args[1], data, length);
        struct iovec part = {data, length};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = address.length ? address.raw : NULL, .msg_namelen = address.length};
        ssize_t n = error ? error : send_on_behalf(call, &socket, &message, (int)call->args[3]);
        n < 0 ? cg_answer_error(call, (int)-n) : cg_answer_value(call, n);
    }
    free(data);
    cg_path_release(&peer);
    close(socket.fd);
}

/* Control data with the caller's descriptors exchanged for duplicates of ours (to be closed by the caller); or a negative errno. */
static int take_control(struct cg_call *call, uint8_t *control, size_t length, int *passed, int *count) {
    struct msghdr walk = {.msg_control = control, .msg_controllen = length};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&walk); c; c = CMSG_NXTHDR(&walk, c)) {
        if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > (size_t)(control + length - (uint8_t *)c)) return -EINVAL;
        if (c->cmsg_level != SOL_SOCKET) continue;
        if (c->cmsg_type != SCM_RIGHTS) return -EPERM; /* credentials would be the supervisor's */
        const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int number;
            memcpy(&number, CMSG_DATA(c) + i * sizeof number, sizeof number);
            if (*count >= PASSED_MAX) return -EINVAL;
            int fd = cg_take_descriptor(call, number);
            if (fd < 0) return fd;
            passed[(*count)++] = fd;
            memcpy(CMSG_DATA(c) + i * sizeof fd, &fd, sizeof fd);
        }
    }
    return 0;
}

/* One message header of the guest's, all of it copied, judged, and sent. Bytes sent, or a negative errno; answered after a refusal. */
static ssize_t send_message(struct cg_call *call, const struct socket *socket, uint64_t pointer, int flags) {
    struct msghdr theirs;
    struct address address = {.length = 0};
    struct cg_path peer = {.object = -1, .parent = -1};
    struct iovec *parts = NULL;
    uint8_t *data = NULL, *control = NULL;
    int passed[PASSED_MAX], count = 0;
    ssize_t result = cg_read_memory(call, pointer, &theirs, sizeof theirs);
    if (!result && theirs.msg_name && theirs.msg_namelen) result = read_address(call, (uint64_t)(uintptr_t)theirs.msg_name, theirs.msg_namelen, &address);
    if (!result && (theirs.msg_iovlen > IOV_MAX || theirs.msg_controllen > CONTROL_MAX)) result = theirs.msg_iovlen > IOV_MAX ? -EMSGSIZE : -ENOBUFS;
    if (result) return result;
    size_t total = 0, done = 0;
    parts = calloc(theirs.msg_iovlen + 1, sizeof *parts);
    if (!parts) return -ENOMEM;
    result = cg_read_memory(call, (uint64_t)(uintptr_t)theirs.msg_iov, parts, theirs.msg_iovlen * sizeof *parts);
    const size_t most = socket->type == SOCK_STREAM ? STREAM_CHUNK : DATAGRAM_MAX;
    for (size_t i = 0; !result && i < theirs.msg_iovlen; i++) {
        if (parts[i].iov_len > most - total) {
            if (socket->type != SOCK_STREAM) result = -EMSGSIZE;
            parts[i].iov_len = most - total;
        }
        total += parts[i].iov_len;
    }
    if (!result && !(data = malloc(total + 1))) result = -ENOMEM;
    for (size_t i = 0; !result && i < theirs.msg_iovlen; done += parts[i].iov_len, i++)
        result = cg_read_memory(call, (uint64_t)(uintptr_t)parts[i].iov_base, data + done, parts[i].iov_len);
    if (!result && theirs.msg_controllen) {
        control = malloc(theirs.msg_controllen);
        result = control ? cg_read_memory(call, (uint64_t)(uintptr_t)theirs.msg_control, control, theirs.msg_controllen) : -ENOMEM;
        if (!result) result = take_control(call, control, theirs.msg_controllen, passed, &count);
    }
    if (!result && judge_destination(call, socket, &address, &peer) == 0) {
        struct iovec part = {data, total};
        struct msghdr ours = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control ? theirs.msg_controllen : 0,
                              .msg_name = address.length ? address.raw : NULL, .msg_namelen = address.length};
        result = send_on_behalf(call, socket, &ours, flags);
    }
    while (count > 0) close(passed[--count]);
    cg_path_release(&peer);
    free(parts), free(data), free(control);
    return result;
}

void net_sendmsg(struct cg_call *call) {
    const bool many = call->nr == SYS_sendmmsg;
    struct socket socket;
    if (many && call->args[2] == 0) { cg_answer_value(call, 0); return; }
    int error = take_socket(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    /* Of several messages the first: a short count is a legal answer, and the caller sends the rest again. */
    ssize_t n = send_message(call, &socket, call->args[1], (int)call->args[many ? 3 : 2]);
    close(socket.fd);
    if (call->answered) return;
    if (n >= 0 && many) {
        const uint32_t sent = (uint32_t)n;
        error = cg_write_memory(call, call->args[1] + offsetof(struct mmsghdr, msg_len), &sent, sizeof sent);
        error ? cg_answer_error(call, -error) : cg_answer_value(call, 1);
    } else n < 0 ? cg_answer_error(call, (int)-n) : cg_answer_value(call, n);
}
