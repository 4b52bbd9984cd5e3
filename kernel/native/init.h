/* What init and the leaders say to the supervisor, and it to them. Both ends are this program: plain structs. */
#ifndef CG_INIT_H
#define CG_INIT_H

#include "supervisor.h"

#define CG_START_MAX 65536u /* longer ones travel in a memfd */

/* START: this, then program NUL, arguments each NUL, environment each NUL. */
struct cg_start { uint32_t flags, argc; };

enum { CG_LEADER_HELLO = 1, /* from the leader; pid = the first program, in the VM's numbers */
       CG_LEADER_FIRST = 2, /* from the first program, before exec, with CG_LAUNCH_REGISTER: it waits for one byte */
       CG_LEADER_FAILED = 3, /* error: it could not become the program */
       CG_LEADER_STATUS = 4 /* the first program ended */ };

struct cg_leader_event { int32_t kind, pid, error; int status; struct rusage usage; };

#endif
