/* The processes of a VM, one by one, in the host's numbers and in the VM's. */
#ifndef CG_MEMBERS_H
#define CG_MEMBERS_H

#include "supervisor.h"

struct cg_member { pid_t pid, inner, inner_group; bool ours; /* cg_is_ours when it was found */ };

struct cg_members { struct cg_member *list; size_t count, size; };

/* Adds the VM's processes that are not in the list yet. How many were added, or -1 (ENOMEM). A process whose parent ends meanwhile, and which so moves to a part of
 * the tree that was walked already, may be found only the next time. */
int cg_members_add(struct cg_vm *, struct cg_members *);
/* Is every process that the VM has in the list? The VM's /proc lists them by number, whosever children they are: only one made meanwhile can be missing there. */
bool cg_members_complete(struct cg_vm *, const struct cg_members *);
void cg_members_release(struct cg_members *);
/* Init, a leader, or our own code before it becomes a run's first program: none of a guest's business. `parent` is the parent of `pid`. */
bool cg_is_ours(struct cg_vm *, pid_t pid, pid_t parent);
/* The process that a pidfd of ours means (that of its thread): 0, -EBADF for another kind of descriptor, -ESRCH when it has ended. */
int cg_pidfd_process(struct cg_vm *, int fd, struct cg_member *);

#endif
