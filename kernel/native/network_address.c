/* Socket addresses and sockets of a guest's, copied and pinned once, and what they are called in a policy. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "network.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif
#define SIN6_LEN_RFC2133 24 /* without the scope id: what the kernel takes at least */

int cg_address_read(struct cg_call *call, uint64_t pointer, uint64_t length, struct cg_address *to) {
    if ((int)length < 0 || (uint32_t)length > sizeof to->raw) return -EINVAL;
    memset(to, 0, sizeof *to);
    to->length = (socklen_t)(uint32_t)length;
    return cg_read_memory(call, pointer, to->raw, to->length);
}

int cg_socket_take(struct cg_call *call, int number, struct cg_socket *to) {
    socklen_t size = sizeof(int), cookie_size = sizeof(uint64_t);
    uint64_t cookie = 0;
    to->number = number;
    to->outside = to->left = false;
    to->fd = cg_take_descriptor(call, number);
    if (to->fd < 0) return to->fd;
    if (getsockopt(to->fd, SOL_SOCKET, SO_DOMAIN, &to->domain, &size) == 0 && getsockopt(to->fd, SOL_SOCKET, SO_TYPE, &to->type, &size) == 0 &&
        (!cg_is_internet(to) || getsockopt(to->fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &cookie_size) == 0)) {
        /* A socket of any other namespace than the VM's (one that the operator passed as stdin, say) is treated with the same care. */
        to->outside = cg_is_internet(to) && cookie != call->vm->network;
        return 0;
    }
    int error = errno;
    close(to->fd);
    return -error;
}

size_t cg_address_bytes(const struct cg_address *address, uint8_t to[16], uint16_t *port) {
    if (address->any.sa_family == AF_INET && address->length >= sizeof address->v4) {
        *port = ntohs(address->v4.sin_port);
        memcpy(to, &address->v4.sin_addr, 4);
        return 4;
    }
    if (address->any.sa_family != AF_INET6 || address->length < SIN6_LEN_RFC2133) return 0;
    *port = ntohs(address->v6.sin6_port);
    const struct in6_addr v6 = address->v6.sin6_addr;
    const size_t n = IN6_IS_ADDR_V4MAPPED(&v6) ? 4 : 16;
    memcpy(to, v6.s6_addr + 16 - n, n);
    return n;
}

void cg_address_set(struct cg_address *address, const uint8_t *bytes, size_t n, uint16_t port) {
    if (address->any.sa_family == AF_INET) {
        address->v4.sin_port = htons(port);
        memcpy(&address->v4.sin_addr, bytes, 4);
        return;
    }
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    address->v6.sin6_port = htons(port);
    if (n == 4) memcpy(address->v6.sin6_addr.s6_addr, mapped, sizeof mapped);
    memcpy(address->v6.sin6_addr.s6_addr + 16 - n, bytes, n);
}

void cg_subject(const struct cg_socket *socket, const char *host, const uint8_t *bytes, size_t n, uint16_t port, char to[CG_SUBJECT_MAX]) {
    char text[INET6_ADDRSTRLEN];
    const char *scheme = socket->type == SOCK_STREAM ? "tcp" : "udp";
    if (!host) inet_ntop(n == 4 ? AF_INET : AF_INET6, bytes, text, sizeof text);
    snprintf(to, CG_SUBJECT_MAX, !host && n == 16 ? "%s://[%s]:%u" : "%s://%s:%u", scheme, host ? host : text, port);
}

void cg_address_no_unspecified(struct cg_address *address) {
    static const struct in6_addr mapped_any = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}}};
    if (address->any.sa_family == AF_INET && address->v4.sin_addr.s_addr == INADDR_ANY) address->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (address->any.sa_family != AF_INET6) return;
    if (IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr)) address->v6.sin6_addr = in6addr_loopback;
    else if (memcmp(&address->v6.sin6_addr, &mapped_any, sizeof mapped_any) == 0) address->v6.sin6_addr.s6_addr[12] = 127, address->v6.sin6_addr.s6_addr[15] = 1;
}

bool cg_is_kernel(const struct cg_address *address) {
    return address->any.sa_family == AF_NETLINK && address->length >= sizeof address->netlink && address->netlink.nl_pid == 0 && address->netlink.nl_groups == 0;
}

int cg_address_fault(const struct cg_address *address) {
    return address->any.sa_family == AF_INET || address->any.sa_family == AF_INET6 ? EINVAL : EAFNOSUPPORT;
}
