/* policy.c: any blob is refused or decides by its last matching rule, and the answers about all subjects hold for each. */
#include <errno.h>

#include "fuzz.h"

#include "glob.h"
#include "policy.h"
#include "protocol.h"

const char *const fuzz_words[] = {"/a/**", "/b/*", "*", "**", "/a", "/b", "/x", "tcp://h.:1", "\x01\x00\x00\x00", "\xff\xff\xff\xff", "\xfe\xff\xff\xff", NULL};

int LLVMFuzzerInitialize(int *argc, char ***argv) { (void)argc, (void)argv; return 0; }

static uint8_t *put(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) *to++ = (uint8_t)(value >> (8 * i));
    return to;
}

static uint8_t *put_text(uint8_t *to, const char *text) {
    to = put(to, (uint32_t)strlen(text));
    memcpy(to, text, strlen(text));
    return to + strlen(text);
}

/* An input: two names with a length byte each, then the blob. */
size_t fuzz_seed(unsigned index, uint8_t *to, size_t room) {
    static const char *const globs[][2] = {{"/a/**", "/b/*"}, {"**", "/a/b"}, {"tcp://*:1", "dns://h"}, {"/*/x", "/b/**/x"}};
    if (index >= sizeof globs / sizeof *globs || room < 512) return 0;
    uint8_t *at = to;
    *at++ = 2, memcpy(at, "/a", 2), at += 2;
    *at++ = 4, memcpy(at, "/b/x", 4), at += 4;
    at = put(at, CG_POLICY_MAGIC);
    for (unsigned scope = 0; scope < CG_SCOPES; scope++) {
        at = put(at, index & 1), at = put(at, (uint32_t)CG_RULE_DEFAULT), at = put(at, scope == CG_SCOPE_NETWORK);
        at = put(at, 2);
        at = put(at, 1), at = put(at, 1), at = put(at, 0), at = put(at, 1), at = put_text(at, globs[index][0]), at = put(at, scope == CG_SCOPE_NETWORK);
        at = put(at, 0), at = put(at, 1), at = put(at, 1), at = put(at, 2), at = put_text(at, globs[index][1]), at = put_text(at, "/q"), at = put(at, 0);
    }
    return (size_t)(at - to);
}

/* ---- the oracle: read the blob again for every question ---- */

struct scan { const uint8_t *at; };

static uint32_t next(struct scan *scan) {
    uint32_t value = 0;
    for (int i = 3; i >= 0; i--) value = value * 256 + scan->at[i];
    scan->at += 4;
    return value;
}

/* Network subjects as the scope reads them: lower case, without a dot at the end of the host. */
static size_t folded(const char *text, size_t n, char *to) {
    for (size_t i = 0; i < n; i++) to[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]);
    size_t digits = 0;
    while (digits < n && to[n - 1 - digits] >= '0' && to[n - 1 - digits] <= '9') digits++;
    const size_t port = digits > 0 && digits < n && to[n - 1 - digits] == ':' ? digits + 1 : 0;
    if (n > port && to[n - port - 1] == '.') memmove(to + n - port - 1, to + n - port, port), n--;
    return n;
}

struct verdict { int allow; int32_t rule; };

static struct verdict oracle(const uint8_t *blob, unsigned wanted, unsigned operation, const char *subject, size_t n) {
    struct scan scan = {blob + 4};
    char lower[256];
    for (unsigned scope = 0;; scope++) {
        struct verdict verdict;
        verdict.allow = (int)next(&scan), verdict.rule = (int32_t)next(&scan);
        const uint32_t fold = next(&scan), rules = next(&scan);
        const size_t length = fold ? folded(subject, n, lower) : n;
        for (uint32_t i = 0; i < rules; i++) {
            const uint32_t allow = next(&scan), operations = next(&scan), id = next(&scan), globs = next(&scan);
            int matched = 0;
            for (uint32_t j = 0; j < globs; j++) {
                const uint32_t size = next(&scan);
                struct cg_glob *glob = NULL;
                if (scope == wanted) {
                    FUZZ_CHECK(cg_glob_compile((const char *)scan.at, size, &glob) == 0, "a glob of an accepted blob does not compile");
                    matched |= cg_glob_match(glob, fold ? lower : subject, length);
                    cg_glob_free(glob);
                }
                scan.at += size;
            }
            FUZZ_CHECK(next(&scan) <= globs, "more globs name an address than there are");
            if (matched && operations >> operation & 1) verdict = (struct verdict){(int)allow, (int32_t)id};
        }
        if (scope == wanted) return verdict;
    }
}

static const unsigned operations[CG_SCOPES] = {CG_FS_OPS, 4, 1, 1, 2, 1};

static void check_subject(const struct cg_policy *policy, const uint8_t *blob, const char *subject, size_t n, unsigned only) {
    for (unsigned scope = 0; scope < CG_SCOPES + 1; scope++)
        for (unsigned operation = 0; operation < (scope < CG_SCOPES ? operations[scope] : 0) + 1; operation++) {
            int32_t rule = -99;
            const int allow = cg_policy_decide(policy, scope, operation, subject, n, &rule);
            const int constant = cg_policy_constant(policy, scope, operation);
            FUZZ_CHECK(constant < 0 || constant == allow, "constant %d, yet it decides %d", constant, allow);
            if (scope == CG_SCOPES || operation == operations[scope]) {
                FUZZ_CHECK(!allow && rule == CG_RULE_UNSUPPORTED, "an unknown operation is decided by rule %d", rule);
            } else if (operation == only % operations[scope]) {
                const struct verdict expected = oracle(blob, scope, operation, subject, n);
                FUZZ_CHECK(allow == expected.allow && rule == expected.rule, "scope %u operation %u: %d by %d, not %d by %d", scope, operation, allow, rule,
                           expected.allow, expected.rule);
            }
        }
}

/* What "not different" promises: nothing denied under the first name is allowed under the second, here and below. */
static void check_widening(const struct cg_policy *policy, const char *from, size_t nfrom, const char *to, size_t nto) {
    static const char *const below[] = {"", "/x", "/x/y", "/b", "/a/b"};
    if (cg_policy_subtree_differs(policy, from, nfrom, to, nto, 1)) return;
    FUZZ_CHECK(!cg_policy_subtree_differs(policy, from, nfrom, to, nto, 0), "a file differs where a directory does not");
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
        for (unsigned operation = 0; operation < CG_FS_OPS; operation++) {
            char one[300], two[300];
            const size_t n = (size_t)snprintf(one, sizeof one, "%.*s%s", (int)nfrom, from, below[i]);
            const size_t m = (size_t)snprintf(two, sizeof two, "%.*s%s", (int)nto, to, below[i]);
            const int gains = !cg_policy_decide(policy, CG_SCOPE_FS, operation, one, n, NULL) && cg_policy_decide(policy, CG_SCOPE_FS, operation, two, m, NULL);
            FUZZ_CHECK(!gains, "operation %u is denied on %s and allowed on %s", operation, one, two);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    size_t n, m, length;
    uint8_t *one = fuzz_piece(&in, fuzz_u8(&in), &n), *two = fuzz_piece(&in, fuzz_u8(&in), &m), *blob = fuzz_piece(&in, in.left, &length);
    struct cg_policy *policy = NULL;
    const int error = cg_policy_load(blob, length, &policy);
    FUZZ_CHECK(error == 0 || error == -EBADMSG, "loading gives %d", error);
    FUZZ_CHECK((error == 0) == (policy != NULL), "error %d and policy %p", error, (void *)policy);
    if (policy) {
        struct cg_policy *other;
        FUZZ_CHECK(cg_policy_load(blob, length - 1, &other) == -EBADMSG && !other, "a blob cut short is accepted");
        uint8_t *longer = calloc(1, length + 1);
        if (!longer) abort();
        memcpy(longer, blob, length);
        FUZZ_CHECK(cg_policy_load(longer, length + 1, &other) == -EBADMSG && !other, "a blob with a byte left over is accepted");
        free(longer);
        check_subject(policy, blob, (const char *)one, n, (unsigned)m);
        check_subject(policy, blob, (const char *)two, m, (unsigned)n);
        /* The widening rule is about normalised absolute paths. */
        if (n > 1 && m > 1 && one[0] == '/' && two[0] == '/' && one[n - 1] != '/' && two[m - 1] != '/' && !memchr(one, 0, n) && !memchr(two, 0, m))
            check_widening(policy, (const char *)one, n, (const char *)two, m);
        cg_policy_free(policy);
    }
    free(one), free(two), free(blob);
    return 0;
}
