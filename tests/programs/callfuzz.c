/* Makes random system calls with hostile arguments, in one child after the other.
 *
 *   callfuzz SEED CHILDREN CALLS FOLDER   says how many calls were made and how many children ended by a signal
 *
 * Numbers are those of the table and some that are none. Arguments are small numbers, descriptors, flags, good and bad pointers, and
 * pointers to paths in and beside FOLDER. Each child has a second, a session and limits of its own. Left out are only calls that wait
 * for ever by design, end the caller or signal others.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t state;

static uint64_t random_bits(void) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dull;
}

static const int left_out[] = {
    SYS_exit, SYS_exit_group, SYS_pause, SYS_rt_sigsuspend, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_kill, SYS_tkill, SYS_tgkill,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_send_signal, SYS_vfork, SYS_fork, SYS_clone, SYS_execve, SYS_execveat, SYS_alarm,
    SYS_setitimer, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_wait4, SYS_waitid, SYS_seccomp, SYS_prctl, SYS_setrlimit, SYS_prlimit64,
    SYS_munmap, SYS_mremap, SYS_mprotect, SYS_brk, SYS_pkey_mprotect, 462 /* mseal */, SYS_set_thread_area, SYS_arch_prctl, SYS_madvise,
    SYS_landlock_restrict_self, SYS_timer_create, SYS_nanosleep, SYS_clock_nanosleep, SYS_mlockall,
};

static char *edge; /* the last page before nothing is mapped */
static char paths[16][256];
static unsigned char *block;

static long argument(void) {
    const uint64_t bits = random_bits();
    switch (bits % 16) {
    case 0: return (long)(bits >> 32) % 64;
    case 1: return -(long)((bits >> 32) % 4096);
    case 2: return AT_FDCWD;
    case 3: return (long)random_bits();
    case 4: return 1l << (bits >> 8) % 64;
    case 5: return (long)(bits >> 8) & 0x7fffff;
    case 6: return 4096;
    case 7: return (long)(edge - (bits >> 8) % 300);
    case 8: return (long)(uintptr_t)0xffffffffff600000ull;
    case 9: return (long)(3 + (bits >> 8) % 8);
    case 10: return 0;
    case 11: return (long)(block + (bits >> 8) % 4000);
    default: return (long)paths[(bits >> 8) % 16];
    }
}

static void child(long calls) {
    const struct rlimit memory = {1u << 29, 1u << 29}, files = {64, 64}, size = {1 << 16, 1 << 16};
    setsid(); /* which the policy may refuse */
    setrlimit(RLIMIT_AS, &memory), setrlimit(RLIMIT_NOFILE, &files), setrlimit(RLIMIT_FSIZE, &size);
    signal(SIGXFSZ, SIG_IGN), signal(SIGPIPE, SIG_IGN), signal(SIGIO, SIG_IGN), signal(SIGTTOU, SIG_IGN), signal(SIGTTIN, SIG_IGN);
    alarm(1);
    for (long i = 0; i < calls; i++) {
        long number = (long)(random_bits() % 480);
        int skip = 0;
        for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++) skip |= number == left_out[k];
        for (int k = 0; k < 64; k++) block[random_bits() % 4096] = (unsigned char)random_bits();
        if (!skip) syscall(number, argument(), argument(), argument(), argument(), argument(), argument());
    }
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 5) return 99;
    const long children = atol(argv[2]), calls = atol(argv[3]);
    const char *folder = argv[4];
    long signalled = 0;
    static const char *const names[16] = {"", "/plain", "/secret", "/vault", "/vault/inner", "/new", "/link", "/../w/secret", "/open/./x", "//", "/f\xff\n",
                                          "/open", "/fifo", "/vault/new", "/plain/", "/absent/deep"};
    for (int i = 0; i < 16; i++) snprintf(paths[i], sizeof paths[i], "%s%s", folder, names[i]);
    char *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    block = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (two == MAP_FAILED || block == MAP_FAILED || munmap(two + 4096, 4096) != 0) return 99;
    memset(two, 'x', 4096);
    edge = two + 4096;
    for (long i = 0; i < children; i++) {
        int status;
        state = (uint64_t)atol(argv[1]) * 1000003u + (uint64_t)i + 1;
        const pid_t pid = fork();
        if (pid == 0) child(calls);
        if (pid < 0 || waitpid(pid, &status, 0) != pid) return 98;
        signalled += WIFSIGNALED(status) != 0;
    }
    printf("%ld %ld\n", children * calls, signalled);
    return 0;
}
