/* Calls that only the caller itself can make, run by the kernel with the caller's own arguments and proved afterwards. */
#ifndef CG_TRACE_H
#define CG_TRACE_H

#include "supervisor.h"

/* What the caller stopped at, before it runs another instruction of its own. */
enum cg_stop { CG_STOP_EXEC,    /* a new image, before its first instruction */
               CG_STOP_RETURN }; /* the call is over (an exec: it failed) */

/* Seize the calling thread for this one call, let it run, and ask `approve` at the stop; a caller that is not approved is killed there.
 * 0 with the call answered; -1, nothing answered and nothing run, where the caller cannot be seized: somebody else traces it. */
int cg_run_proved(struct cg_call *call, const char *reason, bool (*approve)(struct cg_call *, pid_t, enum cg_stop, const void *), const void *context);

#define CG_TRACED "another process traces the caller, so what the call does cannot be proved"

/* The stack pointer of a tracee at a stop, 0 or -1 (gone, or a program of another ABI). */
int cg_stopped_stack(pid_t pid, uint64_t *pointer);
int cg_move_stopped_stack(pid_t pid, uint64_t pointer);

#endif
