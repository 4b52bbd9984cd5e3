/* bytes.c: any calls on any bytes give what a plain array gives, and what was written reads back. */
#include "fuzz.h"

#include "bytes.h"

const char *const fuzz_words[] = {"\x04\x00\x00\x00", "\xff\xff\xff\xff", NULL};

int LLVMFuzzerInitialize(int *argc, char ***argv) { (void)argc, (void)argv; return 0; }

size_t fuzz_seed(unsigned index, uint8_t *to, size_t room) {
    static const uint8_t seeds[][40] = {{6, 0, 1, 2, 3, 4, 5, 6, 1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 'a', 'b'},
                                        {3, 6, 6, 6, 1, 0, 0, 0, 'x', 0, 0, 0, 0, 255, 255, 255, 255}};
    if (index >= sizeof seeds / sizeof *seeds || room < sizeof *seeds) return 0;
    memcpy(to, seeds[index], sizeof *seeds);
    return sizeof *seeds;
}

/* The model: a position and a length. */
struct model { const uint8_t *data; size_t size, at; int failed; };

static uint64_t model_integer(struct model *model, size_t n) {
    if (model->failed || model->size - model->at < n) { model->failed = 1; return 0; }
    uint64_t value = 0;
    for (size_t i = n; i-- > 0;) value = value * 256 + model->data[model->at + i];
    model->at += n;
    return value;
}

enum { ROOM = 48 };

static void one_call(unsigned kind, struct cg_reader *reader, struct model *model, struct cg_writer *writer) {
    uint64_t got = 0, expected = 0;
    switch (kind) {
    case 0: got = cg_read_u8(reader), expected = model_integer(model, 1), cg_write_u8(writer, (uint8_t)got); break;
    case 1: got = cg_read_u16(reader), expected = model_integer(model, 2), cg_write_u16(writer, (uint16_t)got); break;
    case 2: got = cg_read_u32(reader), expected = model_integer(model, 4), cg_write_u32(writer, (uint32_t)got); break;
    case 3: got = cg_read_u64(reader), expected = model_integer(model, 8), cg_write_u64(writer, got); break;
    case 4: {
        const int32_t value = cg_read_i32(reader);
        got = (uint32_t)value, expected = model_integer(model, 4), cg_write_i32(writer, value);
        break;
    }
    case 5: {
        got = cg_read_count(reader, 20), expected = model_integer(model, 4);
        if (expected * 20 > model->size - model->at) model->failed = 1, expected = 0;
        cg_write_u32(writer, (uint32_t)got);
        break;
    }
    default: {
        uint32_t n;
        const uint8_t *bytes = cg_read_bytes(reader, &n);
        uint64_t length = model_integer(model, 4);
        if (length > model->size - model->at) model->failed = 1, length = 0;
        got = n, expected = length;
        if (!model->failed) {
            FUZZ_CHECK(bytes == model->data + model->at, "bytes point elsewhere");
            model->at += length;
        }
        FUZZ_CHECK(bytes != NULL, "bytes are NULL");
        cg_write_bytes(writer, bytes, n);
    }
    }
    FUZZ_CHECK(got == expected, "call %u gives %llu instead of %llu", kind, (unsigned long long)got, (unsigned long long)expected);
    FUZZ_CHECK(!reader->failed == !model->failed, "call %u: failed is %d", kind, reader->failed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    size_t calls, n;
    uint8_t *kinds = fuzz_piece(&in, fuzz_u8(&in) % 32, &calls), *bytes = fuzz_piece(&in, in.left, &n), room[ROOM];
    struct model model = {bytes, n, 0, 0};
    struct cg_reader reader;
    struct cg_writer writer;
    cg_reader_init(&reader, bytes, n);
    cg_writer_init(&writer, room, sizeof room);
    for (size_t i = 0; i < calls; i++) one_call(kinds[i] % 7, &reader, &model, &writer);
    FUZZ_CHECK(cg_reader_done(&reader) == (!model.failed && model.at == n), "done is %d", cg_reader_done(&reader));
    /* As long as nothing failed the writer has said the same bytes again, as far as there was room. */
    const size_t written = cg_writer_size(&writer);
    FUZZ_CHECK(written <= sizeof room, "%zu bytes in a room of %zu", written, sizeof room);
    if (!model.failed && !writer.failed) FUZZ_CHECK(written == model.at && memcmp(room, bytes, written) == 0, "written differs from what was read");
    if (!model.failed) FUZZ_CHECK(writer.failed == (model.at > sizeof room), "the writer's failed is %d after %zu bytes", writer.failed, model.at);
    free(kinds), free(bytes);
    return 0;
}
