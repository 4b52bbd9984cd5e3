/* The supervisor's own picture of one VM: what its files share.
 *
 *   main.c      start, control loop            launch.c   the launch blob, becoming an id, making the namespaces
 *   root.c      the private root (inside)      init.c     pid 1 and the leaders (inside)
 *   control.c   messages from the host         runs.c     programs the host started, and their ends
 *   notify.c    worker threads, answers        memory.c   guest memory and what /proc says of a caller
 *   resolve.c   paths on pinned descriptors    denial.c   refusals and their records
 *   trace.c     calls proved by ptrace             image.c    what a program file is
 *   env.c       the environment at an exec         members.c  the VM's processes, one by one
 *   watch.c     limits in sum: time and memory of whole runs        signals.c  to first programs, groups and leaders
 *   egress.c    where an internet address leads  lookups.c  who asked the VM's resolver
 *   network.h   with network_address.c, local_address.c, socket_moving.c, socket_peers.c, socket_readers.c: what the network handlers share
 *   fs_target.c path arguments       calls_*.c  the handlers; syscall_table.h (generated) says which number goes where
 *
 * Lock order: names, handing_over, runs_lock. None is held across a call that can block on a guest.
 */
#ifndef CG_SUPERVISOR_H
#define CG_SUPERVISOR_H

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "bytes.h"
#include "policy.h"
#include "protocol.h"
#include "resolve.h"

#define CG_INIT_SOCKET 5      /* init's end of its socket to the supervisor, in init */
#define CG_RUNS_MAX 1024      /* programs of the host alive at once in one VM */
#define CG_WORKERS_MAX 128    /* calls in flight; a VM that blocks them all blocks only itself */
#define CG_LIMITS_MAX 16
#define CG_LISTENERS_MAX 8
#define CG_FIRST_UMASK 022
#define CG_DENIALS_PER_RUN 10000u /* records sent; the rest are counted */

struct cg_limit { unsigned resource; struct rlimit value; };

/* A socket that the host serves inside the VM: made by init, whose namespaces it belongs to, and handed to the host with READY. */
struct cg_listener { int type, fd; socklen_t length; struct sockaddr_storage address; };

/* One set-up step; the strings point into the launch blob and end in NUL (copied by launch.c). */
struct cg_step { uint32_t kind, mode, flags; const char *destination; const uint8_t *source; size_t source_length; int tree; char *staged; };

struct cg_launch {
    uint32_t flags, host_pid, guest_uid, guest_gid;
    char hostname[65];
    uint64_t disk_bytes, disk_inodes;
    struct cg_step *steps;
    size_t step_count;
    struct cg_limit limits[CG_LIMITS_MAX];
    size_t limit_count;
    struct cg_listener listeners[CG_LISTENERS_MAX];
    size_t listener_count;
    uint16_t *host_ports;
    uint32_t host_port_count;
    const uint8_t *filter;
    size_t filter_length;
    struct cg_policy *policy;
};

struct cg_run {
    bool used, exec_failed, ended, killing; /* ended: the first program's status is known; killing: the host wants all of it gone */
    bool seen_ended;     /* by a sweep */
    bool lost;           /* its leader was killed: it ends when no stray lives */
    bool held;           /* its leader is stopped while what is below it is killed */
    bool over;           /* the leader is gone; only the host's reading it is awaited */
    uint32_t number;
    int events;          /* to the host */
    int leader_socket;   /* to the leader; end of file = leader gone */
    pid_t leader, first; /* as the supervisor sees them; 0 = not known (yet; the first only with CG_LAUNCH_REGISTER) */
    pid_t lost_leader;   /* one that was killed, until the run is over */
    pid_t inner_first;   /* the first program, in the VM's numbers */
    atomic_int may_exec, may_setsid; /* 1: `first` is still ours, and makes this one call unjudged */
    int status;
    struct rusage usage;
    uint64_t began_ms, cpu_ms; /* watch.c */
    int64_t unseen_cpu_ms;     /* used in the VM while this run ran, by processes gone before they were looked at */
    pid_t inner_leader;
    uint32_t exceeded; /* bits as CG_EVENT_EXITED has them */
    uint64_t early_first, early_group; /* signals (bit n - 1 = signal n) for a first program that is not known yet */
    uint64_t notified_before;
    uint32_t sent_denials;
    uint64_t dropped_denials;
    char *fixed;         /* of its environment what no exec may change (env.c) */
    size_t fixed_length;
};

struct cg_worker;
struct cg_denial;

/* Which name an address stands for inside the VM, and what it leads to: egress.c. The lock is held for a look-up or a change only. */
struct cg_name;
/* Who last asked the VM's resolver from which port: lookups.c. */
#define CG_LOOKUPS_MAX 256
struct cg_lookup { int protocol; uint16_t port; pid_t tid; };
struct cg_name_table { pthread_rwlock_t lock; struct cg_name **slots; size_t size, used; };

struct cg_vm {
    struct cg_launch launch;
    int control, init_socket, init_pidfd, host_pidfd, listener, wake; /* wake: eventfd, a worker is about to block */
    struct cg_root root;
    pid_t init;
    uid_t uid; /* of guests, as the host sees them */
    gid_t gid;
    uint32_t features;
    size_t notif_size, response_size;
    int user_namespace, network_namespace; /* descriptors of the VM's */
    uint64_t network; /* the cookie of the VM's network namespace (SO_NETNS_COOKIE) */
    struct cg_name_table name_table;
    atomic_int spare_sockets[2]; /* TCP over IPv4 and IPv6, outside: socket_moving.c */
    pthread_mutex_t lookups_lock; /* a leaf, as name_table.lock is */
    struct cg_lookup lookups[CG_LOOKUPS_MAX];
    size_t next_lookup;
    pthread_mutex_t runs_lock;
    pthread_rwlock_t names; /* exclusive: a rename, or what else needs names to stand still; shared: every other call that makes, removes or looks one up */
    struct cg_run runs[CG_RUNS_MAX];
    uint32_t next_run;
    bool strays; /* a leader was killed: what it left is now a child of init */
    struct { uint64_t wall_ms, cpu_ms, memory; int cpu_clock; uint64_t next_ms, clock_ms, seen_ms; uint32_t runs_before, alive_before; bool compared; } watch; /* watch.c; 0: no such limit */
    pthread_mutex_t workers_lock; /* workers, worker_count */
    struct cg_worker *workers[CG_WORKERS_MAX];
    int worker_count;
    sem_t receivers; /* the roles that are free */
    atomic_int waiting_workers, receiving_workers, blocked_workers; /* waiting: for such a role; receiving: in the call that does it */
    atomic_bool second_started;
    pthread_rwlock_t handing_over; /* shared: while a descriptor is the caller's and ours */
    atomic_uint_least64_t notified, denials, dropped;
};

/* ---- launch.c ---- */
/* A failure of the launch: which step, which errno. Sent to the host, then the supervisor exits. */
struct cg_failure { char step[64]; int error; char detail[256]; };
int cg_launch_read(struct cg_vm *vm, struct cg_failure *why);
int cg_launch_become(struct cg_vm *vm, struct cg_failure *why);
int cg_launch_start_init(struct cg_vm *vm, struct cg_failure *why);
int cg_fail(struct cg_failure *why, const char *step, int error, const char *detail); /* returns -1 */

/* ---- root.c, init.c: run inside the new namespaces ---- */
int cg_root_build(struct cg_vm *vm, struct cg_failure *why);
int cg_root_stage_operator_trees(struct cg_vm *vm, struct cg_failure *why);
_Noreturn void cg_init_main(struct cg_vm *vm, int socket);

/* ---- control.c ---- */
int cg_control_receive(struct cg_vm *vm); /* one message; -1 = the host is gone */
void cg_reply(struct cg_vm *vm, uint32_t request, int error, uint64_t value, const void *data, size_t length, int fd,
              const struct cg_denial *denial);

/* ---- runs.c ---- */
int cg_run_start(struct cg_vm *vm, uint32_t request, struct cg_reader *payload, uint32_t flags, const int fds[4]);
void cg_run_leader_event(struct cg_vm *vm, struct cg_run *run);
bool cg_runs_sweep(struct cg_vm *vm); /* kill what outlived its run's first program; true while something is left */
struct cg_run *cg_run_find(struct cg_vm *vm, uint32_t number);
/* The number of the run whose program a process is, or 0. Not certain: a run whose leader has not said hello yet may be it. */
uint32_t cg_run_of(struct cg_vm *vm, pid_t tid, bool *certain);
/* True once per run, for the call that our own code makes in the first program's process before it becomes the program. */
bool cg_take_exec(struct cg_vm *vm, pid_t tid);
bool cg_take_setsid(struct cg_vm *vm, pid_t tid);

/* ---- signals.c ---- */
int cg_run_signal(struct cg_vm *vm, uint32_t number, int signal, uint32_t whom);
void cg_run_send_early(struct cg_vm *vm, struct cg_run *run); /* what came before its first program was known */
void cg_runs_continue_leaders(struct cg_vm *vm);              /* one of them was stopped by a guest */
/* Only if `pid` is still the child of `parent`: by pidfd, so that a recycled number is never hit. */
void cg_signal_child(struct cg_vm *vm, pid_t parent, pid_t pid, int signal);
/* "12 13 14 ": the children of a process, as the kernel lists them; their text's length. */
ssize_t cg_children_of(struct cg_vm *vm, pid_t parent, char *text, size_t size);

/* ---- watch.c ---- */
void cg_watch_prepare(struct cg_vm *vm);   /* takes its limits out of the launch's */
int cg_watch_wait(const struct cg_vm *vm); /* milliseconds until the next look is due; -1: none is */
void cg_watch_look(struct cg_vm *vm);      /* has runs that are over a limit killed */
uint64_t cg_watch_now(void);               /* CLOCK_MONOTONIC in milliseconds */

/* ---- notify.c ---- */
struct cg_call {
    struct cg_vm *vm;
    struct cg_worker *worker;
    uint64_t id;
    pid_t tid;       /* of the caller, as the supervisor sees it; 0 for vm.fs */
    int nr;
    uint64_t args[6];
    pid_t pinned_tid; /* whose pidfd `pinned` is; 0: nobody's */
    int pinned;
    bool answered;
    bool kept;       /* an answer is sent once the handler has returned */
    bool unchecked;  /* vm.fs.unchecked: the operator's own words */
    bool tentative;  /* an error or a refusal is neither answered nor recorded: the caller will ask again */
    int error;       /* the kept answer; for vm.fs the result itself */
    int64_t value;
    int fd;
    struct cg_denial *denial; /* vm.fs: where to put the refusal instead of sending it */
};

int cg_notify_start(struct cg_vm *vm);
void cg_notify_tick(struct cg_vm *vm);       /* free workers whose caller died */
void cg_answer_error(struct cg_call *, int error);
void cg_answer_value(struct cg_call *, int64_t value);
void cg_send_answer(struct cg_call *); /* at once, where what the handler has left to do is nothing that the caller could tell */
void cg_answer_fd(struct cg_call *, int fd, bool close_on_exec); /* takes the descriptor */
/* The same for a regular file or a directory, with one wake-up of the caller instead of two. */
void cg_answer_file(struct cg_call *, int fd, bool close_on_exec);
void cg_await_handed_over(struct cg_call *); /* until no file that a caller was given so is held by us */
/* Let the kernel run the call with the caller's own arguments. Only where it cannot matter what they are changed to meanwhile: `reason` says why. */
void cg_answer_continue(struct cg_call *, const char *reason);
bool cg_still_waiting(struct cg_call *);     /* the caller is alive and in this very call */
void cg_block_begin(struct cg_call *);       /* around a system call that may block: the caller's death interrupts it */
void cg_block_end(struct cg_call *);
void cg_let_others_receive(struct cg_call *); /* before waiting for the caller itself, whose death ends the wait */

/* ---- memory.c ---- */
/* All return 0 or a negative errno (EFAULT when the guest's pointer is bad, ESRCH when it is gone). */
int cg_read_memory(struct cg_call *, uint64_t address, void *to, size_t length);
/* A structure that later kernels may make longer: of any size from `known` on, as long as what is not known here is zero (openat2(2)). */
int cg_read_structure(struct cg_call *, uint64_t address, uint64_t size, void *to, size_t known);
int cg_write_memory(struct cg_call *, uint64_t address, const void *from, size_t length);
int cg_read_string(struct cg_call *, uint64_t address, char *to, size_t size); /* ENAMETOOLONG when no NUL in size */
/* Descriptor pinned (O_PATH) or duplicated from the caller's table; or a negative errno. */
int cg_pin_descriptor(struct cg_call *, int number);
int cg_take_descriptor(struct cg_call *, int number);
void cg_unpin_caller(struct cg_call *); /* what cg_take_descriptor keeps for the next call */
int cg_pin_cwd(struct cg_call *);
struct cg_caller { bool zombie; pid_t group, inner_group, tgid, ppid, inner_tgid, inner_tid; mode_t umask; };
int cg_caller_of(struct cg_vm *vm, pid_t tid, struct cg_caller *out);
long cg_process_of(struct cg_vm *vm, long number); /* numbers of the VM's own namespace */

/* ---- denial.c ---- */
struct cg_denial {
    uint32_t scope, operation;
    int32_t rule;
    uint32_t pid;
    uint64_t time;
    char subject[PATH_MAX + 64];
    char requested[PATH_MAX + 64];
    char program[256];
    char reason[96];
    size_t subject_length, requested_length;
};
void cg_denial_write(struct cg_writer *, const struct cg_denial *);
/* Judge, and on a refusal record it. True = allowed. */
bool cg_judge(struct cg_call *, enum cg_scope scope, unsigned operation, const char *subject, size_t length, const char *requested);
/* The record of a refusal alone, where one call is refused in part. */
void cg_record(struct cg_call *, enum cg_scope scope, unsigned operation, int32_t rule, const char *subject, size_t length, const char *requested,
               const char *reason);
/* Refuse whatever the policy says (unsupported calls, widening). */
void cg_refuse(struct cg_call *, enum cg_scope scope, unsigned operation, int32_t rule, const char *subject, size_t length, const char *requested,
               const char *reason);
/* Record what the host refused a guest. Main thread. */
void cg_refused_elsewhere(struct cg_vm *, pid_t tid, unsigned operation, int32_t rule, const char *subject, size_t length, const char *reason);

#endif
