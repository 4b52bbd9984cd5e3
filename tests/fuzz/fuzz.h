/* What a fuzz target offers to the engine (engine.c, or clang's libFuzzer), and what it may use. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- offered by the target ---- */
int LLVMFuzzerInitialize(int *argc, char ***argv);               /* once, before the first input */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);    /* 0; ends the process where a claim does not hold */
size_t fuzz_seed(unsigned index, uint8_t *to, size_t room);      /* the length of a well-formed input; 0: no more of them */
extern const char *const fuzz_words[];                           /* texts worth inserting, NULL at the end */

/* ---- for the target ---- */
#define FUZZ_FAIL(...) do { fprintf(stderr, "fuzz: " __VA_ARGS__); fputc('\n', stderr); abort(); } while (0)
#define FUZZ_CHECK(claim, ...) do { if (!(claim)) FUZZ_FAIL(__VA_ARGS__); } while (0)

/* The input read as numbers and pieces; an input that is too short reads as zeros. */
struct fuzz_input { const uint8_t *at; size_t left; };

static inline uint8_t fuzz_u8(struct fuzz_input *in) {
    if (in->left == 0) return 0;
    in->left--;
    return *in->at++;
}

static inline uint32_t fuzz_u32(struct fuzz_input *in) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)fuzz_u8(in) << (8 * i);
    return value;
}

/* The next n bytes, or what there is of them; in memory of exactly that size, so that one byte too far is seen. Freed by the caller. */
static inline uint8_t *fuzz_piece(struct fuzz_input *in, size_t n, size_t *got) {
    *got = n < in->left ? n : in->left;
    uint8_t *copy = malloc(*got ? *got : 1);
    if (!copy) abort();
    memcpy(copy, in->at, *got);
    in->at += *got, in->left -= *got;
    return copy;
}

#endif
