/* glob.c: matches what a plain recursive reading of the grammar matches, whole or fed in pieces. */
#include <errno.h>

#include "fuzz.h"

#include "glob.h"

const char *const fuzz_words[] = {"*", "**", "/**/", "/**", "?", "/", "***", "/*/", "\xc3\xa9", "\xed\xa0\x80", "\xf0\x9f\x98\x80", "a/b", NULL};

int LLVMFuzzerInitialize(int *argc, char ***argv) { (void)argc, (void)argv; return 0; }

/* An input: the length of the pattern, the pattern, the subject. */
size_t fuzz_seed(unsigned index, uint8_t *to, size_t room) {
    static const char *const seeds[][2] = {{"/a/**", "/a"}, {"/a/**/b", "/a/b"}, {"/a/**/b", "/a/x/y/b"}, {"*", "x/y"}, {"**/x", "a/x"},
                                           {"a*b?c", "axxbyc"}, {"/**/**/**", "/"}, {"\xc3\xa9*", "\xc3\xa9\xc3"}, {"tcp://*.x:443", "tcp://a.x:443"}};
    if (index >= sizeof seeds / sizeof *seeds) return 0;
    const size_t pattern = strlen(seeds[index][0]), subject = strlen(seeds[index][1]);
    if (1 + pattern + subject > room) return 0;
    to[0] = (uint8_t)pattern;
    memcpy(to + 1, seeds[index][0], pattern);
    memcpy(to + 1 + pattern, seeds[index][1], subject);
    return 1 + pattern + subject;
}

enum { TEXT_MAX = 20 }; /* characters: the oracle takes exponential time */

/* One character at a time, by the definition of UTF-8; a byte that is not part of one is beyond all code points. */
static size_t characters(const uint8_t *text, size_t n, uint32_t *to) {
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        uint32_t value = 0;
        size_t length = 0;
        for (size_t try = 1; try <= 4 && i + try <= n && !length; try++) {
            static const uint8_t lead[] = {0x00, 0xc0, 0xe0, 0xf0}, mask[] = {0x80, 0xe0, 0xf0, 0xf8};
            static const uint32_t from[] = {0, 0x80, 0x800, 0x10000}, to_[] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
            if ((text[i] & mask[try - 1]) != lead[try - 1]) continue;
            value = text[i] & (uint8_t)~mask[try - 1];
            size_t follow = 1;
            while (follow < try && (text[i + follow] & 0xc0) == 0x80) value = value * 64 + (text[i + follow++] & 0x3f);
            const int good = follow == try && value >= from[try - 1] && value <= to_[try - 1] && (value < 0xd800 || value > 0xdfff);
            if (good) length = try;
        }
        to[count++] = length ? value : 0x200000u + text[i];
        i += length ? length : 1;
    }
    return count;
}

static int matches(const uint32_t *p, const uint32_t *pe, const uint32_t *s, const uint32_t *se);

/* Some run of characters, then the rest of the pattern. */
static int run_matches(const uint32_t *p, const uint32_t *pe, const uint32_t *s, const uint32_t *se, int slashes) {
    for (;; s++) {
        if (matches(p, pe, s, se)) return 1;
        if (s == se || (*s == '/' && !slashes)) return 0;
    }
}

static int matches(const uint32_t *p, const uint32_t *pe, const uint32_t *s, const uint32_t *se) {
    if (p == pe) return s == se;
    if (*p == '/' && pe - p >= 3 && p[1] == '*' && p[2] == '*') {
        const uint32_t *after = p + 1;
        while (after < pe && *after == '*') after++;
        /* At the end: nothing, or a '/' and anything. */
        if (after == pe) return s == se || *s == '/';
        /* As a whole component: also as if it were not there. */
        if (*after == '/' && matches(after, pe, s, se)) return 1;
    }
    if (*p == '*') {
        const uint32_t *after = p;
        while (after < pe && *after == '*') after++;
        return run_matches(after, pe, s, se, after - p > 1);
    }
    return s < se && (*p == '?' ? *s != '/' : *s == *p) && matches(p + 1, pe, s + 1, se);
}

/* Feeding the subject piece by piece ends in the same answer as matching it whole. */
static void check_pieces(const struct cg_glob *glob, const uint8_t *subject, size_t n, int expected) {
    uint64_t whole[CG_GLOB_WORDS_MAX], pieces[CG_GLOB_WORDS_MAX];
    const size_t words = cg_glob_words(glob);
    FUZZ_CHECK(words > 0 && words <= CG_GLOB_WORDS_MAX, "%zu words", words);
    cg_glob_start(glob, whole);
    cg_glob_start(glob, pieces);
    int universal = cg_glob_universal(glob, pieces);
    cg_glob_feed(glob, whole, (const char *)subject, n);
    for (size_t from = 0; from < n;) {
        size_t to = from + 1;
        while (to < n && subject[to] >= 0x80) to++; /* each piece begins with an ASCII character */
        cg_glob_feed(glob, pieces, (const char *)subject + from, to - from);
        from = to;
        universal |= cg_glob_universal(glob, pieces);
    }
    FUZZ_CHECK(memcmp(whole, pieces, words * sizeof *whole) == 0, "pieces lead to another state");
    if (universal) FUZZ_CHECK(expected, "universal after a part of it, yet the whole does not match");
    int alive = 0;
    for (size_t i = 0; i < words; i++) alive |= whole[i] != 0;
    if (expected) FUZZ_CHECK(alive, "it matches from the state in which nothing can");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    size_t pattern_size, subject_size;
    uint8_t *pattern = fuzz_piece(&in, fuzz_u8(&in), &pattern_size), *subject = fuzz_piece(&in, in.left, &subject_size);
    struct cg_glob *glob = NULL;
    const int error = cg_glob_compile((const char *)pattern, pattern_size, &glob);
    FUZZ_CHECK(error == (pattern_size == 0 ? -EINVAL : 0), "compiling gives %d", error);
    if (error == 0) {
        const int matched = cg_glob_match(glob, (const char *)subject, subject_size);
        if (cg_glob_everything(glob)) FUZZ_CHECK(matched, "everything is not everything");
        check_pieces(glob, subject, subject_size, matched);
        if (pattern_size <= TEXT_MAX && subject_size <= TEXT_MAX) {
            uint32_t p[TEXT_MAX], s[TEXT_MAX];
            const size_t pn = characters(pattern, pattern_size, p), sn = characters(subject, subject_size, s);
            const int expected = (pn == 1 && p[0] == '*') || matches(p, p + pn, s, s + sn);
            FUZZ_CHECK(matched == expected, "\"%.*s\" and \"%.*s\": %d, not %d", (int)pattern_size, (const char *)pattern, (int)subject_size,
                       (const char *)subject, matched, expected);
        }
        cg_glob_free(glob);
    }
    free(pattern), free(subject);
    return 0;
}
