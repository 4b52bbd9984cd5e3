/* The processes of a VM: the tree below init, walked from its root, so that it costs what the VM holds and not what the host does. */
#define _GNU_SOURCE
#include "members.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHILDREN_TEXT 65536

struct walk { struct cg_vm *vm; pid_t *queue; size_t head, tail, size; bool failed; };

static void push(struct walk *walk, pid_t pid) {
    for (size_t i = 0; i < walk->tail; i++)
        if (walk->queue[i] == pid) return; /* it was given another parent while we looked */
    if (walk->tail == walk->size) {
        pid_t *bigger = realloc(walk->queue, (walk->size = walk->size ? walk->size * 2 : 256) * sizeof *bigger);
        if (!bigger) { walk->failed = true; return; }
        walk->queue = bigger;
    }
    walk->queue[walk->tail++] = pid;
}

/* The kernel keeps a list of children for each thread (proc_pid_children(5)). */
static void push_children_of_thread(struct walk *walk, int tasks, const char *thread) {
    char path[64], *text = malloc(CHILDREN_TEXT);
    snprintf(path, sizeof path, "%.20s/children", thread);
    int fd = text ? openat(tasks, path, O_RDONLY | O_CLOEXEC) : -1;
    size_t kept = 0;
    for (ssize_t n; fd >= 0 && (n = read(fd, text + kept, CHILDREN_TEXT - 1 - kept)) > 0;) {
        text[kept += (size_t)n] = '\0';
        char *at = text, *end;
        for (long pid; (pid = strtol(at, &end, 10)) > 0 && *end == ' '; at = end + 1) push(walk, (pid_t)pid);
        kept -= (size_t)(at - text); /* a number that a read cut in two */
        for (size_t i = 0; i < kept; i++) text[i] = at[i];
    }
    if (fd >= 0) close(fd);
    if (!text) walk->failed = true;
    free(text);
}

static void push_children(struct walk *walk, pid_t pid) {
    char path[32];
    snprintf(path, sizeof path, "%d/task", pid);
    int tasks = openat(walk->vm->root.host_proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = tasks < 0 ? NULL : fdopendir(tasks);
    if (!list) { /* it has ended */
        if (tasks >= 0) close(tasks);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.') push_children_of_thread(walk, tasks, entry->d_name);
    closedir(list);
}

bool cg_is_ours(struct cg_vm *vm, pid_t pid, pid_t parent) {
    bool first = false;
    char path[32];
    struct stat st;
    if (pid == vm->init || parent == vm->init) return true;
    pthread_mutex_lock(&vm->runs_lock);
    for (size_t i = 0; i < CG_RUNS_MAX && !first; i++) first = vm->runs[i].used && vm->runs[i].first == pid;
    pthread_mutex_unlock(&vm->runs_lock);
    /* Until its exec it runs our program, which the kernel shows to nobody: it is not dumpable, and its memory belongs to a namespace above ours. */
    snprintf(path, sizeof path, "%d/exe", pid);
    return first && fstatat(vm->root.host_proc, path, &st, 0) != 0 && errno == EACCES;
}

static bool known(const struct cg_members *members, pid_t pid) {
    for (size_t i = 0; i < members->count; i++)
        if (members->list[i].pid == pid) return true;
    return false;
}

static int add(struct cg_members *members, const struct cg_caller *who, bool ours) {
    if (members->count == members->size) {
        struct cg_member *bigger = realloc(members->list, (members->size = members->size ? members->size * 2 : 64) * sizeof *bigger);
        if (!bigger) return -1;
        members->list = bigger;
    }
    members->list[members->count++] = (struct cg_member){who->tgid, who->inner_tgid, who->inner_group, ours};
    return 1;
}

int cg_members_add(struct cg_vm *vm, struct cg_members *members) {
    struct walk walk = {.vm = vm};
    int added = 0;
    push(&walk, vm->init);
    while (walk.head < walk.tail && !walk.failed && added >= 0) {
        const pid_t pid = walk.queue[walk.head++];
        struct cg_caller who;
        push_children(&walk, pid);
        if (known(members, pid) || cg_caller_of(vm, pid, &who) != 0) continue;
        added = add(members, &who, cg_is_ours(vm, pid, who.ppid)) < 0 ? -1 : added + 1;
    }
    free(walk.queue);
    return walk.failed ? -1 : added;
}

static bool known_inside(const struct cg_members *members, long inner) {
    for (size_t i = 0; i < members->count; i++)
        if (members->list[i].inner == inner) return true;
    return false;
}

bool cg_members_complete(struct cg_vm *vm, const struct cg_members *members) {
    int fd = openat(vm->root.top, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    bool complete = true;
    if (!list) { /* nothing to compare with: the VM is ending */
        if (fd >= 0) close(fd);
        return true;
    }
    for (struct dirent *entry; complete && (entry = readdir(list)) != NULL;) {
        const long inner = strtol(entry->d_name, NULL, 10); /* 0: not a process */
        complete = inner <= 0 || known_inside(members, inner);
    }
    closedir(list);
    return complete;
}

void cg_members_release(struct cg_members *members) {
    free(members->list);
    *members = (struct cg_members){0};
}

int cg_pidfd_process(struct cg_vm *vm, int fd, struct cg_member *to) {
    char path[40], text[1024];
    struct cg_caller who;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = info < 0 ? -1 : read(info, text, sizeof text - 1);
    if (info >= 0) close(info);
    text[n > 0 ? n : 0] = '\0';
    const char *line = strstr(text, "\nPid:");
    const long pid = line ? strtol(line + 5, NULL, 10) : 0;
    if (pid == 0) return -EBADF; /* no pidfd */
    if (pid < 0 || cg_caller_of(vm, (pid_t)pid, &who) != 0) return -ESRCH; /* it is gone */
    *to = (struct cg_member){who.tgid, who.inner_tgid, who.inner_group, false};
    return 0;
}
