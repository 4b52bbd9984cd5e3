/* Which addresses are local to the host or its surroundings. Addresses are in network order, 4 bytes or 16. */
#ifndef CG_LOCAL_ADDRESS_H
#define CG_LOCAL_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

/* "a private address" and the like, or NULL for one that is not local; an IPv6 address that stands for an IPv4 one is what that one is. */
const char *cg_local_kind(const uint8_t *bytes, size_t n);
int cg_is_loopback(const uint8_t *bytes, size_t n); /* in any spelling */
/* The IPv4 address that an IPv6 one stands for (mapped, NAT64, 6to4, compatible, translated), into `to`; 0 if it is none. */
int cg_embedded_ipv4(const uint8_t *bytes, uint8_t *to);

#endif
