/* What the network handlers share: a copied address, a pinned socket, and where the first leads for the second.
 *
 * A socket is inside (it belongs to the VM's network namespace, which has nothing but lo) or outside. A guest makes sockets inside; one goes outside when a
 * connection or an addressed send to the outside was allowed, by having the guest's descriptor replaced (socket_moving.c), and comes back the same way.
 */
#ifndef CG_NETWORK_H
#define CG_NETWORK_H

#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "local_address.h"
#include "supervisor.h"

struct cg_address {
    socklen_t length;
    union { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; struct sockaddr_un unix_; struct sockaddr_nl netlink; struct sockaddr_storage storage; char raw[128]; };
};

/* `fd` is a duplicate of the caller's descriptor `number`: the object, whatever the number comes to mean. */
struct cg_socket { int fd, number, domain, type; bool outside, left /* the guest has another in its place */; };

/* ---- network_address.c ---- */
/* 0 or a negative errno. */
int cg_address_read(struct cg_call *, uint64_t pointer, uint64_t length, struct cg_address *);
int cg_socket_take(struct cg_call *, int number, struct cg_socket *);
static inline bool cg_is_internet(const struct cg_socket *socket) { return socket->domain == AF_INET || socket->domain == AF_INET6; }
/* "any" as the loopback it means when it is connected to. */
void cg_address_no_unspecified(struct cg_address *);
/* The address in network order, 4 bytes (also of an IPv4-mapped one) or 16, and the port. 0: not an internet address, or too short. */
size_t cg_address_bytes(const struct cg_address *, uint8_t to[16], uint16_t *port);
void cg_address_set(struct cg_address *, const uint8_t *bytes, size_t n, uint16_t port); /* keeps the family: IPv4 in an IPv6 address is mapped */
/* "tcp://127.0.0.1:80", in the one spelling of an address that policies are compiled to; `host` instead of the address if it is not NULL. */
#define CG_SUBJECT_MAX 320
void cg_subject(const struct cg_socket *, const char *host, const uint8_t *bytes, size_t n, uint16_t port, char to[CG_SUBJECT_MAX]);
/* A netlink address that is the kernel's: no port, no groups. */
bool cg_is_kernel(const struct cg_address *);
/* EINVAL, EAFNOSUPPORT: what is wrong with an address that has no bytes. */
int cg_address_fault(const struct cg_address *);

/* ---- egress.c: what an address leads to ---- */
#define CG_DESTINATIONS_MAX 32
enum cg_way { CG_WAY_REFUSED /* and answered */, CG_WAY_INSIDE, CG_WAY_OUTSIDE };
struct cg_route { size_t count; struct cg_address to[CG_DESTINATIONS_MAX]; };
/* Judge a connection or a message to the address. Inside: the address may have been made definite. Outside: where to dial, in order. */
enum cg_way cg_route_find(struct cg_call *, const struct cg_socket *, struct cg_address *, struct cg_route *);
/* 0, EINVAL or ENOSPC. Main thread only. */
int cg_name_learn(struct cg_vm *, struct cg_reader *);

/* Is it where the VM's resolver listens? */
bool cg_is_resolver(const struct cg_address *);

/* ---- lookups.c ---- */
/* Before the resolver can be asked through this socket (UDP), or when it is connected to it (TCP). */
void cg_lookup_note(struct cg_call *, const struct cg_socket *);
int cg_lookup_denied(struct cg_vm *, struct cg_reader *); /* 0, EINVAL, ENOENT. Main thread only. */

/* ---- socket_moving.c ---- */
int cg_socket_outside(struct cg_vm *, const struct cg_socket *like); /* a new one with the same options, but non-blocking; or a negative errno */
void cg_socket_prepare_next(struct cg_vm *, const struct cg_socket *like);
int cg_socket_inside(struct cg_vm *, int domain, int type);
void cg_socket_copy_options(const struct cg_socket *from, int to);
/* The guest's descriptors that mean `old` come to mean `fd` (same flags; watched by the same epolls). 0 or a negative errno. */
int cg_socket_replace(struct cg_call *, const struct cg_socket *old, int fd);
/* Move it there (if it is not there) unconnected: afterwards socket->fd is the new one. Outside, only a datagram socket, which gets a port and hears the peer alone.
 * 0 or a negative errno. */
int cg_socket_move(struct cg_call *, struct cg_socket *, bool outside, const struct cg_address *peer);

/* ---- socket_readers.c ---- */
/* Have the other threads of the caller's process that wait for one of these descriptors, or may, begin their calls anew. */
void cg_socket_restart_readers(struct cg_call *, const int *numbers, size_t count);

/* ---- socket_peers.c ---- */
/* Let a datagram socket outside (no other kind needs it) hear this peer too. Before anything can be sent to it. 0 or a negative errno. */
int cg_socket_hear(int fd, int type, const struct cg_address *peer);

/* ---- calls_unix.c: names in the filesystem, which the fs scope judges ---- */
bool cg_has_path(const struct cg_address *);
/* The address by which the judged socket, and no other, is reached. Keeps `peer` pinned. 0, or -1 with the call answered. */
int cg_pin_peer(struct cg_call *, struct cg_address *, struct cg_path *peer);
void cg_bind_path(struct cg_call *, const struct cg_socket *, const struct cg_address *);

#endif
