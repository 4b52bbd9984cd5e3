/* What the handlers of the process scope share: a verdict on one action on one process, or on many. */
#ifndef CG_ACTIONS_H
#define CG_ACTIONS_H

#include "members.h"
#include "supervisor.h"

#define CG_REGISTERS "the target is a register argument, and a number of the VM's own namespace"

/* May the caller do this to the process (or the process of the thread) with this number? Always, if that is itself. A refusal is recorded and answered, a process that
 * is not there answered with ESRCH whatever the policy says. */
bool cg_may_act(struct cg_call *, const struct cg_caller *, const char *action, long number);
/* The number of a leader: its priority, scheduling and limits are the VM's own affair, as those of init are by the filter. */
bool cg_is_leader_number(struct cg_vm *, long number);
/* 1: on whatever process, 0: on none, -1: it depends on which. */
int cg_may_act_on_any(struct cg_call *, const char *action);

/* Which processes a call is about that is about several. */
struct cg_selection { bool everybody; pid_t group; bool itself; /* the caller is among them */ };
/* Do it to each of them that the policy allows it to be done to; the caller comes last. `act` gives 0 or an errno. */
struct cg_outcome { size_t done, refused; int error; /* the last one's that was neither */ };
struct cg_outcome cg_act_on_each(struct cg_call *, const struct cg_caller *, const char *action, struct cg_selection,
                                 int (*act)(struct cg_call *, const struct cg_member *));

#endif
