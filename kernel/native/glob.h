/* The glob matcher, equal to scopes/glob.py: compiled once, matched in linear time without allocation or recursion.
 *
 *   ?       one character other than '/'          **      any run of characters
 *   *       any run of characters other than '/'  /xx/ with xx = "**"  also a single '/'
 *   *       alone: everything                     X/xx   with xx = "**", at the end: also X itself
 *
 * Anchored at both ends; no classes, braces or escapes. A character is one UTF-8 encoded code point; a byte that is not
 * part of a well-formed sequence is a character of its own, which equals only the same byte (so Python, which decodes with
 * surrogateescape, sees the same characters).
 */
#ifndef CG_GLOB_H
#define CG_GLOB_H

#include <stddef.h>
#include <stdint.h>

enum { CG_GLOB_STATES_MAX = 4224, CG_GLOB_WORDS_MAX = 66 };

struct cg_glob;

/* 0, -EINVAL (empty, or more than CG_GLOB_STATES_MAX states: about as many characters) or -ENOMEM. */
int cg_glob_compile(const char *text, size_t n, struct cg_glob **out);
void cg_glob_free(struct cg_glob *glob);
/* 1 or 0. */
int cg_glob_match(const struct cg_glob *glob, const char *subject, size_t n);
/* 1: matches every subject whatever it is. */
int cg_glob_everything(const struct cg_glob *glob);

/* The automaton itself, for questions about all subjects that begin alike (policy.c). A state is a bit set of
 * cg_glob_words() words, at most CG_GLOB_WORDS_MAX; all zero means that no continuation can match. */
size_t cg_glob_words(const struct cg_glob *glob);
void cg_glob_start(const struct cg_glob *glob, uint64_t *state);
/* Consumes text. Texts may be fed in pieces when each piece after the first begins with an ASCII character. */
void cg_glob_feed(const struct cg_glob *glob, uint64_t *state, const char *text, size_t n);
/* 1: whatever follows, the subject matches. */
int cg_glob_universal(const struct cg_glob *glob, const uint64_t *state);

#endif
