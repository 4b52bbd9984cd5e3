/* Makes random system calls with hostile arguments, from several processes and threads at once.
 *
 *   fuzz_calls SEED CALLS CHILDREN [PATH...]     needs: nothing of the VM's root
 *
 * Every child makes calls until all have made CALLS between them; one that dies, or makes no call for a while, is replaced. At the end: "CALLS DEATHS HANGS".
 * Numbers are mostly those that the supervisor answers (syscall_table.h), else any. Arguments fit the call half of the time, so that it gets far; the rest of
 * the time they are anything: pointers into unmapped, read-only and kernel memory, strings and structures that end where nothing is mapped, huge and
 * negative numbers. Spared are only the processes that count: no signal, limit or memory of theirs is named on purpose.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN_MAX = 16, HANG_MS = 60, PAGE = 4096, NUMBERS_TOP = 480 };

/* What the children share with who watches them. */
struct shared { atomic_ulong made, by[CHILDREN_MAX]; };
static struct shared *shared;
static unsigned long wanted;
static char **paths;
static int path_count;

static const int answered[] = {
#define CG_SYSCALL(number, name, handler) number,
#include "syscall_table.h"
};

/* The arguments of calls by letter: d directory or descriptor, p path, s other text, f flags, m mode, l length, b buffer, h structure, o open_how, x msghdr, a address, z its
 * length (or open_how's), v vector, u user id, i process id, n any.
 * A call that is not here gets six of any kind. */
static const struct { int number; const char *arguments; } known[] = {
    {SYS_open, "pfm"}, {SYS_creat, "pm"}, {SYS_openat, "dpfm"}, {SYS_openat2, "dpoz"}, {SYS_stat, "pb"}, {SYS_lstat, "pb"}, {SYS_newfstatat, "dpbf"}, {SYS_statx, "dpffb"},
    {SYS_access, "pf"}, {SYS_faccessat, "dpf"}, {SYS_faccessat2, "dpff"}, {SYS_truncate, "pl"}, {SYS_ftruncate, "dl"}, {SYS_chdir, "p"}, {SYS_rename, "pp"},
    {SYS_renameat, "dpdp"}, {SYS_renameat2, "dpdpf"}, {SYS_mkdir, "pm"}, {SYS_mkdirat, "dpm"}, {SYS_rmdir, "p"}, {SYS_unlink, "p"}, {SYS_unlinkat, "dpf"},
    {SYS_link, "pp"}, {SYS_linkat, "dpdpf"}, {SYS_symlink, "pp"}, {SYS_symlinkat, "pdp"}, {SYS_readlink, "pbl"}, {SYS_readlinkat, "dpbl"}, {SYS_chmod, "pm"},
    {SYS_fchmod, "dm"}, {SYS_fchmodat, "dpm"}, {452, "dpmf"}, {SYS_chown, "puu"}, {SYS_lchown, "puu"}, {SYS_fchown, "duu"}, {SYS_fchownat, "dpuuf"},
    {SYS_utime, "pb"}, {SYS_utimes, "pb"}, {SYS_futimesat, "dpb"}, {SYS_utimensat, "dpbf"}, {SYS_mknod, "pmn"}, {SYS_mknodat, "dpmn"}, {SYS_statfs, "pb"},
    {SYS_setxattr, "psblf"}, {SYS_lsetxattr, "psblf"}, {SYS_fsetxattr, "dsblf"}, {SYS_getxattr, "psbl"}, {SYS_fgetxattr, "dsbl"}, {SYS_listxattr, "pbl"},
    {SYS_flistxattr, "dbl"}, {SYS_removexattr, "ps"}, {SYS_fremovexattr, "ds"}, {SYS_inotify_add_watch, "dpf"}, {SYS_name_to_handle_at, "dpbbf"},
    {463, "dpfsbl"}, {464, "dpfsbl"}, {465, "dpfbl"}, {466, "dpfs"}, {468, "dpblf"}, {469, "dpblf"}, {SYS_execve, "pvv"}, {SYS_execveat, "dpvvf"},
    {SYS_socket, "fff"}, {SYS_connect, "daz"}, {SYS_bind, "daz"}, {SYS_listen, "dn"}, {SYS_sendto, "dblfaz"}, {SYS_sendmsg, "dxf"}, {SYS_sendmmsg, "dxuf"},
    {SYS_setsockopt, "dnnbl"}, {SYS_kill, "in"}, {SYS_tkill, "in"}, {SYS_tgkill, "iin"}, {SYS_rt_sigqueueinfo, "inb"}, {SYS_rt_tgsigqueueinfo, "iinb"},
    {SYS_pidfd_open, "if"}, {SYS_pidfd_send_signal, "dnbf"}, {SYS_ptrace, "niba"}, {SYS_setpgid, "ii"}, {SYS_prlimit64, "inbb"}, {SYS_setpriority, "nin"},
    {SYS_ioprio_set, "nin"}, {SYS_sched_setaffinity, "ilb"}, {SYS_sched_setparam, "ib"}, {SYS_sched_setscheduler, "inb"}, {SYS_sched_setattr, "ibf"},
    {SYS_process_vm_readv, "ihlhlf"}, {SYS_process_vm_writev, "ihlhlf"}, {SYS_kcmp, "iinnn"}, {SYS_dup2, "dd"}, {SYS_close, "d"}, {SYS_fcntl, "dnn"}};

struct state {
    uint64_t random;
    char *pages;    /* two pages: the first is ours, nothing is where the second was */
    char *constant; /* a page that cannot be written, "/w/a" at its beginning */
    long child;     /* a process that may be named */
};

static uint64_t next(struct state *state) { /* xorshift64* */
    state->random ^= state->random >> 12, state->random ^= state->random << 25, state->random ^= state->random >> 27;
    return state->random * 0x2545f4914f6cdd1dull;
}

static unsigned below(struct state *state, unsigned n) { return (unsigned)(next(state) >> 33) % n; }

static long raw(long number, const long a[6]) {
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}

static long any_number(struct state *state) {
    static const long numbers[] = {0, 1, 2, 3, -1, -2, -100, 4095, 4096, 4097, 65536, 0x7fffffff, -0x80000000l, 0xffffffffl, 0x100000000l, 0x7fffffffffffffffl, (long)0x8000000000000000ul};
    return below(state, 2) ? numbers[below(state, sizeof numbers / sizeof *numbers)] : (long)next(state) >> below(state, 64);
}

static long any_pointer(struct state *state) {
    switch (below(state, 9)) {
    case 0: return 0;
    case 1: return (long)below(state, PAGE); /* the first page, never mapped */
    case 2: return (long)(state->pages + PAGE); /* the first byte of nothing */
    case 3: return (long)(state->pages + PAGE - 1 - below(state, 64));
    case 4: return (long)state->constant;
    case 5: return (long)(0xffff800000000000ul + (next(state) >> 20)); /* the kernel's */
    case 6: return (long)(0x0000800000000000ul + below(state, 1 << 20)); /* not an address at all */
    case 7: return -(long)below(state, 8192);
    default: return (long)(state->pages + below(state, PAGE));
    }
}

static char *room_for(struct state *state, size_t n) { /* at the very end of the page, or anywhere in it */
    return state->pages + (below(state, 3) == 0 ? PAGE - n : below(state, (unsigned)(PAGE - n)));
}

static long any_path(struct state *state) {
    static const char *const parts[] = {"a", "b", "dir", "link", "loop", "..", ".", "denied", "new", "fifo", "proc", "self", "fd", "1", "cwd", "root", "w", "tmp", "", "sock",
                                        "dev", "null", "etc", "exe", "task", "mem", "\xff\xfe", "ro", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
    char text[1024];
    size_t n = 0;
    if (below(state, 24) == 0) return any_pointer(state);
    if (below(state, 200) == 0) { /* longer than any path, without an end */
        memset(state->pages, '/', PAGE);
        return (long)state->pages;
    }
    if (path_count && below(state, 6) == 0) n = (size_t)snprintf(text, 512, "%s", paths[below(state, (unsigned)path_count)]);
    else if (below(state, 3)) n = (size_t)snprintf(text, sizeof text, below(state, 4) ? "/w" : "");
    for (unsigned i = below(state, 5); i > 0; i--) n += (size_t)snprintf(text + n, sizeof text - n, "/%s", parts[below(state, sizeof parts / sizeof *parts)]);
    if (n && text[0] == '/' && below(state, 4) == 0) memmove(text, text + 1, n--);
    text[n] = '\0';
    char *to = room_for(state, n + 1);
    memcpy(to, text, n + 1);
    if (below(state, 50) == 0 && to + n + 1 == state->pages + PAGE) to[n] = 'x'; /* goes on into nothing */
    return (long)to;
}

/* A structure of words, some of which point to more of the kind: open_how, msghdr, iovec, timespec ... */
static long any_structure(struct state *state, int depth) {
    const size_t words = 1 + below(state, 12);
    uint64_t *to = (uint64_t *)(void *)room_for(state, words * 8);
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        switch (below(state, 6)) {
        case 0: word = (uint64_t)any_number(state); break;
        case 1: word = (uint64_t)any_pointer(state); break;
        case 2: word = depth > 0 ? (uint64_t)any_structure(state, depth - 1) : 0; break;
        case 3: word = depth > 0 ? (uint64_t)any_path(state) : 1; break;
        default: word = below(state, 64);
        }
        memcpy(&to[i], &word, sizeof word);
    }
    return (long)to;
}

static long any_address(struct state *state) {
    static const unsigned char beginnings[][8] = {{AF_INET, 0, 0, 80, 127, 0, 0, 1}, {AF_INET6, 0, 1, 187}, {AF_UNIX, 0, '/', 'w', '/', 's'}, {AF_UNIX, 0, 0, 'a', 'b'}, {AF_NETLINK}};
    unsigned char *to = (unsigned char *)room_for(state, 128);
    memset(to, below(state, 2) ? 'q' : 0, 128);
    memcpy(to, beginnings[below(state, 5)], 8);
    return (long)to;
}

static long any_message(struct state *state) { /* struct msghdr: name and length, vectors and their number, control data and its length, flags */
    const uint64_t name = (uint64_t)any_address(state), vectors = (uint64_t)any_structure(state, 1), control = (uint64_t)any_structure(state, 0);
    const uint64_t words[8] = {name, below(state, 40), vectors, below(state, 4), control, below(state, 3) ? 0 : below(state, 64), below(state, 2), below(state, 3)};
    void *to = room_for(state, sizeof words);
    memcpy(to, words, sizeof words);
    return (long)to;
}

static long any_how(struct state *state) { /* struct open_how */
    const uint64_t words[3] = {1ul << below(state, 24) | below(state, 3), below(state, 2) ? 0 : below(state, 01000), below(state, 2) ? 0 : 1ul << below(state, 6)};
    void *to = room_for(state, sizeof words);
    memcpy(to, words, sizeof words);
    return (long)to;
}

static long any_vector(struct state *state) { /* argv: a few texts, and an end or none */
    uint64_t *to = (uint64_t *)(void *)room_for(state, 64);
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t word = i > below(state, 8) ? 0 : (uint64_t)any_path(state);
        memcpy(&to[i], &word, sizeof word);
    }
    return (long)to;
}

/* Processes that may be named: this one, one that sleeps, init, and some that are not there. Never who counts, and never all or a group. */
static long any_process(struct state *state) {
    const long ids[] = {raw(SYS_getpid, (long[6]){0}), raw(SYS_gettid, (long[6]){0}), state->child, 1, 0x7ffffff0, 0x3ffff0};
    return ids[below(state, 6)];
}

static long argument(struct state *state, char kind) {
    if (kind != 'i' && below(state, 20) == 0) return below(state, 2) ? any_number(state) : any_pointer(state);
    switch (kind) {
    case 'd': return below(state, 2) ? -100 : (long)below(state, 24) - 2;
    case 'p': return any_path(state);
    case 's': { char *to = room_for(state, 16); strcpy(to, below(state, 4) ? "user.fuzz" : "trusted.x"); return (long)to; }
    case 'f': if (below(state, 2)) return 0;
        return below(state, 3) ? (long)(1ul << below(state, 24) | (below(state, 2) ? 1ul << below(state, 24) : 0)) : (long)below(state, 8);
    case 'm': return (long)(below(state, 010000) | (below(state, 4) == 0 ? below(state, 16) << 12 : 0));
    case 'l': return below(state, 2) ? (long)below(state, 300) : any_number(state);
    case 'b': return below(state, 3) ? (long)room_for(state, 256) : any_structure(state, 0);
    case 'o': return any_how(state);
    case 'x': return any_message(state);
    case 'z': return below(state, 4) ? (long)(uint8_t[]){16, 24, 28, 110}[below(state, 4)] : any_number(state);
    case 'u': return below(state, 3) ? -1 : (long)below(state, 2000);
    case 'h': return any_structure(state, 2);
    case 'a': return any_address(state);
    case 'v': return any_vector(state);
    case 'i': return any_process(state);
    default: return below(state, 3) ? any_number(state) : any_pointer(state);
    }
}

static void one_call(struct state *state) {
    static const char anything[] = "dpsfmlbhoxazvun";
    long a[6];
    const unsigned choice = below(state, 100);
    long number = choice < 85 ? answered[below(state, sizeof answered / sizeof *answered)] : choice < 97 ? (long)below(state, NUMBERS_TOP) : any_number(state);
    const char *kinds = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == number) kinds = known[i].arguments;
    const int all_fit = below(state, 2);
    for (int i = 0; i < 6; i++) {
        const char fitting = kinds && (size_t)i < strlen(kinds) ? kinds[i] : '\0';
        a[i] = argument(state, fitting && (fitting == 'i' || all_fit || below(state, 2)) ? fitting : anything[below(state, sizeof anything - 1)]);
    }
    switch (number) {
    case SYS_exit: case SYS_exit_group: case SYS_pause: case SYS_rt_sigsuspend: case SYS_vfork: return; /* known to lead nowhere */
    case SYS_execve: case SYS_execveat: if (below(state, 20)) return; break; /* where it succeeds the child is gone */
    case SYS_setpriority: case SYS_ioprio_set: a[0] = 0; break; /* of a process, not of all of a user's */
    case SYS_prlimit64: if (a[0] == 1) a[0] = 0; break; /* a limit on processor time would end init, and with it this VM, as a guest may */
    case SYS_ptrace: if (a[0] == 16) a[0] = 0; break;
    case SYS_fork: case SYS_clone: case SYS_clone3:
        if (number == SYS_clone) a[0] = (a[0] & 0xff00) & ~(long)(CLONE_VM | CLONE_VFORK), a[1] = 0;
        if (number == SYS_clone3) return;
        if (raw(number, a) == 0) raw(SYS_exit_group, (long[6]){0});
        return;
    default: break;
    }
    raw(number, a);
}

static void prepare(struct state *state, uint64_t seed) {
    memset(state, 0, sizeof *state);
    state->random = seed * 0x9e3779b97f4a7c15ull + 1;
    state->pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (state->pages == MAP_FAILED || munmap(state->pages + PAGE, 2 * PAGE) != 0) _exit(3);
    state->constant = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (state->constant == MAP_FAILED) _exit(3);
    strcpy(state->constant, "/w/a");
    mprotect(state->constant, PAGE, PROT_READ);
}

struct job { unsigned index; uint64_t seed; long child; };

static void *calls(void *context) {
    const struct job *job = context;
    struct state state;
    prepare(&state, job->seed);
    state.child = job->child;
    while (atomic_load(&shared->made) < wanted) {
        one_call(&state);
        atomic_fetch_add(&shared->made, 1);
        atomic_fetch_add(&shared->by[job->index], 1);
    }
    _exit(0);
}

/* A process of two threads, in a group of its own with one that sleeps. */
_Noreturn static void child(unsigned index, uint64_t seed) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) dup2(null, i); /* the result goes to the real ones */
    const pid_t sleeper = fork();
    if (sleeper == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
    for (int i = 0; i < 3; i++) socket(families[i], i % 2 ? SOCK_STREAM : SOCK_DGRAM, 0);
    open("/w/dir", O_PATH), open("/w/a", O_RDWR), open("/w", O_RDONLY | O_DIRECTORY), open("/w/fifo", O_RDWR | O_NONBLOCK);
    chdir("/w");
    struct job jobs[2] = {{index, seed, sleeper}, {index, seed ^ 0x5555, sleeper}};
    pthread_t second;
    pthread_create(&second, NULL, calls, &jobs[1]);
    calls(&jobs[0]);
    _exit(0);
}

static void make_tree(void) {
    mkdir("/w/dir", 0755), mkdir("/w/denied", 0755), mkfifo("/w/fifo", 0644);
    symlink("dir", "/w/link"), symlink("loop", "/w/loop");
    /* Somebody may have put a fifo there: whoever watches must not wait for its reader. */
    close(open("/w/a", O_WRONLY | O_CREAT | O_NONBLOCK, 0644)), close(open("/w/b", O_WRONLY | O_CREAT | O_NONBLOCK, 0755));
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const uint64_t seed = strtoull(argv[1], NULL, 0);
    wanted = strtoul(argv[2], NULL, 0);
    const unsigned children = (unsigned)atoi(argv[3]);
    paths = argv + 4, path_count = argc - 4;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || children < 1 || children > CHILDREN_MAX) return 2;
    make_tree();
    pid_t pids[CHILDREN_MAX] = {0};
    unsigned long last[CHILDREN_MAX] = {0}, deaths = 0, hangs = 0, started = 0, still[CHILDREN_MAX] = {0};
    while (atomic_load(&shared->made) < wanted) {
        for (unsigned i = 0; i < children; i++) {
            if (pids[i] == 0) {
                last[i] = atomic_load(&shared->by[i]), still[i] = 0;
                pids[i] = fork();
                if (pids[i] == 0) child(i, seed + 1000003ull * started);
                if (pids[i] < 0) pids[i] = 0;
                started++;
                if (started % 32 == 0) make_tree(); /* what there was is moved about and removed */
                continue;
            }
            const unsigned long now = atomic_load(&shared->by[i]);
            still[i] = now == last[i] ? still[i] + 1 : 0;
            last[i] = now;
            if (still[i] > HANG_MS / 5) kill(pids[i], SIGKILL), kill(-pids[i], SIGKILL), hangs++;
        }
        const struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
        for (pid_t gone; (gone = waitpid(-1, NULL, WNOHANG | __WALL)) > 0;)
            for (unsigned i = 0; i < children; i++)
                if (pids[i] == gone) kill(-gone, SIGKILL), pids[i] = 0, deaths++;
    }
    printf("%lu %lu %lu\n", atomic_load(&shared->made), deaths, hangs);
    return 0;
}
