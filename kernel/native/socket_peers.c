/* Whom a datagram socket outside hears: only those that the guest was allowed to send to.
 *
 * Without this the first datagram to an allowed host would open a port of the host's to everybody who finds it, and no `listen` was judged. The list is a filter
 * program on the socket itself, one block for each peer, read back and made longer with every new one. No guest can change it: see setsockopt in the system call table.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <pthread.h>
#include <string.h>

#include "network.h"

#define PROGRAM_MAX 1024u /* instructions: the oldest peers go */
#define HEAR_ALL 0xffffffffu

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* between reading a list and setting it; a leaf */

/* Load, compare, and if it differs jump over the rest of the block. */
static size_t compare(struct sock_filter *to, size_t at, size_t end, unsigned short size, uint32_t offset, uint32_t value) {
    to[at] = (struct sock_filter)BPF_STMT((unsigned short)(BPF_LD | size | BPF_ABS), offset);
    to[at + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, (uint8_t)(end - at - 2));
    return at + 2;
}

/* "From this address and port, take it": 7 or 13 instructions. Offset 0 is the UDP header's source port. */
static size_t block_of(const uint8_t *bytes, size_t n, uint16_t port, struct sock_filter *to) {
    const uint32_t source = (uint32_t)SKF_NET_OFF + (n == 4 ? 12 : 8), protocol = (uint32_t)(SKF_AD_OFF + SKF_AD_PROTOCOL);
    const size_t end = n / 2 + 5;
    size_t at = 0;
    for (uint32_t i = 0; i < n; i += 4) {
        uint32_t word;
        memcpy(&word, bytes + i, sizeof word);
        at = compare(to, at, end, BPF_W, source + i, ntohl(word));
    }
    at = compare(to, at, end, BPF_H, 0, port);
    at = compare(to, at, end, BPF_H, protocol, n == 4 ? ETH_P_IP : ETH_P_IPV6);
    to[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, HEAR_ALL);
    return at;
}

/* How long the block is that begins here: its first comparison jumps to its end. */
static size_t block_length(const struct sock_filter *block) { return 2u + block[1].jf; }

static bool has_block(const struct sock_filter *program, size_t length, const struct sock_filter *block, size_t size) {
    for (size_t at = 0; at + size < length; at += block_length(program + at))
        if (memcmp(program + at, block, size * sizeof *block) == 0) return true;
    return false;
}

int cg_socket_hear(int fd, int type, const struct cg_address *peer) {
    struct sock_filter program[PROGRAM_MAX], block[16];
    uint8_t bytes[16];
    uint16_t port;
    const size_t n = type == SOCK_DGRAM ? cg_address_bytes(peer, bytes, &port) : 0;
    if (n == 0) return 0;
    const size_t size = block_of(bytes, n, port, block);
    pthread_mutex_lock(&lock);
    socklen_t length = PROGRAM_MAX; /* in instructions; none if there is no list yet */
    int error = getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, program, &length) == 0 ? 0 : errno;
    if (!error && !has_block(program, length, block, size)) {
        size_t kept = length > 0 ? length - 1 : 0, first = 0; /* without "take nothing else" at the end */
        while (kept - first + size + 1 > PROGRAM_MAX) first += block_length(program + first);
        memmove(program, program + first, (kept - first) * sizeof *program);
        kept -= first;
        memcpy(program + kept, block, size * sizeof *block);
        program[kept + size] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
        const struct sock_fprog whole = {(unsigned short)(kept + size + 1), program};
        if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &whole, sizeof whole) != 0) error = errno;
    }
    pthread_mutex_unlock(&lock);
    return -error;
}
