/* The environment at an exec. It is memory of the guest's, so what it sets and reads in itself is its own affair; what a new program is given is not.
 *
 * At the exec event the kernel has copied the strings to the new program's stack, where nobody but us can reach them yet. From the stack pointer upwards
 * (create_elf_tables, fs/binfmt_elf.c): the number of arguments, pointers to them, NULL, pointers to the environment, NULL, the auxiliary vector; further up the
 * strings, environment after arguments, each packed in the order of its pointers. /proc/<pid>/stat says where the environment's begin and end.
 */
#define _GNU_SOURCE
#include "env.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "trace.h"

enum { READ, WRITE }; /* operations of the scope */

#define ENTRIES_MAX (1u << 20)  /* more than the kernel takes */
#define BLOCK_MAX (16u << 20)   /* the kernel takes 6 MiB of arguments and environment */
#define ENTRY_SEEN 4096         /* of an entry that is only looked at beforehand */
#define ENV_START 50            /* its field of /proc/<pid>/stat; the next is env_end */
#define AUXILIARY_MAX 64        /* entries; the kernel makes about twenty */
#define ROOM (64u << 10)        /* below a new stack, of the 128 KiB that the kernel has mapped there (setup_arg_pages) */
#define RUN_WAITS 100       /* for a parent that ends just now, or a leader that has not said hello */
#define RUN_WAIT_NS 500000
#define ANCESTORS_MAX 65536

static size_t name_length(const char *entry, size_t length) {
    const char *end = memchr(entry, '=', length);
    return end ? (size_t)(end - entry) : length;
}

static bool may(const struct cg_vm *vm, unsigned operation, const char *entry, size_t length, int32_t *rule) {
    return cg_policy_decide(vm->launch.policy, CG_SCOPE_ENV, operation, entry, name_length(entry, length), rule) == 1;
}

char *cg_env_fixed_part(const struct cg_vm *vm, const char *text, size_t length, size_t *kept) {
    *kept = 0;
    errno = 0;
    if (length == 0 || cg_policy_constant(vm->launch.policy, CG_SCOPE_ENV, WRITE) == 1) return NULL;
    char *block = malloc(length);
    if (!block) return NULL;
    for (size_t at = 0, n; at < length; at += n) {
        n = strnlen(text + at, length - at) + 1;
        if (n > length - at || may(vm, WRITE, text + at, n - 1, NULL)) continue;
        memcpy(block + *kept, text + at, n);
        *kept += n;
    }
    return block;
}

/* The leader above a process: whoever orphans it, it stays below. 0: an ancestor ended while we looked, or it is below none. */
static pid_t leader_of(struct cg_vm *vm, pid_t pid) {
    struct cg_caller who;
    for (int i = 0; i < ANCESTORS_MAX && cg_caller_of(vm, pid, &who) == 0 && who.ppid > 0; i++) {
        if (who.ppid == vm->init) return who.tgid;
        pid = who.ppid;
    }
    return 0;
}

/* Copies what no exec of the process's run may change; 0, ESRCH if its run cannot be told, or ENOMEM. */
static int copy_fixed(struct cg_vm *vm, pid_t pid, char **block, size_t *length) {
    const pid_t leader = leader_of(vm, pid);
    int error = ESRCH;
    pthread_mutex_lock(&vm->runs_lock);
    for (size_t i = 0; i < CG_RUNS_MAX && leader > 0 && error == ESRCH; i++) {
        const struct cg_run *run = &vm->runs[i];
        if (!run->used || run->leader != leader) continue;
        *length = run->fixed_length;
        *block = *length > 0 ? malloc(*length) : NULL;
        error = *length > 0 && !*block ? ENOMEM : 0;
        if (*block) memcpy(*block, run->fixed, *length);
    }
    pthread_mutex_unlock(&vm->runs_lock);
    return error;
}

int cg_env_read_rules(struct cg_call *call, struct cg_env_rules *rules) {
    const struct cg_policy *policy = call->vm->launch.policy;
    memset(rules, 0, sizeof *rules);
    rules->writes = cg_policy_constant(policy, CG_SCOPE_ENV, WRITE) != 1;
    rules->judged = rules->writes || cg_policy_constant(policy, CG_SCOPE_ENV, READ) != 1;
    if (!rules->writes) return 0;
    size_t length = 0;
    int error = copy_fixed(call->vm, call->tid, &rules->block, &length);
    for (int wait = 0; error == ESRCH && wait < RUN_WAITS && cg_still_waiting(call); wait++) {
        nanosleep(&(struct timespec){0, RUN_WAIT_NS}, NULL);
        error = copy_fixed(call->vm, call->tid, &rules->block, &length);
    }
    if (error) {
        cg_answer_error(call, error == ESRCH ? EACCES : error); /* ESRCH: its run is over, and it is about to be killed */
        return -1;
    }
    for (size_t at = 0; at < length; at += strlen(rules->block + at) + 1) rules->count++;
    if (rules->count > 0 && !(rules->fixed = calloc(rules->count, sizeof *rules->fixed))) {
        cg_answer_error(call, ENOMEM);
        return -1;
    }
    for (size_t at = 0, i = 0; i < rules->count; at += rules->fixed[i].length + 1, i++)
        rules->fixed[i].text = rules->block + at, rules->fixed[i].length = strlen(rules->block + at);
    return 0;
}

void cg_env_release(struct cg_env_rules *rules) {
    free(rules->block), free(rules->fixed);
    rules->block = NULL, rules->fixed = NULL;
}

/* Whether a name that may not be written has the value that the operator gave it. `length` may be less than the entry's own when only its beginning is known. */
static bool is_fixed(struct cg_env_rules *rules, const char *entry, size_t length, bool whole) {
    for (size_t i = 0; i < rules->count; i++) {
        struct cg_env_fixed *fixed = &rules->fixed[i];
        if ((whole ? fixed->length == length : fixed->length > length) && memcmp(fixed->text, entry, length) == 0) {
            fixed->seen = true;
            return true;
        }
    }
    return false;
}

static void forget_seen(struct cg_env_rules *rules) {
    for (size_t i = 0; i < rules->count; i++) rules->fixed[i].seen = false;
}

/* False: a name that may not be written, added or changed; recorded, and the call answered if it was not. */
static bool judge_entry(struct cg_call *call, struct cg_env_rules *rules, const char *entry, size_t length, bool whole) {
    int32_t rule = CG_RULE_DEFAULT;
    if (!rules->writes || may(call->vm, WRITE, entry, length, &rule) || is_fixed(rules, entry, length, whole)) return true;
    cg_refuse(call, CG_SCOPE_ENV, WRITE, rule, entry, name_length(entry, length), NULL, "");
    return false;
}

static bool room_for_missing(const struct cg_env_rules *rules) {
    size_t size = 0;
    for (size_t i = 0; i < rules->count; i++)
        if (!rules->fixed[i].seen) size += rules->fixed[i].length + 1 + sizeof(uint64_t);
    return size <= ROOM / 2;
}

int cg_env_judge(struct cg_call *call, uint64_t envp, struct cg_env_rules *rules) {
    if (!rules->writes) return 0;
    forget_seen(rules);
    for (size_t i = 0; envp != 0 && i < ENTRIES_MAX; i++) {
        uint64_t pointer;
        char entry[ENTRY_SEEN];
        if (cg_read_memory(call, envp + i * sizeof pointer, &pointer, sizeof pointer) != 0) return 0; /* the kernel will not get further either */
        if (pointer == 0) break;
        const int error = cg_read_string(call, pointer, entry, sizeof entry);
        if (error && error != -ENAMETOOLONG) return 0;
        if (!judge_entry(call, rules, entry, error ? sizeof entry : strlen(entry), error == 0)) return -1;
    }
    if (room_for_missing(rules)) return 0;
    cg_answer_error(call, E2BIG);
    return -1;
}

/* ---- at the exec event ---- */

static bool get(pid_t pid, uint64_t address, void *to, size_t length) {
    const struct iovec mine = {to, length}, theirs = {(void *)(uintptr_t)address, length};
    return length == 0 || process_vm_readv(pid, &mine, 1, &theirs, 1, 0) == (ssize_t)length;
}

static bool put(pid_t pid, uint64_t address, const void *from, size_t length) {
    const struct iovec mine = {(void *)(uintptr_t)from, length}, theirs = {(void *)(uintptr_t)address, length};
    return length == 0 || process_vm_writev(pid, &mine, 1, &theirs, 1, 0) == (ssize_t)length;
}

/* Where the kernel has put the environment's strings: two of the fields of /proc/<pid>/stat (proc_pid_stat(5)). That is readable
 * where environ is not: of a program that its caller may execute and not read, whose /proc entries belong to root. */
static bool find_strings(struct cg_vm *vm, pid_t pid, uint64_t *from, uint64_t *to) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "%d/stat", pid);
    int fd = openat(vm->root.host_proc, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; at && field < ENV_START; field++) at = strchr(at + 1, ' ');
    return at && sscanf(at, " %" SCNu64 " %" SCNu64, from, to) == 2 && *from != 0 && *from <= *to && *to - *from <= BLOCK_MAX;
}

/* The environment's strings, all of them; NULL if they cannot be read. */
static char *read_strings(struct cg_vm *vm, pid_t pid, size_t *length) {
    uint64_t from, to;
    if (!find_strings(vm, pid, &from, &to)) return NULL;
    *length = (size_t)(to - from);
    char *text = malloc(*length + 1);
    if (text && get(pid, from, text, *length) && (*length == 0 || text[*length - 1] == '\0')) return text;
    free(text);
    return NULL;
}

/* A new program's stack as the kernel made it, and as it is to be. */
struct stack {
    pid_t pid;
    uint64_t pointer, argc, strings; /* where the environment's strings begin */
    char *text;                      /* those strings */
    size_t length, count;            /* their bytes and number */
    uint64_t *pointers;              /* to those that stay and those that are put back, and NULL */
    size_t kept;
    uint64_t auxiliary[2 * AUXILIARY_MAX];
    size_t auxiliary_size;           /* bytes, AT_NULL included */
};

static uint64_t pointers_at(const struct stack *stack) { return stack->pointer + sizeof(uint64_t) * (stack->argc + 2); }

static bool read_auxiliary(struct stack *stack) {
    const uint64_t at = pointers_at(stack) + sizeof(uint64_t) * (stack->count + 1);
    for (size_t i = 0; i < AUXILIARY_MAX; i++) {
        if (!get(stack->pid, at + 16 * i, &stack->auxiliary[2 * i], 16)) return false;
        if (stack->auxiliary[2 * i] == AT_NULL) {
            stack->auxiliary_size = 16 * (i + 1);
            return true;
        }
    }
    return false;
}

/* Reads the pointers and makes sure that they are to the strings, one after the other. */
static bool read_stack(struct stack *stack) {
    if (cg_stopped_stack(stack->pid, &stack->pointer) != 0 || !get(stack->pid, stack->pointer, &stack->argc, sizeof stack->argc) || stack->argc > ENTRIES_MAX) return false;
    if (!get(stack->pid, pointers_at(stack), stack->pointers, sizeof(uint64_t) * (stack->count + 1)) || stack->pointers[stack->count] != 0) return false;
    stack->strings = stack->pointers[0];
    for (size_t i = 0, at = 0; i < stack->count; at += strlen(stack->text + at) + 1, i++)
        if (stack->pointers[i] != stack->strings + at) return false;
    return read_auxiliary(stack);
}

/* Only names that may be read stay; the others' text is gone from memory too. */
static bool remove_unreadable(struct cg_vm *vm, struct stack *stack) {
    size_t to = 0;
    for (size_t at = 0, n; at < stack->length; at += n) {
        n = strlen(stack->text + at) + 1;
        if (!may(vm, READ, stack->text + at, n - 1, NULL)) continue;
        memmove(stack->text + to, stack->text + at, n);
        stack->pointers[stack->kept++] = stack->strings + to;
        to += n;
    }
    memset(stack->text + to, 0, stack->length - to);
    return put(stack->pid, stack->strings, stack->text, stack->length);
}

/* The strings to be put back, from `at` downwards. */
static bool restore_missing(struct cg_env_rules *rules, struct stack *stack, uint64_t *at) {
    for (size_t i = 0; i < rules->count; i++) {
        if (rules->fixed[i].seen) continue;
        *at -= rules->fixed[i].length + 1;
        if (!put(stack->pid, *at, rules->fixed[i].text, rules->fixed[i].length + 1)) return false;
        stack->pointers[stack->kept++] = *at;
    }
    return true;
}

/* Writes the pointers anew: in place, where the list only became shorter, or in a stack of their own below the strings that were put back. */
static bool write_stack(struct stack *stack, uint64_t below) {
    const size_t head = sizeof(uint64_t) * (stack->argc + 2), middle = sizeof(uint64_t) * (stack->kept + 1);
    stack->pointers[stack->kept] = 0;
    if (below < stack->pointer) {
        const uint64_t pointer = (below - head - middle - stack->auxiliary_size) & ~(uint64_t)15; /* as the ABI wants it at a program's start */
        char *arguments = stack->pointer - pointer <= ROOM ? malloc(head) : NULL;
        const bool moved = arguments && get(stack->pid, stack->pointer, arguments, head) && put(stack->pid, pointer, arguments, head) &&
                           cg_move_stopped_stack(stack->pid, pointer) == 0;
        free(arguments);
        if (!moved) return false;
        stack->pointer = pointer;
    }
    return put(stack->pid, pointers_at(stack), stack->pointers, middle) && put(stack->pid, pointers_at(stack) + middle, stack->auxiliary, stack->auxiliary_size);
}

static bool change_stack(struct cg_vm *vm, struct cg_env_rules *rules, struct stack *stack, size_t missing) {
    stack->pointers = calloc(stack->count + missing + 1, sizeof *stack->pointers);
    if (!stack->pointers || !read_stack(stack)) return false;
    uint64_t below = stack->pointer;
    return remove_unreadable(vm, stack) && restore_missing(rules, stack, &below) && write_stack(stack, below);
}

bool cg_env_settle(struct cg_call *call, pid_t pid, struct cg_env_rules *rules) {
    struct stack stack = {.pid = pid};
    bool unreadable = false, as_judged = true;
    size_t missing = 0;
    stack.text = read_strings(call->vm, pid, &stack.length);
    if (!stack.text) return false;
    call->tid = pid; /* a thread that was not the first has its process's number since the exec */
    forget_seen(rules);
    for (size_t at = 0, n; at < stack.length && as_judged; at += n, stack.count++) {
        n = strlen(stack.text + at) + 1;
        as_judged = judge_entry(call, rules, stack.text + at, n - 1, true);
        unreadable |= !may(call->vm, READ, stack.text + at, n - 1, NULL);
    }
    for (size_t i = 0; i < rules->count; i++) missing += !rules->fixed[i].seen;
    if (as_judged && (unreadable || missing > 0)) as_judged = change_stack(call->vm, rules, &stack, missing);
    free(stack.text), free(stack.pointers);
    return as_judged;
}
