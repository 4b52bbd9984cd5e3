/* Where an address of a guest's leads: the VM itself, a name that the VM's resolver gave it for, or the outside; judged, and guarded against local addresses.
 *
 * Names are the host's business: before its resolver answers a guest, it says here which address stands for which name and what is to be dialled instead. A
 * connection to such an address is judged as one to the name; then every real address is judged again by the rules that name addresses, and the local ones are
 * refused unless such a rule allows them or the operator opened them (SPEC 3.2). No DNS is read here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "network.h"

#define NAME_MAX_LENGTH 253
#define KEYS_MAX (2u * 65536) /* an IPv4 and an IPv6 address for each name */
#define RESOLVER_PORT 53

struct real { uint8_t n, bytes[16]; };
struct meaning { char host[NAME_MAX_LENGTH + 1]; uint32_t flags; uint16_t port; size_t count; struct real to[CG_DESTINATIONS_MAX]; };

/* What is kept: as long as it has to be, for a guest decides how many there are. The host's name, then the addresses, of 17 bytes each. */
struct cg_name { uint8_t key[16]; uint32_t flags; uint16_t port; uint8_t host_length, count, rest[]; };

/* ---- the table: open addressing, grown by doubling, nothing is ever taken out ---- */

static bool is_stand_in(const uint8_t *bytes, size_t n) {
    static const uint8_t v6[6] = {0x20, 0x01, 0x00, 0x02, 0x00, 0x00}; /* 2001:2::/48 */
    return n == 4 ? bytes[0] == 198 && (bytes[1] & 0xfe) == 18 : memcmp(bytes, v6, sizeof v6) == 0;
}

static void key_of(const uint8_t *bytes, size_t n, uint8_t key[16]) {
    memset(key, 0, 16);
    memcpy(key + 16 - n, bytes, n);
}

static struct cg_name **slot_of(struct cg_name **slots, size_t size, const uint8_t key[16]) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a: the host chooses the keys, no guest does */
    for (unsigned i = 0; i < 16; i++) hash = (hash ^ key[i]) * 0x100000001b3u;
    size_t at = (size_t)hash & (size - 1);
    while (slots[at] && memcmp(slots[at]->key, key, 16) != 0) at = (at + 1) & (size - 1);
    return &slots[at];
}

static int make_room(struct cg_name_table *table) {
    if (table->used * 2 < table->size) return 0;
    if (table->used >= KEYS_MAX) return ENOSPC;
    const size_t size = table->size ? table->size * 2 : 64;
    struct cg_name **slots = calloc(size, sizeof *slots);
    if (!slots) return ENOSPC;
    for (size_t i = 0; i < table->size; i++)
        if (table->slots[i]) *slot_of(slots, size, table->slots[i]->key) = table->slots[i];
    free(table->slots);
    table->slots = slots, table->size = size;
    return 0;
}

static int put(struct cg_name_table *table, const uint8_t *bytes, size_t n, const struct meaning *meaning) {
    const size_t host = strlen(meaning->host), real = meaning->count * sizeof *meaning->to;
    struct cg_name *name = make_room(table) == 0 ? malloc(sizeof *name + host + real) : NULL;
    if (!name) return ENOSPC;
    key_of(bytes, n, name->key);
    name->flags = meaning->flags, name->port = meaning->port, name->host_length = (uint8_t)host, name->count = (uint8_t)meaning->count;
    memcpy(name->rest, meaning->host, host);
    memcpy(name->rest + host, meaning->to, real);
    struct cg_name **slot = slot_of(table->slots, table->size, name->key);
    if (!*slot) table->used++;
    free(*slot);
    *slot = name;
    return 0;
}

static bool get(struct cg_vm *vm, const uint8_t *bytes, size_t n, struct meaning *meaning) {
    uint8_t key[16];
    key_of(bytes, n, key);
    pthread_rwlock_rdlock(&vm->name_table.lock);
    const struct cg_name *name = vm->name_table.size ? *slot_of(vm->name_table.slots, vm->name_table.size, key) : NULL;
    if (name) {
        memset(meaning->host, 0, sizeof meaning->host);
        memcpy(meaning->host, name->rest, name->host_length);
        memcpy(meaning->to, name->rest + name->host_length, name->count * sizeof *meaning->to);
        meaning->flags = name->flags, meaning->port = name->port, meaning->count = name->count;
    }
    pthread_rwlock_unlock(&vm->name_table.lock);
    return name != NULL;
}

int cg_name_learn(struct cg_vm *vm, struct cg_reader *in) {
    struct meaning meaning = {.count = 0};
    uint32_t n, n4, n6;
    const uint8_t *name = cg_read_bytes(in, &n), *v4 = cg_read_bytes(in, &n4), *v6 = cg_read_bytes(in, &n6);
    meaning.flags = cg_read_u32(in);
    const uint32_t port = cg_read_u32(in), count = cg_read_count(in, 4);
    if (in->failed || n == 0 || n > NAME_MAX_LENGTH || n4 != 4 || n6 != 16 || !is_stand_in(v4, 4) || !is_stand_in(v6, 16) || port > UINT16_MAX ||
        count > CG_DESTINATIONS_MAX)
        return EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-_.", (char)name[i]) || !name[i]) return EINVAL;
    memcpy(meaning.host, name, n);
    meaning.port = (uint16_t)port;
    for (; meaning.count < count; meaning.count++) {
        uint32_t length;
        const uint8_t *bytes = cg_read_bytes(in, &length);
        if (in->failed || (length != 4 && length != 16)) return EINVAL;
        meaning.to[meaning.count].n = (uint8_t)length;
        memcpy(meaning.to[meaning.count].bytes, bytes, length);
    }
    if (!cg_reader_done(in)) return EINVAL;
    pthread_rwlock_wrlock(&vm->name_table.lock);
    int error = put(&vm->name_table, v4, 4, &meaning);
    if (!error) error = put(&vm->name_table, v6, 16, &meaning);
    pthread_rwlock_unlock(&vm->name_table.lock);
    return error;
}

/* ---- the guard ---- */

/* An address that is the host's own, whatever its range, or one of many hosts: as the host's routes have it. No packet is sent. */
static const char *kind_by_route(const uint8_t *bytes, size_t n) {
    struct question { struct nlmsghdr header; struct rtmsg route; struct rtattr destination; uint8_t bytes[16]; } ask = {
        .header = {.nlmsg_len = (uint32_t)(offsetof(struct question, bytes) + n), .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
        .route = {.rtm_family = n == 4 ? AF_INET : AF_INET6, .rtm_dst_len = (uint8_t)(8 * n)},
        .destination = {.rta_len = (uint16_t)RTA_LENGTH(n), .rta_type = RTA_DST}};
    struct { struct nlmsghdr header; struct rtmsg route; uint8_t rest[4096]; } answer;
    const char *kind = "not to be told from a local one"; /* out of descriptors, say: a denial */
    memcpy(ask.bytes, bytes, n);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd >= 0 && send(fd, &ask, ask.header.nlmsg_len, 0) >= 0 && recv(fd, &answer, sizeof answer, 0) >= (ssize_t)offsetof(__typeof__(answer), rest)) {
        if (answer.header.nlmsg_type == NLMSG_ERROR) kind = NULL; /* unreachable: as the dial will say */
        else if (answer.header.nlmsg_type == RTM_NEWROUTE) switch (answer.route.rtm_type) {
            case RTN_LOCAL: case RTN_ANYCAST: kind = "an address of the host itself"; break;
            case RTN_BROADCAST: kind = "a broadcast address"; break;
            case RTN_MULTICAST: kind = "a multicast address"; break;
            default: kind = NULL;
            }
    }
    if (fd >= 0) close(fd);
    return kind;
}

/* Why a real address is not dialled, or NULL. `rule`: what decided. */
static const char *refusal(struct cg_call *call, const struct cg_socket *socket, const uint8_t *bytes, size_t n, uint16_t port, bool named, int32_t *rule) {
    char subject[CG_SUBJECT_MAX];
    uint8_t inner[4];
    const struct cg_policy *policy = call->vm->launch.policy;
    cg_subject(socket, NULL, bytes, n, port, subject);
    const int verdict = cg_policy_names_address(policy, CG_NET_OP_HTTP, subject, strlen(subject), rule);
    if (named && verdict == 0) return "an address that a rule denies";
    const char *kind = cg_local_kind(bytes, n);
    /* A rule that allows the loopback speaks of the VM's own: the host's is opened by the operator alone. */
    if (verdict != 1 || cg_is_loopback(bytes, n)) {
        *rule = CG_RULE_LOCAL_ADDRESS;
        if (!kind) kind = kind_by_route(bytes, n);
        if (kind) return kind;
    }
    if (n == 16 && cg_embedded_ipv4(bytes, inner)) { /* another spelling of an address that a rule may deny */
        cg_subject(socket, NULL, inner, 4, port, subject);
        if (cg_policy_names_address(policy, CG_NET_OP_HTTP, subject, strlen(subject), rule) == 0) return "an address that a rule denies";
    }
    return NULL;
}

static bool is_host_port(const struct cg_vm *vm, uint16_t port) {
    for (uint32_t i = 0; i < vm->launch.host_port_count; i++)
        if (vm->launch.host_ports[i] == port) return true;
    return false;
}

/* ---- the ways ---- */

static void add(struct cg_route *route, const struct cg_address *like, const uint8_t *bytes, size_t n, uint16_t port) {
    struct cg_address *to = &route->to[route->count++];
    *to = *like;
    cg_address_set(to, bytes, n, port);
    if (to->any.sa_family == AF_INET6) { /* the numbers of interfaces are the VM's, and no label of a guest's goes out */
        to->v6.sin6_flowinfo = 0;
        if (to->length >= sizeof to->v6) to->v6.sin6_scope_id = 0;
    }
}

static enum cg_way refuse(struct cg_call *call, const char *subject, int32_t rule, const char *reason) {
    cg_refuse(call, CG_SCOPE_NETWORK, CG_NET_OP_HTTP, rule, subject, strlen(subject), NULL, reason);
    return CG_WAY_REFUSED;
}

static enum cg_way to_name(struct cg_call *call, const struct cg_socket *socket, const struct cg_address *address, const struct meaning *meaning, size_t n,
                           uint16_t asked, const char *subject, struct cg_route *route) {
    const uint16_t port = meaning->port ? meaning->port : asked;
    int32_t rule = CG_RULE_LOCAL_ADDRESS;
    char reason[96] = "";
    if (meaning->flags & CG_NAME_HOST_PORTS && !is_host_port(call->vm, port)) return refuse(call, subject, rule, "a port of the host that is not among host_ports");
    for (size_t i = 0; i < meaning->count; i++) {
        const struct real *real = &meaning->to[i];
        int32_t by = CG_RULE_LOCAL_ADDRESS;
        if (real->n != n) continue;
        const char *why = meaning->flags & CG_NAME_OPERATOR ? NULL : refusal(call, socket, real->bytes, n, port, true, &by);
        if (!why) add(route, address, real->bytes, n, port);
        else if (!reason[0]) {
            char text[INET6_ADDRSTRLEN];
            inet_ntop(n == 4 ? AF_INET : AF_INET6, real->bytes, text, sizeof text);
            snprintf(reason, sizeof reason, "the name leads to %s, %s", text, why);
            rule = by;
        }
    }
    if (route->count > 0) return CG_WAY_OUTSIDE;
    if (reason[0]) return refuse(call, subject, rule, reason);
    cg_answer_error(call, ENETUNREACH); /* it has no address of this family */
    return CG_WAY_REFUSED;
}

bool cg_is_resolver(const struct cg_address *address) {
    static const uint8_t resolver[4] = {127, 0, 0, 53};
    uint8_t bytes[16];
    uint16_t port;
    return cg_address_bytes(address, bytes, &port) == 4 && port == RESOLVER_PORT && memcmp(bytes, resolver, 4) == 0;
}

enum cg_way cg_route_find(struct cg_call *call, const struct cg_socket *socket, struct cg_address *address, struct cg_route *route) {
    uint8_t bytes[16];
    uint16_t port;
    char subject[CG_SUBJECT_MAX];
    struct meaning meaning;
    route->count = 0;
    cg_address_no_unspecified(address);
    const size_t n = cg_address_bytes(address, bytes, &port);
    if (n == 0) { cg_answer_error(call, cg_address_fault(address)); return CG_WAY_REFUSED; }
    if (cg_is_resolver(address)) return CG_WAY_INSIDE; /* the runtime's own: what it is asked is judged there */
    const bool stand_in = is_stand_in(bytes, n), named = stand_in && get(call->vm, bytes, n, &meaning);
    cg_subject(socket, named ? meaning.host : NULL, bytes, n, port, subject);
    if (!cg_judge(call, CG_SCOPE_NETWORK, CG_NET_OP_HTTP, subject, strlen(subject), subject)) return CG_WAY_REFUSED;
    if (named) return to_name(call, socket, address, &meaning, n, port, subject, route);
    if (stand_in) return refuse(call, subject, CG_RULE_LOCAL_ADDRESS, "an address that the VM's resolver gave to no name");
    const bool v4_loopback = n == 4 && bytes[0] == 127;
    if (v4_loopback || (n == 16 && memcmp(bytes, &in6addr_loopback, 16) == 0)) {
        const bool first = n == 16 || (bytes[1] == 0 && bytes[2] == 0 && bytes[3] == 1);
        if (!first || !is_host_port(call->vm, port)) return CG_WAY_INSIDE;
        add(route, address, bytes, n, port); /* the operator's word is stronger than a server of the VM at that port */
        return CG_WAY_OUTSIDE;
    }
    int32_t rule = CG_RULE_LOCAL_ADDRESS;
    const char *why = refusal(call, socket, bytes, n, port, false, &rule);
    if (why) return refuse(call, subject, rule, why);
    add(route, address, bytes, n, port);
    return CG_WAY_OUTSIDE;
}
