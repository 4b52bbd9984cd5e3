/* Calls that only the caller itself can make, run by the kernel with the caller's own arguments and proved afterwards. */
#ifndef CG_TRACE_H
#define CG_TRACE_H

#include "supervisor.h"

/* What the caller stopped at, before it runs another instruction of its own. */
enum cg_stop { CG_STOP_EXEC,    /* a new image, before its first instruction */
               CG_STOP_RETURN }; /* the call is over (an exec: it failed) */

/* Seize the calling thread for this one call, let it run, and ask `approve` at the stop; a caller that is not approved is killed there.
 * Answers the call: EACCES, and nothing runs, where the caller cannot be seized. */
void cg_run_proved(struct cg_call *call, const char *reason, bool (*approve)(struct cg_call *, pid_t, enum cg_stop, const void *), const void *context);

#endif
