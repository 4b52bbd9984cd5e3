/* The policy evaluator: loads the policy blob of protocol.h once, then answers from any thread without a lock.
 *
 * The same rules, in the same compiled form, as scopes/rules.py; tests/conformance/test_native.py compares the two.
 */
#ifndef CG_POLICY_H
#define CG_POLICY_H

#include <stddef.h>
#include <stdint.h>

struct cg_policy;

/* 0, -EBADMSG (anything malformed: the whole blob is refused) or -ENOMEM. The blob is copied. */
int cg_policy_load(const uint8_t *blob, size_t n, struct cg_policy **out);
void cg_policy_free(struct cg_policy *policy);

/* 1 allow, 0 deny; *rule (may be NULL) is the user's rule number or CG_RULE_*. The subject is in the scope's subject form
 * (SPEC section 3); for network, letter case and a trailing dot of the host do not matter here, but an address must already
 * be in its one canonical spelling. An unknown scope or operation is denied by CG_RULE_UNSUPPORTED. */
int cg_policy_decide(const struct cg_policy *policy, unsigned scope, unsigned operation, const char *subject,
                     size_t n, int32_t *rule);

/* What the rules that name an address say of "tcp://address:port" (canonical): 1 allow, 0 deny, -1 none of them is about it. */
int cg_policy_names_address(const struct cg_policy *policy, unsigned operation, const char *subject, size_t n, int32_t *rule);

/* 1: allowed whatever the subject, 0: denied whatever the subject, -1: depends on the subject (or may: conservative). */
int cg_policy_constant(const struct cg_policy *policy, unsigned scope, unsigned operation);
/* The same for the subjects that begin with `prefix`. */
int cg_policy_constant_below(const struct cg_policy *policy, unsigned scope, unsigned operation, const char *prefix, size_t n);

/* The no-widening rule of SPEC 3.1 for a rename, link or exchange of the object `from` to the name `to`, both normalised
 * absolute paths. 0 only if no fs operation that is denied on `from` is allowed on `to`, and, when is_directory, the same
 * holds for every name below the two. 1 may be a false alarm, never the other way round. An exchange asks twice. */
int cg_policy_subtree_differs(const struct cg_policy *policy, const char *from, size_t nfrom, const char *to, size_t nto,
                              int is_directory);

#endif
