/* Sending to an address: judged on copies, and sent on behalf on a duplicate of the caller's socket.
 *
 * What names no address in a register is never seen here. sendmsg(2) holds its address in memory, where no filter can look, so it is made on behalf for every kind of
 * socket: for a TCP socket the kernel ignores the address, but which kind a descriptor is a filter cannot tell either.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "calls.h"
#include "network.h"

#define STREAM_CHUNK (256u * 1024) /* of a stream, one on-behalf send takes at most this: a short count is a legal answer */
#define DATAGRAM_MAX (1024u * 1024)
#define CONTROL_MAX 8192u
#define PASSED_MAX 253   /* SCM_MAX_FD */
#define MESSAGES_MAX 64u /* of one sendmmsg: a short count again */

/* Where the messages of one call go: judged once, and good for the ones after the first that name the same. */
struct destination { bool found; struct cg_address asked, to; struct cg_path peer; };

static int find_internet(struct cg_call *call, struct cg_socket *socket, struct destination *destination, int flags) {
    struct cg_address *to = &destination->to;
    struct cg_route route;
    int error;
    if (socket->type == SOCK_STREAM && !(flags & MSG_FASTOPEN)) {
        to->length = 0; /* the kernel does not look at it either */
        return 0;
    }
    const enum cg_way way = to->length ? cg_route_find(call, socket, to, &route) : CG_WAY_INSIDE;
    if (way == CG_WAY_REFUSED) return -1;
    if (socket->type == SOCK_STREAM) { /* connecting while sending: as where the kernel's switch for it is off */
        cg_answer_error(call, EOPNOTSUPP);
        return -1;
    }
    if (to->length == 0) return 0;
    error = cg_socket_move(call, socket, way == CG_WAY_OUTSIDE, &route.to[0]);
    if (!error && way == CG_WAY_OUTSIDE) error = cg_socket_hear(socket->fd, socket->type, &route.to[0]);
    if (error) {
        cg_answer_error(call, -error);
        return -1;
    }
    if (way == CG_WAY_OUTSIDE) *to = route.to[0];
    else if (cg_is_resolver(to)) cg_lookup_note(call, socket);
    return 0;
}

/* 0: go on, to `to`; -1: answered, or, where the call is tentative, not to be had. */
static int find_destination(struct cg_call *call, struct cg_socket *socket, const struct cg_address *asked, struct destination *destination, int flags) {
    if (destination->found && asked->length == destination->asked.length && memcmp(asked->raw, destination->asked.raw, sizeof asked->raw) == 0) return 0;
    cg_path_release(&destination->peer);
    destination->peer.object = destination->peer.parent = -1;
    destination->found = true;
    destination->asked = destination->to = *asked;
    if (cg_is_internet(socket) && (asked->length == 0 || asked->length >= sizeof asked->any.sa_family)) return find_internet(call, socket, destination, flags);
    if (asked->length == 0) return 0;
    if (asked->length < sizeof asked->any.sa_family) { cg_answer_error(call, EINVAL); return -1; }
    if (socket->domain == AF_UNIX) return cg_pin_peer(call, &destination->to, &destination->peer);
    if (socket->domain == AF_NETLINK && cg_is_kernel(&destination->to)) {
        /* What names its destination is allowed by the rights of who sends (netlink_capable), and the supervisor owns the VM's namespaces: sent without, it is
         * by those of who made the socket, and goes to the kernel as well. */
        destination->to.length = 0;
        return 0;
    }
    cg_answer_error(call, EPERM);
    return -1;
}

static ssize_t send_on_behalf(struct cg_call *call, const struct cg_socket *socket, struct msghdr *message, int flags) {
    int zero_copy = 0;
    socklen_t size = sizeof zero_copy;
    /* It would send from our memory after we have gone on to use it for something else. */
    if (flags & MSG_ZEROCOPY && getsockopt(socket->fd, SOL_SOCKET, SO_ZEROCOPY, &zero_copy, &size) == 0 && zero_copy) return -ENOBUFS;
    flags &= ~(MSG_ZEROCOPY | MSG_FASTOPEN);
    /* Most have room, and need no other worker to take over meanwhile. */
    const bool waits = !(flags & MSG_DONTWAIT) && !(fcntl(socket->fd, F_GETFL) & O_NONBLOCK);
    ssize_t begun = 0, n = sendmsg(socket->fd, message, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
    if (waits && n >= 0 && socket->type == SOCK_STREAM && (size_t)n < message->msg_iov->iov_len) {
        begun = n; /* the rest of a stream; what went with its first byte has gone */
        message->msg_iov->iov_base = (uint8_t *)message->msg_iov->iov_base + n, message->msg_iov->iov_len -= (size_t)n;
        message->msg_control = NULL, message->msg_controllen = 0;
    }
    if (waits && (begun > 0 || (n < 0 && errno == EAGAIN))) {
        cg_block_begin(call);
        n = sendmsg(socket->fd, message, flags | MSG_NOSIGNAL);
        cg_block_end(call);
        if (begun > 0) return begun + (n > 0 ? n : 0);
    }
    struct cg_caller who;
    if (n < 0 && errno == EPIPE && socket->type == SOCK_STREAM && !(flags & MSG_NOSIGNAL) && cg_caller_of(call->vm, call->tid, &who) == 0 && cg_still_waiting(call)) {
        syscall(SYS_tgkill, who.tgid, call->tid, SIGPIPE); /* the caller's, not ours: send(2) */
        return -EPIPE;
    }
    return n < 0 ? -errno : n;
}

void net_sendto(struct cg_call *call) {
    struct cg_socket socket;
    struct cg_address address;
    struct destination destination = {.found = false, .peer = {.object = -1, .parent = -1}};
    const int flags = (int)call->args[3];
    size_t length = call->args[2];
    uint8_t *data = NULL;
    int error = cg_address_read(call, call->args[4], call->args[5], &address);
    if (!error) error = cg_socket_take(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    ssize_t n = 0;
    if (find_destination(call, &socket, &address, &destination, flags) == 0) {
        if (socket.type == SOCK_STREAM && length > STREAM_CHUNK) length = STREAM_CHUNK;
        if (length > DATAGRAM_MAX) error = -EMSGSIZE;
        else if (!(data = malloc(length + 1))) error = -ENOMEM;
        else error = cg_read_memory(call, call->args[1], data, length);
        struct iovec part = {data, length};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_name = destination.to.length ? destination.to.raw : NULL, .msg_namelen = destination.to.length};
        n = error ? error : send_on_behalf(call, &socket, &message, flags);
    }
    free(data);
    cg_path_release(&destination.peer);
    close(socket.fd);
    n < 0 ? cg_answer_error(call, (int)-n) : cg_answer_value(call, n); /* unless it was refused and answered */
}

/* What a message may say of how it travels. Nothing that chooses another way: an interface by its number, a route of the sender's own. */
static bool is_harmless(struct cmsghdr *c) {
    if (c->cmsg_level == IPPROTO_UDP) return c->cmsg_type == UDP_SEGMENT;
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO && c->cmsg_len >= CMSG_LEN(sizeof(struct in_pktinfo))) {
        ((struct in_pktinfo *)CMSG_DATA(c))->ipi_ifindex = 0;
        return true;
    }
    if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO && c->cmsg_len >= CMSG_LEN(sizeof(struct in6_pktinfo))) {
        ((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_ifindex = 0;
        return true;
    }
    if (c->cmsg_level == IPPROTO_IP) return c->cmsg_type == IP_TOS || c->cmsg_type == IP_TTL;
    return c->cmsg_level == IPPROTO_IPV6 && (c->cmsg_type == IPV6_TCLASS || c->cmsg_type == IPV6_HOPLIMIT || c->cmsg_type == IPV6_DONTFRAG);
}

/* Control data with the caller's descriptors exchanged for duplicates of ours (to be closed by the caller); or a negative errno. */
static int take_control(struct cg_call *call, const struct cg_socket *socket, uint8_t *control, size_t length, int *passed, int *count) {
    struct msghdr walk = {.msg_control = control, .msg_controllen = length};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&walk); c; c = CMSG_NXTHDR(&walk, c)) {
        if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > (size_t)(control + length - (uint8_t *)c)) return -EINVAL;
        if (c->cmsg_level != SOL_SOCKET && cg_is_internet(socket) && !is_harmless(c)) return -EPERM;
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
static ssize_t send_message(struct cg_call *call, struct cg_socket *socket, uint64_t pointer, int flags, struct destination *destination) {
    struct msghdr theirs;
    struct cg_address address = {.length = 0};
    struct iovec *parts = NULL;
    uint8_t *data = NULL, *control = NULL;
    int passed[PASSED_MAX], count = 0;
    ssize_t result = cg_read_memory(call, pointer, &theirs, sizeof theirs);
    if (!result && theirs.msg_name && theirs.msg_namelen) result = cg_address_read(call, (uint64_t)(uintptr_t)theirs.msg_name, theirs.msg_namelen, &address);
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
        if (!result) result = take_control(call, socket, control, theirs.msg_controllen, passed, &count);
    }
    if (!result && find_destination(call, socket, &address, destination, flags) != 0) result = -EACCES;
    if (!result) {
        struct iovec part = {data, total};
        struct cg_address *to = &destination->to;
        struct msghdr ours = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control ? theirs.msg_controllen : 0,
                              .msg_name = to->length ? to->raw : NULL, .msg_namelen = to->length};
        result = send_on_behalf(call, socket, &ours, flags);
    }
    while (count > 0) close(passed[--count]);
    free(parts), free(data), free(control);
    return result;
}

void net_sendmsg(struct cg_call *call) {
    const bool many = call->nr == SYS_sendmmsg;
    const unsigned given = many ? (unsigned)call->args[2] : 1, messages = given < MESSAGES_MAX ? given : MESSAGES_MAX;
    struct destination destination = {.found = false, .peer = {.object = -1, .parent = -1}};
    struct cg_socket socket;
    int error = cg_socket_take(call, (int)call->args[0], &socket);
    if (error) { cg_answer_error(call, -error); return; }
    ssize_t n = 0;
    unsigned sent = 0;
    for (; sent < messages; sent++) {
        const uint64_t pointer = call->args[1] + sent * sizeof(struct mmsghdr);
        call->tentative = sent > 0; /* what goes wrong with a later one is told when the caller sends the rest: sendmmsg(2) */
        n = send_message(call, &socket, pointer, (int)call->args[many ? 3 : 2], &destination);
        const uint32_t length = (uint32_t)n;
        if (n >= 0 && many) error = cg_write_memory(call, pointer + offsetof(struct mmsghdr, msg_len), &length, sizeof length);
        if (n < 0 || error) break;
    }
    cg_path_release(&destination.peer);
    close(socket.fd);
    call->tentative = false;
    if (error) n = error;
    if (many && sent > 0) cg_answer_value(call, sent);
    else n < 0 ? cg_answer_error(call, (int)-n) : cg_answer_value(call, many ? sent : n);
}
