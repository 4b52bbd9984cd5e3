/* Sockets: making, connecting, binding, listening, options; judged on a copied address and performed on a duplicate of the caller's socket.
 *
 * A connection to the VM's own loopback is made inside, on that duplicate. One to the outside is dialled from the host's network namespace and
 * takes the place of the guest's socket, so that nothing of it is notified any more but another connect.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "calls.h"
#include "network.h"

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

/* ---- connect ---- */

/* It may be another time with another address of the same name. */
static bool goes_on(int error) {
    return error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ECONNRESET || error == EADDRNOTAVAIL;
}

static int connect_once(int fd, const struct cg_address *to) { return connect(fd, &to->any, to->length) == 0 ? 0 : errno; }

/* Without waiting; a near peer has answered by the time that one can look. */
static int begin(int fd, const struct cg_address *to) {
    const int error = connect_once(fd, to), then = error == EINPROGRESS ? connect_once(fd, to) : error;
    return then == EALREADY ? EINPROGRESS : then;
}

/* As the guest's own connect would, however long it takes: one address after the other, from the first. 0 or an errno. */
static int connect_in_turn(struct cg_call *call, int fd, const struct cg_route *route, size_t first) {
    for (size_t i = first;; i++) {
        cg_block_begin(call);
        errno = connect_once(fd, &route->to[i]);
        cg_block_end(call);
        const int error = errno;
        if (error == 0 || !goes_on(error) || i + 1 >= route->count) return error;
    }
}

/* How a connect fails because it is connected, or being connected, or listens; 0 if it does not. */
static int in_use(const struct cg_socket *socket) {
    struct tcp_info info = {.tcpi_state = TCP_CLOSE};
    socklen_t size = sizeof info;
    if (socket->type != SOCK_STREAM || getsockopt(socket->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == TCP_CLOSE) return 0;
    return info.tcpi_state == TCP_SYN_SENT || info.tcpi_state == TCP_SYN_RECV ? EALREADY : EISCONN;
}

/* The kernel finds no way to the outside from the loopback's own address either. */
static bool is_bound_to_loopback(const struct cg_socket *socket) {
    struct cg_address own = {.length = sizeof own.raw};
    uint8_t bytes[16];
    uint16_t port;
    if (getsockname(socket->fd, &own.any, &own.length) != 0) return true;
    const size_t n = cg_address_bytes(&own, bytes, &port);
    return n == 4 ? bytes[0] == 127 : n == 16 && memcmp(bytes, &in6addr_loopback, 16) == 0;
}

/* 0 or an errno. */
static int hear_all(int fd, const struct cg_socket *socket, const struct cg_route *route) {
    int error = 0;
    for (size_t i = 0; !error && i < route->count; i++) error = cg_socket_hear(fd, socket->type, &route->to[i]);
    return -error;
}

/* From inside to outside. The connection is begun before the guest's socket is replaced, so that one that fails at once changes nothing; and replaced before it is
 * waited for, so that the guest finds it in its socket when a signal ends the wait. 0 or an errno. */
static int dial(struct cg_call *call, struct cg_socket *socket, const struct cg_route *route) {
    const int status = fcntl(socket->fd, F_GETFL), fd = cg_socket_outside(call->vm, socket);
    if (status < 0 || fd < 0) return fd < 0 ? -fd : EBADF;
    size_t i = 0;
    int error = hear_all(fd, socket, route);
    if (error) { close(fd); return error; }
    error = begin(fd, &route->to[0]);
    while (goes_on(error) && i + 1 < route->count) error = begin(fd, &route->to[++i]);
    if (error == 0 || error == EINPROGRESS) {
        const bool waits = !(status & O_NONBLOCK);
        int replaced = waits && fcntl(fd, F_SETFL, 0) != 0 ? -errno : cg_socket_replace(call, socket, fd);
        socket->left = replaced == 0;
        if (replaced != 0) error = -replaced;
        else if (waits && error == EINPROGRESS) error = connect_in_turn(call, fd, route, i);
    }
    close(fd);
    return error == EALREADY ? EINPROGRESS : error; /* a timeout (SO_SNDTIMEO) of what, to the guest, is its first connect */
}

static int connect_internet(struct cg_call *call, struct cg_socket *socket, struct cg_address *address) {
    struct cg_route route = {.count = 1};
    int error = 0;
    if (address->any.sa_family == AF_UNSPEC) { /* only dissolves an association */
        route.to[0] = *address;
        /* With it a datagram socket loses its port. The next one would be chosen outside with a guest's options: also one that others share. */
        if (socket->type == SOCK_DGRAM) error = -cg_socket_move(call, socket, false, NULL);
    } else switch (cg_route_find(call, socket, address, &route)) {
        case CG_WAY_REFUSED: return 0;
        case CG_WAY_INSIDE:
            route.count = 1, route.to[0] = *address;
            /* Never with one that is outside, whatever state it is in now: there the same address is the host's own loopback. */
            if (socket->outside && (error = in_use(socket)) != 0) return error;
            error = -cg_socket_move(call, socket, false, NULL);
            break;
        case CG_WAY_OUTSIDE:
            if (socket->outside) error = hear_all(socket->fd, socket, &route);
            if (socket->outside) break;
            if ((error = in_use(socket)) != 0) return error;
            return is_bound_to_loopback(socket) ? EINVAL : dial(call, socket, &route);
        }
    if (!error) error = connect_in_turn(call, socket->fd, &route, 0);
    if (!socket->outside && cg_is_resolver(address)) cg_lookup_note(call, socket);
    return error;
}

/* Of the kinds that are not of the internet: unix and netlink. */
static int connect_inside(struct cg_call *call, struct cg_socket *socket, struct cg_address *address) {
    struct cg_path peer = {.object = -1, .parent = -1};
    struct cg_route route = {.count = 1};
    int error = 0;
    /* Another process than the kernel is named by right of who connects, and that would be the supervisor's. */
    if (socket->domain == AF_NETLINK && address->any.sa_family == AF_NETLINK && !cg_is_kernel(address)) return EPERM;
    if (socket->domain != AF_UNIX || cg_pin_peer(call, address, &peer) == 0) {
        route.to[0] = *address;
        error = connect_in_turn(call, socket->fd, &route, 0);
    }
    cg_path_release(&peer);
    return error;
}

void net_connect(struct cg_call *call) {
    struct cg_socket socket;
    struct cg_address address;
    int error = cg_address_read(call, call->args[1], call->args[2], &address);
    if (!error) error = cg_socket_take(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    if (address.length < sizeof address.any.sa_family) error = EINVAL;
    else error = cg_is_internet(&socket) ? connect_internet(call, &socket, &address) : connect_inside(call, &socket, &address);
    /* Before the answer, so that the guest's closing it is its end; after it, if it is no longer the guest's. */
    const bool left = cg_is_internet(&socket) && socket.left;
    if (!left) close(socket.fd);
    error ? cg_answer_error(call, error) : cg_answer_value(call, 0); /* unless it was refused and answered */
    if (!left) return;
    cg_send_answer(call);
    close(socket.fd);
    cg_socket_prepare_next(call->vm, &socket);
}

/* ---- bind, listen: always inside ---- */

/* UDP, any address, any port: what the kernel does by itself at the first send, and resolvers do by hand. */
static bool asks_for_nothing(const struct cg_socket *socket, const struct cg_address *address) {
    static const uint8_t any[16] = {0};
    uint8_t bytes[16];
    uint16_t port;
    const size_t n = cg_address_bytes(address, bytes, &port);
    return socket->type == SOCK_DGRAM && n > 0 && port == 0 && memcmp(bytes, any, n) == 0;
}

/* A bind is for a socket that has no port yet. */
static bool has_port(const struct cg_socket *socket) {
    struct cg_address own = {.length = sizeof own.raw};
    uint8_t bytes[16];
    uint16_t port = 0;
    if (socket->type == SOCK_STREAM) return in_use(socket) != 0; /* after a connection the name that it had is still told */
    return getsockname(socket->fd, &own.any, &own.length) != 0 || cg_address_bytes(&own, bytes, &port) == 0 || port != 0;
}

/* Who listens at "any" address does so at the loopback, which alone a VM has: a rule that denies it by its address holds, unless one allows "any" by name. */
static bool loopback_is_denied(struct cg_call *call, const struct cg_socket *socket, const uint8_t *bytes, size_t n, uint16_t port, const char *any) {
    static const uint8_t unspecified[16] = {0}, v4[4] = {127, 0, 0, 1};
    const struct cg_policy *policy = call->vm->launch.policy;
    char subject[CG_SUBJECT_MAX];
    int32_t rule;
    int only = 0;
    socklen_t size = sizeof only;
    if (memcmp(bytes, unspecified, n) != 0 || cg_policy_names_address(policy, CG_NET_OP_LISTEN, any, strlen(any), &rule) == 1) return false;
    if (n == 16 && getsockopt(socket->fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, &size) != 0) only = 0;
    cg_subject(socket, NULL, v4, 4, port, subject);
    bool denied = !only && cg_policy_names_address(policy, CG_NET_OP_LISTEN, subject, strlen(subject), &rule) == 0;
    if (!denied && n == 16) {
        cg_subject(socket, NULL, in6addr_loopback.s6_addr, 16, port, subject);
        denied = cg_policy_names_address(policy, CG_NET_OP_LISTEN, subject, strlen(subject), &rule) == 0;
    }
    if (denied) cg_refuse(call, CG_SCOPE_NETWORK, CG_NET_OP_LISTEN, rule, any, strlen(any), NULL, "any address is the loopback too, which a rule denies");
    return denied;
}

static bool judge_listen(struct cg_call *call, const struct cg_socket *socket, const struct cg_address *address) {
    char subject[CG_SUBJECT_MAX];
    uint8_t bytes[16];
    uint16_t port;
    const size_t n = cg_address_bytes(address, bytes, &port);
    if (n == 0) { cg_answer_error(call, cg_address_fault(address)); return false; }
    cg_subject(socket, NULL, bytes, n, port, subject);
    return cg_judge(call, CG_SCOPE_NETWORK, CG_NET_OP_LISTEN, subject, strlen(subject), subject) && !loopback_is_denied(call, socket, bytes, n, port, subject);
}

void net_bind(struct cg_call *call) {
    struct cg_socket socket;
    struct cg_address address;
    int error = cg_address_read(call, call->args[1], call->args[2], &address);
    if (!error) error = cg_socket_take(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    if (address.length < sizeof address.any.sa_family) cg_answer_error(call, EINVAL);
    else if (cg_is_internet(&socket) && !asks_for_nothing(&socket, &address) && !judge_listen(call, &socket, &address)) {
    } else if (socket.domain == AF_UNIX && cg_has_path(&address)) cg_bind_path(call, &socket, &address);
    else if (socket.outside && has_port(&socket)) cg_answer_error(call, EINVAL);
    else if (cg_is_internet(&socket) && (error = cg_socket_move(call, &socket, false, NULL)) != 0) cg_answer_error(call, -error);
    else if (bind(socket.fd, &address.any, address.length) == 0) cg_answer_value(call, 0);
    else cg_answer_error(call, errno);
    close(socket.fd);
}

void net_listen(struct cg_call *call) {
    struct cg_socket socket;
    struct cg_address address = {.length = sizeof address.raw};
    int error = cg_socket_take(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    /* Listening without a bind chooses a port by itself: judged here, on the name the socket has now. */
    if (cg_is_internet(&socket) && getsockname(socket.fd, &address.any, &address.length) != 0) cg_answer_error(call, errno);
    else if (cg_is_internet(&socket) && !judge_listen(call, &socket, &address)) {
    } else if (socket.outside && in_use(&socket) != 0) cg_answer_error(call, EINVAL); /* never with one that is outside: its connection may end at any time */
    else if (cg_is_internet(&socket) && (error = cg_socket_move(call, &socket, false, NULL)) != 0) cg_answer_error(call, -error);
    else if (listen(socket.fd, (int)call->args[1]) == 0) cg_answer_value(call, 0);
    else cg_answer_error(call, errno);
    close(socket.fd);
}

/* ---- interfaces: a socket tells those of its namespace, and the host's are none of a guest's business ---- */

void net_interface(struct cg_call *call) {
    struct cg_socket socket;
    union { struct ifreq one; struct ifconf several; } request;
    const unsigned command = (unsigned)call->args[1];
    char list[4096];
    int error = cg_socket_take(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, error == -ENOTSOCK ? ENOTTY : -error); return; }
    const bool is_list = command == SIOCGIFCONF;
    const size_t size = is_list ? sizeof request.several : sizeof request.one;
    error = cg_read_memory(call, call->args[2], &request, size);
    const uint64_t buffer = (uint64_t)(uintptr_t)request.several.ifc_buf;
    if (is_list && !error && request.several.ifc_buf) {
        if (request.several.ifc_len < 0) error = -EINVAL;
        else if (request.several.ifc_len > (int)sizeof list) request.several.ifc_len = sizeof list;
        request.several.ifc_buf = list;
    }
    if (!error && socket.outside) error = -EACCES;
    if (!error && ioctl(socket.fd, command, &request) != 0) error = -errno;
    if (!error && is_list && buffer) {
        error = cg_write_memory(call, buffer, list, (size_t)request.several.ifc_len);
        request.several.ifc_buf = (char *)(uintptr_t)buffer;
    }
    if (!error) error = cg_write_memory(call, call->args[2], &request, size);
    close(socket.fd);
    error ? cg_answer_error(call, -error) : cg_answer_value(call, 0);
}
