/* What an exec passes on as environment, judged name by name (SPEC 3.5). */
#ifndef CG_ENV_H
#define CG_ENV_H

#include "supervisor.h"

/* One "NAME=VALUE" that the operator gave a run, of a name that guests may not write: no exec may change it, and none loses it. */
struct cg_env_fixed { const char *text; size_t length; bool seen; };

/* The rules of one exec. */
struct cg_env_rules {
    bool judged; /* false: every name may be read and written, and nothing below is used */
    bool writes; /* not every name may be written */
    char *block; /* what `fixed` points into */
    struct cg_env_fixed *fixed;
    size_t count;
};

/* Of an environment ("NAME=VALUE" NUL ...) the entries whose names may not be written, in a block of their own; NULL when there are none. ENOMEM by errno. */
char *cg_env_fixed_part(const struct cg_vm *, const char *text, size_t length, size_t *kept);

/* 0, or -1 with the call answered. The rules are released by cg_env_release in either case. */
int cg_env_read_rules(struct cg_call *, struct cg_env_rules *);
void cg_env_release(struct cg_env_rules *);
/* The environment that the caller means to pass on: EACCES for a name added or changed that may not be. Only so that it fails as an exec should; what counts is
 * cg_env_settle. 0, or -1 with the call answered. */
int cg_env_judge(struct cg_call *, uint64_t envp, struct cg_env_rules *);
/* At the exec event of `pid`: take out what may not be read, put back what was left out and may not be. False: something else than was judged; to be killed. */
bool cg_env_settle(struct cg_call *, pid_t pid, struct cg_env_rules *);

#endif
