/* Works like a Go program: threads on small stacks that are preempted by SIGURG a thousand times a second while they open, stat, pipe and start programs.
 *
 *   gosched SECONDS FOLDER    says: calls that failed, calls that gave EINTR (the handler is installed with SA_RESTART, as Go's is)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 4

static atomic_int tids[WORKERS], running = 1;
static atomic_long failed, interrupted, rounds;
static const char *folder;

static void preempted(int signal) { (void)signal; }

static void check(long result, const char *what) {
    if (result >= 0) return;
    if (errno == EINTR) interrupted++;
    else { failed++; perror(what); }
}

/* By raw clone and exec, as Go does it; a signal that arrives between is the child's. */
static void start_program(void) {
    char *argv[] = {"true", NULL}, *envp[] = {NULL};
    int status;
    pid_t pid;
    const int error = posix_spawn(&pid, "/bin/true", NULL, NULL, argv, envp);
    if (error) { errno = error; check(-1, "posix_spawn"); return; }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) { check(-1, "waitpid"); return; }
        else interrupted++;
    if (status != 0) { failed++; fprintf(stderr, "true ended with %#x\n", status); }
}

static void *work(void *which) {
    char path[256], byte;
    struct stat st;
    int ends[2];
    atomic_store(&tids[(long)which], (int)syscall(SYS_gettid));
    snprintf(path, sizeof path, "%s/gosched.%ld", folder, (long)which);
    while (atomic_load(&running)) {
        int fd = open(path, O_RDWR | O_CREAT, 0644);
        check(fd, "open");
        if (fd >= 0) check(write(fd, "x", 1), "write"), close(fd);
        check(stat(path, &st), "stat");
        check(stat("/etc/passwd", &st), "stat");
        check(unlink(path), "unlink");
        check(pipe2(ends, O_CLOEXEC), "pipe2");
        check(write(ends[1], "y", 1), "write");
        check(read(ends[0], &byte, 1), "read");
        close(ends[0]), close(ends[1]);
        if (atomic_fetch_add(&rounds, 1) % 8 == 0) start_program();
    }
    atomic_store(&tids[(long)which], 0);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 99;
    folder = argv[2];
    struct sigaction action = {.sa_handler = preempted, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGURG, &action, NULL);
    pthread_t threads[WORKERS];
    for (long i = 0; i < WORKERS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    struct timespec millisecond = {0, 1000000}, begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        for (int i = 0; i < WORKERS; i++)
            if (atomic_load(&tids[i])) syscall(SYS_tgkill, getpid(), atomic_load(&tids[i]), SIGURG);
        nanosleep(&millisecond, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begun.tv_sec < atol(argv[1]));
    atomic_store(&running, 0);
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    printf("%ld %ld\n", failed, interrupted);
    fprintf(stderr, "%ld rounds\n", rounds);
    return rounds == 0 || failed != 0;
}
