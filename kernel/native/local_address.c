/* Which addresses are local to the host or its surroundings, however they are spelled: the table of kernel/egress/addresses.py, which a test holds
 * against this one. */
#include "local_address.h"

#include <string.h>

struct range { uint8_t prefix[16]; unsigned bits; const char *kind; };

static const char metadata[] = "a cloud metadata address", loopback[] = "a loopback address", private[] = "a private address";

/* More specific ranges stand first. */
static const struct range ipv4[] = {
    {{169, 254, 169, 254}, 32, metadata}, {{169, 254, 170, 2}, 32, metadata}, {{169, 254, 170, 23}, 32, metadata},
    {{100, 100, 100, 200}, 32, metadata}, {{168, 63, 129, 16}, 32, metadata}, {{192, 0, 0, 192}, 32, metadata},
    {{0}, 8, loopback}, /* Linux connects to 0.0.0.0 as to the loopback */
    {{127}, 8, loopback}, {{10}, 8, private}, {{172, 16}, 12, private}, {{192, 168}, 16, private}, {{192, 0, 0}, 24, private},
    {{100, 64}, 10, "a shared (CGNAT) address"}, {{169, 254}, 16, "a link-local address"}, {{224}, 4, "a multicast address"},
    {{240}, 4, "a reserved address"},
};

static const struct range ipv6[] = {
    {{0xfd, 0x00, 0x0e, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54}, 128, metadata},
    {{0xfd, 0x00, 0x0e, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x23}, 128, metadata},
    {{0xfd, 0x20, 0x00, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54}, 128, metadata},
    {{0}, 128, loopback}, {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, loopback},
    {{0, 0x64, 0xff, 0x9b, 0, 1}, 48, private}, /* NAT64 of a network's own: where the IPv4 address stands in it is local knowledge */
    {{0xfc}, 7, private}, {{0xfe, 0xc0}, 10, private}, {{0xfe, 0x80}, 10, "a link-local address"}, {{0xff}, 8, "a multicast address"},
};

/* Where an IPv4 address stands in an IPv6 one, and whether its bits are inverted there. */
static const struct { uint8_t prefix[16]; unsigned bits, at; int inverted; } embedding[] = {
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, 12, 0},       /* IPv4-mapped */
    {{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, 12, 0},             /* IPv4-translated (SIIT, RFC 7915) */
    {{0, 0x64, 0xff, 0x9b}, 96, 12, 0},                            /* NAT64 (RFC 6052) */
    {{0}, 96, 12, 0},                                              /* IPv4-compatible */
    {{0x20, 0x02}, 16, 2, 0},                                      /* 6to4: the tunnel's far end */
    {{0x20, 0x01, 0, 0}, 32, 4, 0}, {{0x20, 0x01, 0, 0}, 32, 12, 1}, /* Teredo: the server, the client */
};

static int starts_with(const uint8_t *address, const uint8_t *prefix, unsigned bits) {
    const unsigned whole = bits / 8, rest = bits % 8;
    return memcmp(address, prefix, whole) == 0 && (rest == 0 || ((address[whole] ^ prefix[whole]) & (0xff00u >> rest & 0xffu)) == 0);
}

static const char *find(const struct range *table, size_t count, const uint8_t *address) {
    for (size_t i = 0; i < count; i++)
        if (starts_with(address, table[i].prefix, table[i].bits)) return table[i].kind;
    return NULL;
}

static void extract(const uint8_t *bytes, size_t entry, uint8_t to[4]) {
    for (unsigned i = 0; i < 4; i++) to[i] = (uint8_t)(bytes[embedding[entry].at + i] ^ (embedding[entry].inverted ? 0xff : 0));
}

const char *cg_local_kind(const uint8_t *bytes, size_t n) {
    uint8_t inner[4];
    if (n == 4) return find(ipv4, sizeof ipv4 / sizeof *ipv4, bytes);
    const char *kind = find(ipv6, sizeof ipv6 / sizeof *ipv6, bytes);
    for (size_t i = 0; !kind && i < sizeof embedding / sizeof *embedding; i++)
        if (starts_with(bytes, embedding[i].prefix, embedding[i].bits)) {
            extract(bytes, i, inner);
            kind = find(ipv4, sizeof ipv4 / sizeof *ipv4, inner);
        }
    return kind;
}

int cg_is_loopback(const uint8_t *bytes, size_t n) { return cg_local_kind(bytes, n) == loopback; }

int cg_embedded_ipv4(const uint8_t *bytes, uint8_t *to) {
    for (size_t i = 0; i < sizeof embedding / sizeof *embedding; i++)
        if (!embedding[i].inverted && embedding[i].bits != 32 && starts_with(bytes, embedding[i].prefix, embedding[i].bits)) {
            extract(bytes, i, to);
            return 1;
        }
    return 0;
}
