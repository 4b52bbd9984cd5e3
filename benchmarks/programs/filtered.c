/* Runs a program under a given seccomp filter and nothing else: no listener, no namespaces.
 *
 *   filtered FILTER PROGRAM [ARGUMENT...]      FILTER: a file of struct sock_filter
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static struct sock_filter instructions[4096];
    if (argc < 3) { fputs("usage: filtered FILTER PROGRAM [ARGUMENT...]\n", stderr); return 2; }
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, instructions, sizeof instructions);
    if (n <= 0 || n % (ssize_t)sizeof *instructions != 0) { fprintf(stderr, "filtered: %s: no filter\n", argv[1]); return 2; }
    close(fd);
    struct sock_fprog program = {(unsigned short)((size_t)n / sizeof *instructions), instructions};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_seccomp, 1 /* SECCOMP_SET_MODE_FILTER */, 0, &program) != 0) {
        fprintf(stderr, "filtered: seccomp: %s\n", strerror(errno));
        return 1;
    }
    execv(argv[2], argv + 2);
    fprintf(stderr, "filtered: %s: %s\n", argv[2], strerror(errno));
    return 127;
}
