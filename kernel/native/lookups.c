/* Who asked the VM's resolver: the host refuses a name, and knows of the program that asked for it only the port that it asked from. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "network.h"

void cg_lookup_note(struct cg_call *call, const struct cg_socket *socket) {
    struct cg_address own = {.length = sizeof own.raw};
    uint8_t bytes[16];
    uint16_t port = 0;
    const int protocol = socket->type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
    if (getsockname(socket->fd, &own.any, &own.length) != 0) return;
    if (cg_address_bytes(&own, bytes, &port) > 0 && port == 0 && socket->type == SOCK_DGRAM) {
        /* What the send would do by itself, but before the host can have the question: binding to any port of the address it has. */
        if (bind(socket->fd, &own.any, own.length) != 0) return;
        own.length = sizeof own.raw;
        if (getsockname(socket->fd, &own.any, &own.length) != 0 || cg_address_bytes(&own, bytes, &port) == 0) return;
    }
    if (port == 0) return;
    struct cg_vm *vm = call->vm;
    pthread_mutex_lock(&vm->lookups_lock);
    size_t at = 0;
    while (at < CG_LOOKUPS_MAX && (vm->lookups[at].port != port || vm->lookups[at].protocol != protocol)) at++;
    if (at == CG_LOOKUPS_MAX) at = vm->next_lookup++ % CG_LOOKUPS_MAX; /* the oldest makes room */
    vm->lookups[at] = (struct cg_lookup){protocol, port, call->tid};
    pthread_mutex_unlock(&vm->lookups_lock);
}

int cg_lookup_denied(struct cg_vm *vm, struct cg_reader *in) {
    const uint32_t protocol = cg_read_u32(in), port = cg_read_u32(in);
    const int32_t rule = cg_read_i32(in);
    uint32_t n, m;
    char why[96];
    const uint8_t *subject = cg_read_bytes(in, &n), *reason = cg_read_bytes(in, &m);
    if (!cg_reader_done(in) || n == 0 || n > PATH_MAX || memchr(reason, 0, m)) return EINVAL;
    if (m >= sizeof why) m = sizeof why - 1;
    memcpy(why, reason, m);
    why[m] = '\0';
    pid_t tid = 0;
    pthread_mutex_lock(&vm->lookups_lock);
    for (size_t i = 0; i < CG_LOOKUPS_MAX; i++)
        if (vm->lookups[i].tid && vm->lookups[i].port == port && vm->lookups[i].protocol == (int)protocol) tid = vm->lookups[i].tid;
    pthread_mutex_unlock(&vm->lookups_lock);
    struct cg_caller who;
    if (!tid || cg_caller_of(vm, tid, &who) != 0) return ENOENT; /* or gone meanwhile */
    cg_refused_elsewhere(vm, tid, CG_NET_OP_DNS, rule, (const char *)subject, n, why);
    return 0;
}
