/* The policy evaluator; see policy.h. */
#include "policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "glob.h"
#include "protocol.h"

struct rule {
    int allow;
    uint32_t operations;
    int32_t id;
    uint32_t glob_count, naming; /* naming: of the first so many, each names an address */
    struct cg_glob **globs;
};

struct scope {
    int default_allow;
    int32_t default_rule;
    int fold_case;
    uint32_t rule_count;
    struct rule *rules;
    int constant[CG_FS_OPS]; /* by operation: cg_policy_constant, found once (fs has the most operations) */
};

struct cg_policy {
    struct scope scopes[CG_SCOPES];
};

/* "tcp://", a name of 253 characters and a port are far below this; scopes/network.py has the same number. */
enum { NETWORK_SUBJECT_MAX = 1024 };

static const unsigned operation_counts[CG_SCOPES] = {CG_FS_OPS, 4, 1, 1, 2, 1};

static int read_boolean(struct cg_reader *reader) {
    uint32_t value = cg_read_u32(reader);
    if (value > 1)
        reader->failed = 1;
    return value == 1;
}

static int load_rule(struct cg_reader *reader, unsigned scope, struct rule *rule) {
    rule->allow = read_boolean(reader);
    rule->operations = cg_read_u32(reader);
    rule->id = cg_read_i32(reader);
    uint32_t count = cg_read_count(reader, 4);
    if (reader->failed || rule->operations == 0 || rule->operations >> operation_counts[scope] != 0 || count == 0)
        return -EBADMSG;
    if (rule->id < CG_RULE_HOST_SERVICE || rule->id == CG_RULE_DEFAULT || rule->id == CG_RULE_MODE)
        return -EBADMSG;
    rule->globs = calloc(count, sizeof(struct cg_glob *));
    if (rule->globs == NULL)
        return -ENOMEM;
    for (; rule->glob_count < count; rule->glob_count++) {
        uint32_t n;
        const uint8_t *text = cg_read_bytes(reader, &n);
        if (reader->failed || memchr(text, 0, n) != NULL)
            return -EBADMSG;
        int error = cg_glob_compile((const char *)text, n, &rule->globs[rule->glob_count]);
        if (error != 0)
            return error == -EINVAL ? -EBADMSG : error;
    }
    rule->naming = cg_read_u32(reader);
    return reader->failed || rule->naming > count ? -EBADMSG : 0;
}

static int load_scope(struct cg_reader *reader, unsigned number, struct scope *scope) {
    scope->default_allow = read_boolean(reader);
    scope->default_rule = cg_read_i32(reader);
    scope->fold_case = read_boolean(reader);
    uint32_t count = cg_read_count(reader, 20);
    if (reader->failed || (scope->default_rule != CG_RULE_DEFAULT && scope->default_rule != CG_RULE_MODE))
        return -EBADMSG;
    scope->rules = calloc(count > 0 ? count : 1, sizeof *scope->rules);
    if (scope->rules == NULL)
        return -ENOMEM;
    while (scope->rule_count < count) {
        int error = load_rule(reader, number, &scope->rules[scope->rule_count++]);
        if (error != 0)
            return error;
    }
    return 0;
}

static int matches_everything(const struct rule *rule) {
    for (uint32_t i = 0; i < rule->glob_count; i++)
        if (cg_glob_everything(rule->globs[i]))
            return 1;
    return 0;
}

static int find_constant(const struct scope *scope, unsigned operation) {
    int some_allow = 0, some_deny = 0, bottom = scope->default_allow;
    for (uint32_t i = scope->rule_count; i-- > 0;) {
        const struct rule *rule = &scope->rules[i];
        if (!(rule->operations >> operation & 1))
            continue;
        if (matches_everything(rule)) {
            bottom = rule->allow;
            break;
        }
        some_allow |= rule->allow;
        some_deny |= !rule->allow;
    }
    some_allow |= bottom;
    some_deny |= !bottom;
    return some_allow && some_deny ? -1 : some_allow;
}

int cg_policy_load(const uint8_t *blob, size_t n, struct cg_policy **out) {
    *out = NULL;
    struct cg_policy *policy = calloc(1, sizeof *policy);
    if (policy == NULL)
        return -ENOMEM;
    struct cg_reader reader;
    cg_reader_init(&reader, blob, n);
    int error = cg_read_u32(&reader) == CG_POLICY_MAGIC ? 0 : -EBADMSG;
    for (unsigned scope = 0; scope < CG_SCOPES && error == 0; scope++)
        error = load_scope(&reader, scope, &policy->scopes[scope]);
    if (error == 0 && !cg_reader_done(&reader))
        error = -EBADMSG;
    for (unsigned scope = 0; scope < CG_SCOPES && error == 0; scope++)
        for (unsigned operation = 0; operation < operation_counts[scope]; operation++)
            policy->scopes[scope].constant[operation] = find_constant(&policy->scopes[scope], operation);
    if (error != 0)
        cg_policy_free(policy);
    else
        *out = policy;
    return error;
}

void cg_policy_free(struct cg_policy *policy) {
    if (policy == NULL)
        return;
    for (unsigned number = 0; number < CG_SCOPES; number++) {
        struct scope *scope = &policy->scopes[number];
        for (uint32_t i = 0; i < scope->rule_count; i++) {
            for (uint32_t j = 0; j < scope->rules[i].glob_count; j++)
                cg_glob_free(scope->rules[i].globs[j]);
            free(scope->rules[i].globs);
        }
        free(scope->rules);
    }
    free(policy);
}

static int some_glob_matches(const struct rule *rule, uint32_t count, unsigned operation, const char *subject, size_t n) {
    if (!(rule->operations >> operation & 1))
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (cg_glob_match(rule->globs[i], subject, n))
            return 1;
    return 0;
}

/* Lower-cases ASCII and drops one dot at the end of the host: before the end or before the ":port". */
static size_t fold_network_subject(const char *subject, size_t n, char *folded) {
    for (size_t i = 0; i < n; i++)
        folded[i] = (char)(subject[i] >= 'A' && subject[i] <= 'Z' ? subject[i] + ('a' - 'A') : subject[i]);
    size_t host_end = n;
    while (host_end > 0 && folded[host_end - 1] >= '0' && folded[host_end - 1] <= '9')
        host_end--;
    host_end = host_end > 0 && host_end < n && folded[host_end - 1] == ':' ? host_end - 1 : n;
    if (host_end > 0 && folded[host_end - 1] == '.') {
        memmove(folded + host_end - 1, folded + host_end, n - host_end);
        n--;
    }
    return n;
}

static int answer(int allow, int32_t id, int32_t *rule) {
    if (rule != NULL)
        *rule = id;
    return allow;
}

int cg_policy_decide(const struct cg_policy *policy, unsigned scope_number, unsigned operation, const char *subject,
                     size_t n, int32_t *rule) {
    if (scope_number >= CG_SCOPES || operation >= operation_counts[scope_number])
        return answer(0, CG_RULE_UNSUPPORTED, rule);
    const struct scope *scope = &policy->scopes[scope_number];
    char folded[NETWORK_SUBJECT_MAX];
    if (scope->fold_case && scope->rule_count > 0) {
        if (n > sizeof folded) /* no name or address is that long, so no rule is about it */
            return answer(0, scope->default_rule, rule);
        n = fold_network_subject(subject, n, folded);
        subject = folded;
    }
    for (uint32_t i = scope->rule_count; i-- > 0;)
        if (some_glob_matches(&scope->rules[i], scope->rules[i].glob_count, operation, subject, n))
            return answer(scope->rules[i].allow, scope->rules[i].id, rule);
    return answer(scope->default_allow, scope->default_rule, rule);
}

int cg_policy_names_address(const struct cg_policy *policy, unsigned operation, const char *subject, size_t n, int32_t *rule) {
    const struct scope *scope = &policy->scopes[CG_SCOPE_NETWORK];
    for (uint32_t i = scope->rule_count; i-- > 0;)
        if (some_glob_matches(&scope->rules[i], scope->rules[i].naming, operation, subject, n))
            return answer(scope->rules[i].allow, scope->rules[i].id, rule);
    return -1;
}

int cg_policy_constant(const struct cg_policy *policy, unsigned scope_number, unsigned operation) {
    if (scope_number >= CG_SCOPES || operation >= operation_counts[scope_number])
        return 0;
    return policy->scopes[scope_number].constant[operation];
}

/* What a rule says of the subjects that begin with a prefix: "may" match one, "must" match all. */
static void match_below(const struct rule *rule, const char *prefix, size_t n, int *may, int *must) {
    uint64_t state[CG_GLOB_WORDS_MAX];
    *may = *must = 0;
    for (uint32_t i = 0; i < rule->glob_count; i++) {
        cg_glob_start(rule->globs[i], state);
        cg_glob_feed(rule->globs[i], state, prefix, n);
        for (size_t word = 0; word < cg_glob_words(rule->globs[i]); word++)
            *may |= state[word] != 0;
        *must |= cg_glob_universal(rule->globs[i], state);
    }
}

int cg_policy_constant_below(const struct cg_policy *policy, unsigned scope_number, unsigned operation, const char *prefix, size_t n) {
    if (scope_number >= CG_SCOPES || operation >= operation_counts[scope_number])
        return 0;
    const struct scope *scope = &policy->scopes[scope_number];
    int some[2] = {0, 0}, bottom = scope->default_allow;
    for (uint32_t i = scope->rule_count; i-- > 0;) {
        const struct rule *rule = &scope->rules[i];
        int may, must;
        if (!(rule->operations >> operation & 1))
            continue;
        match_below(rule, prefix, n, &may, &must);
        if (must) {
            bottom = rule->allow;
            break;
        }
        if (may)
            some[rule->allow] = 1;
    }
    return some[!bottom] ? -1 : bottom;
}

/* How one rule sees what lies below two paths A and B. "may" and "must" are about any one name below; a_in_b says that
 * whenever the rule matches A/x it matches B/x. */
struct view {
    int a_may, a_must, b_may, b_must, a_in_b, b_in_a;
};

static void feed_directory(const struct cg_glob *glob, uint64_t *state, const char *path, size_t n) {
    cg_glob_start(glob, state);
    cg_glob_feed(glob, state, path, n);
    if (n == 0 || path[n - 1] != '/') /* only the root ends in one */
        cg_glob_feed(glob, state, "/", 1);
}

static struct view view_of(const struct rule *rule, const char *a, size_t na, const char *b, size_t nb) {
    struct view view = {0, 0, 0, 0, 1, 1};
    for (uint32_t i = 0; i < rule->glob_count; i++) {
        const struct cg_glob *glob = rule->globs[i];
        uint64_t at_a[CG_GLOB_WORDS_MAX], at_b[CG_GLOB_WORDS_MAX];
        feed_directory(glob, at_a, a, na);
        feed_directory(glob, at_b, b, nb);
        for (size_t word = 0; word < cg_glob_words(glob); word++) {
            view.a_may |= at_a[word] != 0;
            view.b_may |= at_b[word] != 0;
            /* The states are a set of places to go on from: from more places at least as much matches. */
            view.a_in_b &= (at_a[word] & ~at_b[word]) == 0;
            view.b_in_a &= (at_b[word] & ~at_a[word]) == 0;
        }
        view.a_must |= cg_glob_universal(glob, at_a);
        view.b_must |= cg_glob_universal(glob, at_b);
    }
    return view;
}

/* What may be true, of some one name x below, once the rules from the last down to some rule have been applied. Cases that
 * can no longer become a gain (A/x allowed, or B/x denied, or both decided by one rule) are dropped. */
enum { OPEN = 1 /* neither decided */, B_ALLOWED = 2 /* and A open */, A_DENIED = 4 /* and B open */, GAIN = 8 };

static unsigned apply_rule(unsigned cases, int allow, const struct view *view) {
    unsigned next = cases & GAIN;
    if (cases & OPEN) {
        if (!view->a_must && !view->b_must)
            next |= OPEN;
        if (!allow && view->a_may && !view->b_must && !view->a_in_b)
            next |= A_DENIED;
        if (allow && view->b_may && !view->a_must && !view->b_in_a)
            next |= B_ALLOWED;
    }
    if (cases & B_ALLOWED)
        next |= (!view->a_must ? B_ALLOWED : 0u) | (!allow && view->a_may ? GAIN : 0u);
    if (cases & A_DENIED)
        next |= (!view->b_must ? A_DENIED : 0u) | (allow && view->b_may ? GAIN : 0u);
    return next;
}

static int below_may_gain(const struct scope *fs, const char *from, size_t nfrom, const char *to, size_t nto) {
    unsigned cases[CG_FS_OPS];
    for (unsigned operation = 0; operation < CG_FS_OPS; operation++)
        cases[operation] = OPEN;
    for (uint32_t i = fs->rule_count; i-- > 0;) {
        const struct rule *rule = &fs->rules[i];
        struct view view = view_of(rule, from, nfrom, to, nto);
        for (unsigned operation = 0; operation < CG_FS_OPS; operation++)
            if (rule->operations >> operation & 1)
                cases[operation] = apply_rule(cases[operation], rule->allow, &view);
    }
    for (unsigned operation = 0; operation < CG_FS_OPS; operation++)
        if (cases[operation] & (GAIN | (fs->default_allow ? A_DENIED : B_ALLOWED)))
            return 1;
    return 0;
}

int cg_policy_subtree_differs(const struct cg_policy *policy, const char *from, size_t nfrom, const char *to, size_t nto,
                              int is_directory) {
    const struct scope *fs = &policy->scopes[CG_SCOPE_FS];
    if (fs->rule_count == 0)
        return 0;
    for (unsigned operation = 0; operation < CG_FS_OPS; operation++)
        if (!cg_policy_decide(policy, CG_SCOPE_FS, operation, from, nfrom, NULL) &&
            cg_policy_decide(policy, CG_SCOPE_FS, operation, to, nto, NULL))
            return 1;
    return is_directory && below_may_gain(fs, from, nfrom, to, nto);
}
