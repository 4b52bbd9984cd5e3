/* Bounded little-endian reading and writing of the encodings in protocol.h.
 *
 * Errors are sticky: after the first read past the end (or write past the end) `failed` is 1 and every later call does
 * nothing, so that a caller checks once, at the end. No function here allocates, and none aligns: the encodings are packed.
 */
#ifndef CG_BYTES_H
#define CG_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct cg_reader {
    const uint8_t *at;
    const uint8_t *end;
    int failed;
};

void cg_reader_init(struct cg_reader *reader, const void *data, size_t n);
/* A failed read returns 0. */
uint8_t cg_read_u8(struct cg_reader *reader);
uint16_t cg_read_u16(struct cg_reader *reader);
uint32_t cg_read_u32(struct cg_reader *reader);
uint64_t cg_read_u64(struct cg_reader *reader);
int32_t cg_read_i32(struct cg_reader *reader);
/* The count of a list whose items take at least item_size bytes each; a count that the rest of the message cannot hold
 * fails here, before anyone allocates for it. */
uint32_t cg_read_count(struct cg_reader *reader, size_t item_size);
/* Points into the message; *n is the length. Never NULL: a failed read gives an empty string and *n = 0. */
const uint8_t *cg_read_bytes(struct cg_reader *reader, uint32_t *n);
/* 1 when everything was read, nothing is left over and nothing failed. */
int cg_reader_done(const struct cg_reader *reader);

struct cg_writer {
    uint8_t *begin;
    uint8_t *at;
    uint8_t *end;
    int failed;
};

void cg_writer_init(struct cg_writer *writer, void *buffer, size_t n);
void cg_write_u8(struct cg_writer *writer, uint8_t value);
void cg_write_u16(struct cg_writer *writer, uint16_t value);
void cg_write_u32(struct cg_writer *writer, uint32_t value);
void cg_write_u64(struct cg_writer *writer, uint64_t value);
void cg_write_i32(struct cg_writer *writer, int32_t value);
/* Length and content; fails when n does not fit a u32. */
void cg_write_bytes(struct cg_writer *writer, const void *data, size_t n);
/* Bytes written so far, or 0 after a failure: a message that did not fit is never half sent. */
size_t cg_writer_size(const struct cg_writer *writer);

#endif
