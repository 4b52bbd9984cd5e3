/* Bounded little-endian reading and writing; see bytes.h. */
#include "bytes.h"

#include <string.h>

void cg_reader_init(struct cg_reader *reader, const void *data, size_t n) {
    static const uint8_t nothing[1] = {0};
    reader->at = data != NULL ? data : nothing;
    reader->end = reader->at + (data != NULL ? n : 0);
    reader->failed = 0;
}

/* The next n bytes, or NULL when there are fewer. */
static const uint8_t *take(struct cg_reader *reader, size_t n) {
    if (reader->failed || (size_t)(reader->end - reader->at) < n) {
        reader->failed = 1;
        return NULL;
    }
    const uint8_t *at = reader->at;
    reader->at += n;
    return at;
}

static uint64_t take_integer(struct cg_reader *reader, size_t n) {
    const uint8_t *at = take(reader, n);
    uint64_t value = 0;
    if (at != NULL)
        for (size_t i = 0; i < n; i++)
            value |= (uint64_t)at[i] << (8 * i);
    return value;
}

uint8_t cg_read_u8(struct cg_reader *reader) { return (uint8_t)take_integer(reader, 1); }
uint16_t cg_read_u16(struct cg_reader *reader) { return (uint16_t)take_integer(reader, 2); }
uint32_t cg_read_u32(struct cg_reader *reader) { return (uint32_t)take_integer(reader, 4); }
uint64_t cg_read_u64(struct cg_reader *reader) { return take_integer(reader, 8); }

int32_t cg_read_i32(struct cg_reader *reader) {
    uint32_t bits = cg_read_u32(reader);
    int32_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint32_t cg_read_count(struct cg_reader *reader, size_t item_size) {
    uint32_t count = cg_read_u32(reader);
    size_t left = (size_t)(reader->end - reader->at);
    if (!reader->failed && item_size > 0 && count > left / item_size)
        reader->failed = 1;
    return reader->failed ? 0 : count;
}

const uint8_t *cg_read_bytes(struct cg_reader *reader, uint32_t *n) {
    static const uint8_t nothing[1] = {0};
    uint32_t length = cg_read_u32(reader);
    const uint8_t *at = take(reader, length);
    *n = at != NULL ? length : 0;
    return at != NULL ? at : nothing;
}

int cg_reader_done(const struct cg_reader *reader) { return !reader->failed && reader->at == reader->end; }

void cg_writer_init(struct cg_writer *writer, void *buffer, size_t n) {
    static uint8_t nowhere[1];
    writer->begin = writer->at = buffer != NULL ? buffer : nowhere;
    writer->end = writer->begin + (buffer != NULL ? n : 0);
    writer->failed = 0;
}

/* Room for n more bytes, or NULL. */
static uint8_t *make_room(struct cg_writer *writer, size_t n) {
    if (writer->failed || (size_t)(writer->end - writer->at) < n) {
        writer->failed = 1;
        return NULL;
    }
    uint8_t *at = writer->at;
    writer->at += n;
    return at;
}

static void put_integer(struct cg_writer *writer, uint64_t value, size_t n) {
    uint8_t *at = make_room(writer, n);
    if (at != NULL)
        for (size_t i = 0; i < n; i++)
            at[i] = (uint8_t)(value >> (8 * i));
}

void cg_write_u8(struct cg_writer *writer, uint8_t value) { put_integer(writer, value, 1); }
void cg_write_u16(struct cg_writer *writer, uint16_t value) { put_integer(writer, value, 2); }
void cg_write_u32(struct cg_writer *writer, uint32_t value) { put_integer(writer, value, 4); }
void cg_write_u64(struct cg_writer *writer, uint64_t value) { put_integer(writer, value, 8); }
void cg_write_i32(struct cg_writer *writer, int32_t value) { put_integer(writer, (uint32_t)value, 4); }

void cg_write_bytes(struct cg_writer *writer, const void *data, size_t n) {
    if (n > UINT32_MAX) {
        writer->failed = 1;
        return;
    }
    cg_write_u32(writer, (uint32_t)n);
    uint8_t *at = make_room(writer, n);
    if (at != NULL && n > 0)
        memcpy(at, data, n);
}

size_t cg_writer_size(const struct cg_writer *writer) {
    return writer->failed ? 0 : (size_t)(writer->at - writer->begin);
}
