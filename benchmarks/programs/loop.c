/* Repeats one operation and reports its own nanoseconds each, so that no figure holds the start of a process.
 *
 *   loop OPERATION COUNT DIRECTORY [THREADS]
 *
 * Makes DIRECTORY/bench.file and DIRECTORY/bench.link before the clock starts. With several threads every one does its share
 * of COUNT and the figure is wall time divided by COUNT. An operation that fails ends the program with a line on stderr: a
 * refused call would be a fast one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64
#define PATH_SIZE 512

struct worker {
    pthread_t thread;
    long count;
    int pipe[2], file; /* one pipe each: threads must not wait for each other's bytes */
    char own[PATH_SIZE], other[PATH_SIZE];
};

static char path_file[PATH_SIZE], path_link[PATH_SIZE], path_denied[PATH_SIZE], path_directory[PATH_SIZE];
static pthread_barrier_t start;

_Noreturn static void fail(const char *what) {
    fprintf(stderr, "loop: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void check(long result, const char *what) {
    if (result < 0) fail(what);
}

static void do_getpid(struct worker *w) { (void)w; check(syscall(SYS_getpid), "getpid"); }

static void do_pipe(struct worker *w) {
    char byte = 0;
    check(write(w->pipe[1], &byte, 1), "write");
    check(read(w->pipe[0], &byte, 1), "read");
}

static void do_fstat(struct worker *w) {
    struct stat st;
    check(syscall(SYS_fstat, w->file, &st), "fstat");
}

/* fstat as the C library of glibc 2.33 to 2.38 makes it: a call with a path, the empty one. */
static void do_fstatat(struct worker *w) {
    struct stat st;
    check(syscall(SYS_newfstatat, w->file, "", &st, AT_EMPTY_PATH), "newfstatat");
}

static void do_read(struct worker *w) {
    char page[4096];
    check(pread(w->file, page, sizeof page, 0), "pread");
}

static void do_open(struct worker *w) {
    (void)w;
    int fd = open(path_file, O_RDONLY | O_CLOEXEC);
    check(fd, "open");
    close(fd);
}

/* The path must be refused: a denial has a cost of its own. */
static void do_denied(struct worker *w) {
    (void)w;
    int fd = open(path_denied, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 || errno != EACCES) fail("the open that must be refused");
}

static void do_stat(struct worker *w) {
    struct stat st;
    (void)w;
    check(stat(path_file, &st), "stat");
}

static void do_access(struct worker *w) { (void)w; check(access(path_file, R_OK), "access"); }

static void do_readlink(struct worker *w) {
    char text[PATH_SIZE];
    (void)w;
    check(readlink(path_link, text, sizeof text), "readlink");
}

static void do_mkdir(struct worker *w) {
    check(mkdir(w->own, 0755), "mkdir");
    check(rmdir(w->own), "rmdir");
}

static void do_create(struct worker *w) {
    int fd = open(w->own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    check(fd, "create");
    close(fd);
    check(unlink(w->own), "unlink");
}

static void do_rename(struct worker *w) {
    check(rename(w->own, w->other), "rename");
    check(rename(w->other, w->own), "rename back");
}

static void do_chmod(struct worker *w) { check(chmod(w->own, 0644), "chmod"); }

static void do_list(struct worker *w) {
    char entries[4096];
    (void)w;
    int fd = open(path_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(fd, "open of a directory");
    check(syscall(SYS_getdents64, fd, entries, sizeof entries), "getdents64");
    close(fd);
}

static const struct operation {
    const char *name;
    void (*once)(struct worker *);
    int own_file; /* 1: works on a file of its own that exists beforehand */
} operations[] = {
    {"getpid", do_getpid, 0},
    {"pipe", do_pipe, 0},
    {"fstat", do_fstat, 0},
    {"fstatat", do_fstatat, 0},
    {"read", do_read, 0},
    {"open", do_open, 0},
    {"stat", do_stat, 0},
    {"access", do_access, 0},
    {"readlink", do_readlink, 0},
    {"mkdir", do_mkdir, 0},
    {"create", do_create, 0},
    {"rename", do_rename, 1},
    {"chmod", do_chmod, 1},
    {"list", do_list, 0},
    {"denied", do_denied, 0},
};

static const struct operation *operation;

static void *run(void *context) {
    struct worker *w = context;
    pthread_barrier_wait(&start);
    for (long i = 0; i < w->count; i++) operation->once(w);
    return NULL;
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void make_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(fd, path);
    char page[4096] = {0};
    check(write(fd, page, sizeof page), path);
    close(fd);
}

static void join(char *to, const char *directory, const char *name, int number) {
    if (snprintf(to, PATH_SIZE, "%s/%s%d", directory, name, number) >= PATH_SIZE) errno = ENAMETOOLONG, fail(directory);
}

int main(int argc, char **argv) {
    static struct worker workers[THREADS_MAX];
    if (argc < 4 || argc > 5) { fputs("usage: loop OPERATION COUNT DIRECTORY [THREADS]\n", stderr); return 2; }
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (strcmp(argv[1], operations[i].name) == 0) operation = &operations[i];
    const long count = strtol(argv[2], NULL, 10), threads = argc == 5 ? strtol(argv[4], NULL, 10) : 1;
    if (!operation || count < 1 || threads < 1 || threads > THREADS_MAX) { fputs("loop: wrong argument\n", stderr); return 2; }
    if (strlen(argv[3]) >= PATH_SIZE) { errno = ENAMETOOLONG; fail(argv[3]); }
    strcpy(path_directory, argv[3]);
    join(path_file, argv[3], "bench.file", 0);
    join(path_link, argv[3], "bench.link", 0);
    join(path_denied, argv[3], "denied/file", 0);
    make_file(path_file);
    if (symlink(path_file, path_link) != 0 && errno != EEXIST) fail(path_link);

    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    for (long i = 0; i < threads; i++) {
        struct worker *w = &workers[i];
        w->count = count / threads + (i < count % threads);
        join(w->own, argv[3], "bench.own", (int)i);
        join(w->other, argv[3], "bench.other", (int)i);
        if (operation->own_file) make_file(w->own);
        w->file = open(path_file, O_RDONLY | O_CLOEXEC);
        check(w->file, path_file);
        check(pipe2(w->pipe, O_CLOEXEC), "pipe2");
        if (pthread_create(&w->thread, NULL, run, w) != 0) fail("pthread_create");
    }
    for (long i = 0; i < 8; i++) operation->once(&workers[0]); /* caches, and the first page faults */
    const int64_t before = now();
    pthread_barrier_wait(&start);
    for (long i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
    const int64_t after = now();
    printf("%.3f\n", (double)(after - before) / (double)count);
    for (long i = 0; i < threads; i++) unlink(workers[i].own);
    return 0;
}
