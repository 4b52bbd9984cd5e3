/* Limits in sum, which no rlimit knows: the time a run may take, the processor time its processes use together, the memory the VM's hold.
 *
 * Looked at on a clock, from what /proc of the VM says. A look costs some microseconds a process, so the next one is due the later the longer
 * the last one took. What a run used over its limit before the next look is the price of not being told by the kernel.
 *
 * Processor time of a child that its parent never waits for (SIGCHLD ignored) is gone from /proc with the child. Where the host gave the cgroup's clock,
 * which misses nothing, the difference is found and charged to the runs that were there; without it, it is lost (the host calls that limit degraded).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "supervisor.h"

#define LOOK_MS 20       /* between two looks */
#define LOOK_SHARE 10    /* or this many times what the last one took */
#define MAX_DEPTH 4096   /* of a line of ancestors */

struct process { pid_t pid, parent; uint64_t cpu_ms, pages; struct cg_run *run; };

struct table { struct process *rows; size_t count, size; };

uint64_t cg_watch_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void cg_watch_prepare(struct cg_vm *vm) {
    struct cg_launch *launch = &vm->launch;
    size_t kept = 0;
    for (size_t i = 0; i < launch->limit_count; i++) {
        const uint64_t most = launch->limits[i].value.rlim_cur;
        switch (launch->limits[i].resource) {
        case CG_WATCH_WALL: vm->watch.wall_ms = most; break;
        case CG_WATCH_CPU: vm->watch.cpu_ms = most; break;
        case CG_WATCH_MEMORY: vm->watch.memory = most; break;
        default: launch->limits[kept++] = launch->limits[i];
        }
    }
    launch->limit_count = kept;
}

static bool under_way(const struct cg_run *run) { return run->used && !run->over && !run->killing && !run->ended; }

/* Most runs are over before anybody need look at them. */
static uint64_t look_due(const struct cg_vm *vm, const struct cg_run *run) {
    return vm->watch.next_ms > run->began_ms + LOOK_MS ? vm->watch.next_ms : run->began_ms + LOOK_MS;
}

int cg_watch_wait(const struct cg_vm *vm) {
    if (!vm->watch.wall_ms && !vm->watch.cpu_ms && !vm->watch.memory) return -1;
    const uint64_t now = cg_watch_now();
    uint64_t due = UINT64_MAX;
    for (size_t i = 0; i < CG_RUNS_MAX; i++) {
        const struct cg_run *run = &vm->runs[i];
        if (!under_way(run)) continue;
        if (vm->watch.wall_ms && run->began_ms + vm->watch.wall_ms < due) due = run->began_ms + vm->watch.wall_ms;
        if ((vm->watch.cpu_ms || vm->watch.memory) && look_due(vm, run) < due) due = look_due(vm, run);
    }
    if (due == UINT64_MAX) return -1;
    return due <= now ? 0 : due - now > 3600000 ? 3600000 : (int)(due - now);
}

static void exceed(struct cg_run *run, unsigned what) {
    run->exceeded |= 1u << (what - CG_WATCH_WALL);
    run->killing = true;
}

/* ---- what there is ---- */

/* The fields of /proc/PID/stat (proc_pid_stat(5)): parent, the four times in clock ticks, resident pages. */
static bool read_stat(int proc, const char *name, struct process *to) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "%.20s/stat", name);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = '\0';
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    unsigned long user, system, children_user, children_system;
    long pages;
    if (!rest || sscanf(rest + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu %*d %*d %*d %*d %*u %*u %ld", &to->parent, &user, &system, &children_user,
                        &children_system, &pages) != 6)
        return false;
    to->pid = (pid_t)strtol(name, NULL, 10);
    to->cpu_ms = (uint64_t)(user + system + children_user + children_system) * 1000u / (uint64_t)sysconf(_SC_CLK_TCK);
    to->pages = pages > 0 ? (uint64_t)pages : 0;
    to->run = NULL;
    return true;
}

static int by_pid(const void *a, const void *b) {
    const struct process *one = a, *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

static struct process *find(const struct table *table, pid_t pid) {
    const struct process key = {.pid = pid};
    return bsearch(&key, table->rows, table->count, sizeof key, by_pid);
}

/* Every process of the VM, by its number there. */
static bool read_table(struct cg_vm *vm, struct table *to) {
    int fd = openat(vm->root.top, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *proc = fd < 0 ? NULL : fdopendir(fd);
    if (!proc) { if (fd >= 0) close(fd); return false; }
    bool complete = true;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        if (to->count == to->size) {
            const size_t size = to->size ? to->size * 2 : 256;
            struct process *bigger = realloc(to->rows, size * sizeof *bigger);
            if (!bigger) { complete = false; break; }
            to->rows = bigger, to->size = size;
        }
        if (read_stat(dirfd(proc), entry->d_name, &to->rows[to->count])) to->count++;
    }
    closedir(proc);
    qsort(to->rows, to->count, sizeof *to->rows, by_pid);
    return complete;
}

/* Whose each process is: the run whose leader is among its ancestors. */
static void attribute(struct cg_vm *vm, const struct table *table) {
    for (size_t i = 0; i < CG_RUNS_MAX; i++) {
        struct cg_run *run = &vm->runs[i];
        struct cg_caller who;
        if (!run->used || run->leader <= 0) continue;
        if (!run->inner_leader && cg_caller_of(vm, run->leader, &who) == 0) run->inner_leader = who.inner_tgid;
        struct process *leader = run->inner_leader ? find(table, run->inner_leader) : NULL;
        if (leader) leader->run = run;
    }
    for (size_t i = 0; i < table->count; i++) {
        struct process *process = &table->rows[i], *at = process;
        for (int depth = 0; at && !at->run && depth < MAX_DEPTH; depth++) at = find(table, at->parent);
        if (at) process->run = at->run;
    }
}

/* ---- processor time ---- */

/* usage_usec, the first line of cpu.stat, in milliseconds; 0 if there is no such clock. */
static uint64_t read_clock(int fd) {
    char text[512];
    unsigned long long usec = 0;
    const ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = '\0';
    const char *line = strstr(text, "usage_usec ");
    return line && sscanf(line, "usage_usec %llu", &usec) == 1 ? usec / 1000u : 0;
}

static void look_at_time(struct cg_vm *vm, const struct table *table) {
    uint64_t seen = 0;
    uint32_t alive = 0;
    for (size_t i = 0; i < CG_RUNS_MAX; i++) vm->runs[i].cpu_ms = 0;
    for (size_t i = 0; i < table->count; i++) {
        seen += table->rows[i].cpu_ms;
        if (table->rows[i].run) table->rows[i].run->cpu_ms += table->rows[i].cpu_ms;
    }
    for (size_t i = 0; i < CG_RUNS_MAX; i++) alive += under_way(&vm->runs[i]);
    /* What the cgroup's clock knows of and /proc does not. Not where a run began or ended meanwhile: its time went with it in good order. */
    const uint64_t clock = read_clock(vm->watch.cpu_clock);
    const bool same = vm->watch.compared && vm->watch.runs_before == vm->next_run;
    const int64_t unseen = (int64_t)(clock - vm->watch.clock_ms) - ((int64_t)seen - (int64_t)vm->watch.seen_ms);
    for (size_t i = 0; i < CG_RUNS_MAX; i++) {
        struct cg_run *run = &vm->runs[i];
        if (!under_way(run)) continue;
        /* With its sign: /proc counts in ticks, and what one look finds too much the next finds too little. */
        if (clock && same && alive == vm->watch.alive_before) run->unseen_cpu_ms += unseen / (int64_t)alive;
        if ((int64_t)run->cpu_ms + (run->unseen_cpu_ms > 0 ? run->unseen_cpu_ms : 0) > (int64_t)vm->watch.cpu_ms) exceed(run, CG_WATCH_CPU);
    }
    vm->watch.compared = true;
    vm->watch.clock_ms = clock, vm->watch.seen_ms = seen, vm->watch.alive_before = alive, vm->watch.runs_before = vm->next_run;
}

/* ---- memory ---- */

/* A process's share of the memory it has mapped, in bytes: what it shares with others is divided among them. Its resident size where that cannot be read. */
static uint64_t share_of(struct cg_vm *vm, const struct process *process) {
    char path[64], text[1024];
    unsigned long kib;
    snprintf(path, sizeof path, "proc/%d/smaps_rollup", process->pid);
    int fd = openat(vm->root.top, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "\nPss:");
    return line && sscanf(line, "\nPss: %lu", &kib) == 1 ? kib * 1024ull : process->pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void look_at_memory(struct cg_vm *vm, const struct table *table) {
    uint64_t pages = 0, total = 0;
    for (size_t i = 0; i < table->count; i++) pages += table->rows[i].pages;
    if (pages * (uint64_t)sysconf(_SC_PAGESIZE) <= vm->watch.memory) return; /* shared pages counted more than once, and still within it */
    struct cg_run *largest = NULL;
    uint64_t most = 0, held[CG_RUNS_MAX] = {0};
    for (size_t i = 0; i < table->count; i++) {
        const uint64_t share = share_of(vm, &table->rows[i]);
        total += share;
        if (table->rows[i].run) held[table->rows[i].run - vm->runs] += share;
    }
    if (total <= vm->watch.memory) return;
    for (size_t i = 0; i < CG_RUNS_MAX; i++)
        if (under_way(&vm->runs[i]) && held[i] >= most) most = held[i], largest = &vm->runs[i];
    if (largest) exceed(largest, CG_WATCH_MEMORY);
}

void cg_watch_look(struct cg_vm *vm) {
    const uint64_t now = cg_watch_now();
    bool any = false;
    for (size_t i = 0; i < CG_RUNS_MAX; i++) {
        struct cg_run *run = &vm->runs[i];
        if (!under_way(run)) continue;
        any |= now >= look_due(vm, run);
        if (vm->watch.wall_ms && now >= run->began_ms + vm->watch.wall_ms) exceed(run, CG_WATCH_WALL);
    }
    if (!any || (!vm->watch.cpu_ms && !vm->watch.memory)) return;
    struct table table = {0};
    if (read_table(vm, &table)) {
        attribute(vm, &table);
        if (vm->watch.cpu_ms) look_at_time(vm, &table);
        if (vm->watch.memory) look_at_memory(vm, &table);
    }
    free(table.rows);
    const uint64_t took = cg_watch_now() - now;
    vm->watch.next_ms = now + (took * LOOK_SHARE > LOOK_MS ? took * LOOK_SHARE : LOOK_MS);
}
