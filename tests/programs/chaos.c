/* Many threads that move, exchange, link and make names in a small tree, and read whatever they can open by any way they find.
 *
 *   chaos SECONDS THREADS SEED FOLDER...      says: calls made, files read, files that held what starts with SECRET
 *
 * Whoever set the tree up put such files where reading is denied, and no thread writes anything of the kind. So one that is read came out by a
 * new name, by a descriptor, or between a verdict and its use. Files are never removed or replaced, so that they last. Half of the threads have a working
 * directory of their own. A process that gets by chdir into a directory it may not look at is killed for it; then another goes on.
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DESCRIPTORS 12 /* directories and files that a thread keeps for a while */

static char **tops;
static unsigned top_count;
static struct tally { atomic_ulong calls, reads, secrets; } *tally; /* shared: it outlives the process that adds to it */
static atomic_int stop;
static uint64_t seed;

struct thread { uint64_t state; int kept[DESCRIPTORS]; };

static unsigned below(struct thread *t, unsigned n) { /* xorshift64* */
    t->state ^= t->state >> 12, t->state ^= t->state << 25, t->state ^= t->state >> 27;
    return (unsigned)((t->state * 0x2545f4914f6cdd1dull) >> 33) % n;
}

/* A path: absolute or relative, with detours, by a kept descriptor, by the working directory. */
static void any_path(struct thread *t, char *to, size_t size, int plain) {
    static const char *const names[] = {"a", "b", "c", "s", "d", "v", "l"}, *const steps[] = {"..", ".", "a/..", "s/..", "l"};
    size_t n;
    switch (plain ? 0 : below(t, 8)) {
    case 0: case 1: case 2: case 3: n = (size_t)snprintf(to, size, "%s", tops[below(t, top_count)]); break;
    case 4: n = (size_t)snprintf(to, size, "/proc/self/fd/%d", t->kept[below(t, DESCRIPTORS)]); break;
    case 5: n = (size_t)snprintf(to, size, "/proc/thread-self/cwd"); break;
    case 6: n = (size_t)snprintf(to, size, "/proc/self/root%s", tops[below(t, top_count)]); break;
    default: n = (size_t)snprintf(to, size, ".");
    }
    for (unsigned depth = below(t, 4) + (plain ? 1 : 0); depth && n < size - 10; depth--) {
        const int odd = !plain && below(t, 6) == 0;
        n += (size_t)snprintf(to + n, size - n, "/%s", odd ? steps[below(t, 5)] : names[below(t, 7)]);
    }
}

static void look_into(int fd) {
    char text[7] = "";
    if (fd < 0) return;
    if (pread(fd, text, 6, 0) < 0) return;
    atomic_fetch_add(&tally->reads, 1);
    if (strcmp(text, "SECRET") == 0) atomic_fetch_add(&tally->secrets, 1);
}

static void keep(struct thread *t, int fd) {
    const unsigned place = below(t, DESCRIPTORS);
    if (fd < 0) return;
    close(t->kept[place]);
    t->kept[place] = fd;
}

static void one_call(struct thread *t) {
    char one[300], two[300];
    const int base = below(t, 3) ? AT_FDCWD : t->kept[below(t, DESCRIPTORS)], other = below(t, 3) ? AT_FDCWD : t->kept[below(t, DESCRIPTORS)];
    any_path(t, one, sizeof one, below(t, 2)), any_path(t, two, sizeof two, below(t, 2));
    const char *last = strrchr(one, '/'), *relative = below(t, 2) && base != AT_FDCWD && last ? last + 1 : one;
    int fd;
    switch (below(t, 20)) {
    case 0: case 1: case 2: fd = openat(base, relative, O_RDONLY | O_NONBLOCK); look_into(fd), keep(t, fd); break;
    case 3: fd = openat(base, relative, O_RDWR | O_NONBLOCK); look_into(fd), keep(t, fd); break;
    case 4: keep(t, openat(base, relative, O_RDONLY | O_DIRECTORY)); break;
    case 5: case 6: syscall(SYS_renameat2, base, relative, other, two, 1 /* RENAME_NOREPLACE */); break;
    case 7: case 8: syscall(SYS_renameat2, base, relative, other, two, 2 /* RENAME_EXCHANGE */); break;
    case 9: if (below(t, 8) == 0) linkat(base, relative, other, two, below(t, 2) ? AT_SYMLINK_FOLLOW : 0); break;
    case 10: if (below(t, 8) == 0) symlinkat(below(t, 2) ? one : "../s", other, two); break;
    case 11: case 12: unlinkat(base, relative, AT_REMOVEDIR); break;
    case 13: if (below(t, 4) == 0) mkdirat(base, relative, 0755); break;
    case 14: fd = openat(t->kept[below(t, DESCRIPTORS)], below(t, 2) ? "s" : "a", O_RDONLY | O_NONBLOCK); look_into(fd), keep(t, fd); break;
    case 15:
        if (below(t, 16)) break;
        fd = openat(base, relative, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd >= 0 && write(fd, "public", 6) < 0) {}
        if (fd >= 0) close(fd);
        break;
    case 16:
        if (below(t, 16)) break;
        fd = openat(base, relative, O_TMPFILE | O_RDWR, 0600);
        if (fd >= 0 && write(fd, "public", 6) == 6) linkat(fd, "", other, two, AT_EMPTY_PATH);
        look_into(fd), keep(t, fd);
        break;
    case 17: if (chdir(one) != 0) {} break;
    case 18: if (fchdir(t->kept[below(t, DESCRIPTORS)]) != 0) {} break;
    case 19:
        snprintf(two, sizeof two, "/proc/self/fd/%d", t->kept[below(t, DESCRIPTORS)]);
        fd = open(two, O_RDONLY | O_NONBLOCK);
        look_into(fd), keep(t, fd);
    }
    atomic_fetch_add(&tally->calls, 1);
}

static void *run(void *number) {
    struct thread t = {.state = seed * 0x9e3779b97f4a7c15ull + (uint64_t)(uintptr_t)number * 77 + 1};
    for (int i = 0; i < DESCRIPTORS; i++) t.kept[i] = open(tops[(unsigned)i % top_count], O_RDONLY | O_DIRECTORY);
    if ((uintptr_t)number % 2) unshare(CLONE_FS);
    while (!atomic_load(&stop)) one_call(&t);
    return NULL;
}

_Noreturn static void let_loose(unsigned threads, long seconds) {
    const struct timespec time = {seconds, 0};
    pthread_t ids[64];
    for (uintptr_t i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, run, (void *)i) != 0) _exit(98);
    nanosleep(&time, NULL);
    atomic_store(&stop, 1);
    for (unsigned i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 5) return 99;
    const unsigned threads = (unsigned)atoi(argv[2]);
    const time_t end = time(NULL) + atol(argv[1]);
    int status = 0;
    seed = strtoull(argv[3], NULL, 0), tops = argv + 4, top_count = (unsigned)argc - 4;
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (threads < 1 || threads > 64 || tally == MAP_FAILED) return 99;
    for (time_t now; status == 0 && (now = time(NULL)) < end; seed += 1000003) {
        const pid_t pid = fork();
        if (pid == 0) let_loose(threads, end - now);
        if (pid < 0 || waitpid(pid, &status, 0) != pid) return 97;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) status = 0;
    }
    printf("%lu %lu %lu\n", atomic_load(&tally->calls), atomic_load(&tally->reads), atomic_load(&tally->secrets));
    return status != 0;
}
