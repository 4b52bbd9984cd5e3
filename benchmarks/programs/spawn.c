/* Reports the nanoseconds of one vfork + exec + wait of a program: the least a new process can cost here.
 *
 *   spawn COUNT PROGRAM
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 3 || strtol(argv[1], NULL, 10) < 1) { fputs("usage: spawn COUNT PROGRAM\n", stderr); return 2; }
    const long count = strtol(argv[1], NULL, 10);
    char *arguments[] = {argv[2], NULL}, *environment[] = {NULL};
    const int64_t before = now();
    for (long i = 0; i < count; i++) {
        int status;
        pid_t child = vfork();
        if (child == 0) {
            execve(argv[2], arguments, environment);
            _exit(127);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "spawn: %s: %s\n", argv[2], child < 0 ? strerror(errno) : "it failed");
            return 1;
        }
    }
    printf("%.3f\n", (double)(now() - before) / (double)count);
    return 0;
}
