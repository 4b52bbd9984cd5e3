/* Installs a filter on itself and reports what single system calls then answer.
 *
 *   probe FILTER call NUMBER ARGUMENT...   prints the errno, or 0 (arguments are numbers, at most six, the rest 0)
 *   probe FILTER int80                     getpid through the 32-bit entry
 *   probe FILTER thread                    prints 0 if a thread starts, runs and is joined
 *   probe FILTER exec PROGRAM ARGUMENT...  runs a program under the filter
 *
 * FILTER is a file of struct sock_filter, or "-" for none (the control). Exit code 3: the probe itself could not do its work.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sock_filter instructions[4096];

static int give_up(const char *what) {
    perror(what);
    return 3;
}

static int install(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return give_up(path);
    size_t count = fread(instructions, sizeof instructions[0], 4096, file);
    fclose(file);
    struct sock_fprog program = {.len = (unsigned short)count, .filter = instructions};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return give_up("no_new_privs");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return give_up("seccomp");
    return 0;
}

static void *set_to_one(void *place) {
    *(int *)place = 1;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 3;
    if (strcmp(argv[1], "-")) {
        int failed = install(argv[1]);
        if (failed) return failed;
    }
    if (!strcmp(argv[2], "call") && argc > 3 && argc <= 10) {
        unsigned long argument[6] = {0};
        for (int i = 4; i < argc; i++) argument[i - 4] = strtoul(argv[i], NULL, 0);
        errno = 0;
        long result = syscall(strtol(argv[3], NULL, 0), argument[0], argument[1], argument[2], argument[3], argument[4],
                              argument[5]);
        printf("%d\n", result == -1 ? errno : 0);
        return 0;
    }
    if (!strcmp(argv[2], "int80")) {
        long result = 20; /* getpid in the i386 table */
        __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
        printf("%d\n", result == getpid() ? 0 : (int)-result);
        return 0;
    }
    if (!strcmp(argv[2], "thread")) {
        pthread_t thread;
        int ran = 0;
        int error = pthread_create(&thread, NULL, set_to_one, &ran);
        if (!error) error = pthread_join(thread, NULL);
        printf("%d\n", error ? error : !ran);
        return 0;
    }
    if (!strcmp(argv[2], "exec") && argc > 3) {
        execvp(argv[3], argv + 3);
        return give_up(argv[3]);
    }
    return 3;
}
