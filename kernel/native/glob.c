/* A glob as a bit-parallel automaton: one bit per token, all live positions advanced together (Baeza-Yates and Gonnet's
 * shift-and), so the cost is characters times words of 64 positions and no pattern can blow up.
 *
 * Tokens, numbered from 0; state n (one past the last) is the end:
 *   literal   advances on its character
 *   ?         advances on any character but '/'
 *   *, **     stay on what they may swallow; both may also be passed over for free
 *   skip      stands after the first '/' of "/[**]/": goes for free to the ** that follows it, and past that ** and its '/'
 * A trailing "/[**]" needs no token: the state before its '/' accepts too. Neighbouring wildcards are merged while
 * parsing, so free moves chain at most as skip -> star -> next, which advance() relies on.
 */
#include "glob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_EVERYTHING, KIND_EXACT, KIND_SUBTREE /* a literal and a trailing "/[**]" */, KIND_GENERAL };

enum { TOKEN_ANY = 0x110000, TOKEN_STAR, TOKEN_GLOBSTAR, TOKEN_SKIP }; /* beyond the last code point: literals are themselves */

enum { CLASS_OTHER, CLASS_SLASH, CLASS_FIRST_LITERAL };

struct cg_glob {
    enum kind kind;
    uint32_t states; /* tokens + 1 */
    uint32_t words;
    int ends_in_globstar;
    uint32_t prefix_tokens; /* the literal beginning, compared with memcmp before the automaton runs */
    uint32_t prefix_bytes;
    uint32_t wide_count;
    uint32_t *wide;             /* code points above ASCII that occur, sorted; class = wide_class + position */
    uint32_t wide_class;
    uint16_t ascii_class[128];
    uint64_t *stay_name, *stay_slash, *skip, *star, *accept, *advance; /* advance: one mask per class */
    char *prefix;
};

/* RFC 3629 without surrogates and overlong forms, as Python's decoder has it; anything else is one byte, told apart from
 * every code point by the surrogate number that surrogateescape gives it. */
static size_t decode(const uint8_t *at, const uint8_t *end, uint32_t *character) {
    uint8_t lead = at[0];
    if (lead < 0x80) {
        *character = lead;
        return 1;
    }
    size_t length = lead >= 0xc2 && lead <= 0xdf ? 2 : lead >= 0xe0 && lead <= 0xef ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    if (length != 0 && (size_t)(end - at) >= length) {
        uint32_t value = lead & (0x7fu >> length);
        size_t i = 1;
        for (; i < length && (at[i] & 0xc0) == 0x80; i++)
            value = value << 6 | (at[i] & 0x3fu);
        static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
        if (i == length && value >= least[length] && value <= 0x10ffff && (value < 0xd800 || value > 0xdfff)) {
            *character = value;
            return length;
        }
    }
    *character = 0xdc00u + lead;
    return 1;
}

static int is_lone_byte(uint32_t character) { return character >= 0xdc80 && character <= 0xdcff; }

struct parse {
    uint32_t *tokens;
    uint32_t count;
    uint32_t early_accept; /* token number whose state accepts too */
    int has_early_accept;
    uint32_t literal_tokens; /* leading literals */
    size_t literal_bytes;    /* and how many bytes of text they are, for prefixes that end in a whole character */
};

static size_t star_run(const char *text, size_t n, size_t from) {
    size_t i = from;
    while (i < n && text[i] == '*')
        i++;
    return i - from;
}

/* The end of the "/[**]" components that start at `from` (each followed by '/' or the end); `from` when there are none. */
static size_t globstar_components(const char *text, size_t n, size_t from) {
    size_t at = from;
    while (at < n && text[at] == '/') {
        size_t run = star_run(text, n, at + 1);
        if (run < 2 || (at + 1 + run < n && text[at + 1 + run] != '/'))
            break;
        at += 1 + run;
    }
    return at;
}

/* tokens has room for n entries: no construct yields more tokens than it has characters. */
static void parse(struct parse *p, const char *text, size_t n) {
    size_t at = 0;
    int literal = 1;
    while (at < n) {
        size_t past = globstar_components(text, n, at);
        if (past > at && past == n) {
            p->has_early_accept = 1;
            p->early_accept = p->count;
            p->tokens[p->count++] = '/';
            p->tokens[p->count++] = TOKEN_GLOBSTAR;
            return;
        }
        size_t before = at;
        uint32_t token;
        if (past > at) {
            p->tokens[p->count++] = '/';
            if (literal) {
                p->literal_tokens = p->count;
                p->literal_bytes = before + 1;
            }
            literal = 0;
            p->tokens[p->count++] = TOKEN_SKIP;
            p->tokens[p->count++] = TOKEN_GLOBSTAR;
            p->tokens[p->count++] = '/';
            at = past + 1;
            continue;
        }
        if (text[at] == '*') {
            size_t run = star_run(text, n, at);
            token = run >= 2 ? TOKEN_GLOBSTAR : TOKEN_STAR;
            at += run;
        } else if (text[at] == '?') {
            token = TOKEN_ANY;
            at++;
        } else {
            at += decode((const uint8_t *)text + at, (const uint8_t *)text + n, &token);
        }
        literal = literal && token < TOKEN_ANY;
        p->tokens[p->count++] = token;
        if (literal && !is_lone_byte(token)) { /* a lone byte could be the start of a longer character in the subject */
            p->literal_tokens = p->count;
            p->literal_bytes = at;
        }
    }
}

static int compare_u32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void set_bit(uint64_t *set, uint32_t bit) { set[bit / 64] |= (uint64_t)1 << (bit % 64); }

static uint32_t class_of(const struct cg_glob *glob, uint32_t character) {
    if (character < 128)
        return glob->ascii_class[character];
    uint32_t low = 0, high = glob->wide_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (glob->wide[middle] < character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < glob->wide_count && glob->wide[low] == character ? glob->wide_class + low : CLASS_OTHER;
}

/* Numbers the classes of characters that the pattern tells apart; returns how many. */
static uint32_t number_classes(struct cg_glob *glob, const struct parse *p) {
    uint32_t classes = CLASS_FIRST_LITERAL;
    glob->ascii_class['/'] = CLASS_SLASH;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t token = p->tokens[i];
        if (token < 128 && glob->ascii_class[token] == CLASS_OTHER)
            glob->ascii_class[token] = (uint16_t)classes++;
        else if (token >= 128 && token < TOKEN_ANY)
            glob->wide[glob->wide_count++] = token;
    }
    qsort(glob->wide, glob->wide_count, sizeof *glob->wide, compare_u32);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < glob->wide_count; i++)
        if (kept == 0 || glob->wide[kept - 1] != glob->wide[i])
            glob->wide[kept++] = glob->wide[i];
    glob->wide_count = kept;
    glob->wide_class = classes;
    return classes + kept;
}

static void fill_masks(struct cg_glob *glob, const struct parse *p, uint32_t classes) {
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t token = p->tokens[i];
        if (token < TOKEN_ANY)
            set_bit(glob->advance + (size_t)class_of(glob, token) * glob->words, i);
        if (token == TOKEN_ANY)
            for (uint32_t class = 0; class < classes; class++)
                if (class != CLASS_SLASH)
                    set_bit(glob->advance + (size_t)class * glob->words, i);
        if (token == TOKEN_STAR || token == TOKEN_GLOBSTAR) {
            set_bit(glob->star, i);
            set_bit(glob->stay_name, i);
        }
        if (token == TOKEN_GLOBSTAR)
            set_bit(glob->stay_slash, i);
        if (token == TOKEN_SKIP)
            set_bit(glob->skip, i);
    }
    set_bit(glob->accept, p->count);
    if (p->has_early_accept)
        set_bit(glob->accept, p->early_accept);
    glob->ends_in_globstar = p->tokens[p->count - 1] == TOKEN_GLOBSTAR;
}

static enum kind kind_of(const struct parse *p) {
    if (p->count == 1 && p->tokens[0] == TOKEN_GLOBSTAR)
        return KIND_EVERYTHING;
    uint32_t literals = 0;
    while (literals < p->count && p->tokens[literals] < TOKEN_ANY)
        literals++;
    if (literals == p->count)
        return KIND_EXACT;
    if (p->has_early_accept && literals == p->count - 1)
        return KIND_SUBTREE;
    return KIND_GENERAL;
}

static int build(struct cg_glob *glob, const struct parse *p, const char *text, size_t n) {
    glob->kind = kind_of(p);
    glob->states = p->count + 1;
    glob->words = (glob->states + 63) / 64;
    glob->wide = calloc(p->count, sizeof *glob->wide);
    if (glob->wide == NULL)
        return -ENOMEM;
    uint32_t classes = number_classes(glob, p);
    uint64_t *masks = calloc((size_t)(classes + 5) * glob->words, sizeof *masks);
    if (masks == NULL)
        return -ENOMEM;
    glob->stay_name = masks;
    glob->stay_slash = masks + glob->words;
    glob->skip = masks + 2 * glob->words;
    glob->star = masks + 3 * glob->words;
    glob->accept = masks + 4 * glob->words;
    glob->advance = masks + 5 * glob->words;
    fill_masks(glob, p, classes);
    /* Exact and subtree compare all of their literal, lone bytes included: what follows it there is the end or a '/'. */
    glob->prefix_tokens = p->literal_tokens;
    size_t bytes = p->literal_bytes;
    if (glob->kind == KIND_EXACT)
        bytes = n;
    if (glob->kind == KIND_SUBTREE) {
        bytes = 0;
        while (globstar_components(text, n, bytes) != n)
            bytes++;
    }
    glob->prefix_bytes = (uint32_t)bytes;
    glob->prefix = malloc(bytes + 1);
    if (glob->prefix == NULL)
        return -ENOMEM;
    memcpy(glob->prefix, text, bytes);
    return 0;
}

int cg_glob_compile(const char *text, size_t n, struct cg_glob **out) {
    *out = NULL;
    if (n == 0 || n > 4 * (size_t)CG_GLOB_STATES_MAX)
        return -EINVAL;
    if (n == 1 && text[0] == '*') { /* a bare * is everything */
        text = "**";
        n = 2;
    }
    struct parse p = {.tokens = calloc(n, sizeof *p.tokens)};
    struct cg_glob *glob = calloc(1, sizeof *glob);
    int error = p.tokens == NULL || glob == NULL ? -ENOMEM : 0;
    if (error == 0) {
        parse(&p, text, n);
        error = p.count >= CG_GLOB_STATES_MAX ? -EINVAL : build(glob, &p, text, n);
    }
    free(p.tokens);
    if (error != 0)
        cg_glob_free(glob);
    else
        *out = glob;
    return error;
}

void cg_glob_free(struct cg_glob *glob) {
    if (glob == NULL)
        return;
    free(glob->wide);
    free(glob->stay_name); /* the block of all masks */
    free(glob->prefix);
    free(glob);
}

/* The free moves out of skips and stars, added to word `raw` of a state; carries go to the next word. */
struct carry {
    uint64_t shift, skip_one, skip_three, star;
};

static uint64_t close_word(const struct cg_glob *glob, uint32_t word, uint64_t raw, struct carry *carry) {
    raw |= carry->skip_one | carry->skip_three;
    uint64_t skips = raw & glob->skip[word];
    raw |= skips << 1 | skips << 3;
    raw |= carry->star;
    uint64_t stars = raw & glob->star[word];
    raw |= stars << 1;
    carry->skip_one = skips >> 63;
    carry->skip_three = skips >> 61;
    carry->star = stars >> 63;
    return raw;
}

static void start_at(const struct cg_glob *glob, uint64_t *state, uint32_t token) {
    struct carry carry = {0, 0, 0, 0};
    for (uint32_t word = 0; word < glob->words; word++)
        state[word] = close_word(glob, word, token / 64 == word ? (uint64_t)1 << (token % 64) : 0, &carry);
}

static void feed(const struct cg_glob *glob, uint64_t *state, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        uint32_t character;
        at += decode(at, end, &character);
        const uint64_t *advance = glob->advance + (size_t)class_of(glob, character) * glob->words;
        const uint64_t *stay = character == '/' ? glob->stay_slash : glob->stay_name;
        struct carry carry = {0, 0, 0, 0};
        uint64_t live = 0;
        for (uint32_t word = 0; word < glob->words; word++) {
            uint64_t moved = state[word] & advance[word];
            uint64_t raw = moved << 1 | carry.shift | (state[word] & stay[word]);
            carry.shift = moved >> 63;
            state[word] = close_word(glob, word, raw, &carry);
            live |= state[word];
        }
        if (live == 0)
            return;
    }
}

int cg_glob_match(const struct cg_glob *glob, const char *subject, size_t n) {
    if (glob->kind == KIND_EVERYTHING)
        return 1;
    size_t prefix = glob->prefix_bytes;
    if (n < prefix || (prefix > 0 && (subject[prefix - 1] != glob->prefix[prefix - 1] || memcmp(subject, glob->prefix, prefix) != 0)))
        return 0; /* paths differ at their ends more often than at their beginnings */
    if (glob->kind == KIND_EXACT)
        return n == prefix;
    if (glob->kind == KIND_SUBTREE)
        return n == prefix || subject[prefix] == '/';
    uint64_t state[CG_GLOB_WORDS_MAX];
    start_at(glob, state, glob->prefix_tokens);
    feed(glob, state, (const uint8_t *)subject + prefix, (const uint8_t *)subject + n);
    for (uint32_t word = 0; word < glob->words; word++)
        if (state[word] & glob->accept[word])
            return 1;
    return 0;
}

int cg_glob_everything(const struct cg_glob *glob) { return glob->kind == KIND_EVERYTHING; }

size_t cg_glob_words(const struct cg_glob *glob) { return glob->words; }

void cg_glob_start(const struct cg_glob *glob, uint64_t *state) { start_at(glob, state, 0); }

void cg_glob_feed(const struct cg_glob *glob, uint64_t *state, const char *text, size_t n) {
    feed(glob, state, (const uint8_t *)text, (const uint8_t *)text + n);
}

int cg_glob_universal(const struct cg_glob *glob, const uint64_t *state) {
    uint32_t last = glob->states - 2;
    return glob->ends_in_globstar && (state[last / 64] >> (last % 64) & 1);
}
