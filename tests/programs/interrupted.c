/* Makes judged calls under a storm of signals, and finds any that took effect and said it did not, or the other way round.
 *
 *   interrupted restart|plain ROUNDS FOLDER    says: rounds, calls that gave EINTR, contradictions
 *
 * The handler is installed with SA_RESTART or without. A call that was interrupted before anybody took it fails with EINTR without having
 * done anything; one that was taken must not be interrupted at all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t signals;
static void count(int signal) { (void)signal, signals++; }

static long interruptions, contradictions;

static int done(int result) {
    if (result < 0 && errno == EINTR) interruptions++;
    return result;
}

static void is(int condition, const char *what) {
    if (condition) return;
    contradictions++;
    fprintf(stderr, "interrupted: %s: %s\n", what, strerror(errno));
}

/* Until it is not interrupted: what lies behind must be as if it had been called once. */
#define RETRY(call) ({ int result_; while ((result_ = done(call)) < 0 && errno == EINTR) {} result_; })

int main(int argc, char **argv) {
    if (argc < 4 || chdir(argv[3]) != 0) return 99;
    const long rounds = atol(argv[2]);
    struct sigaction action = {.sa_handler = count, .sa_flags = argv[1][0] == 'r' ? SA_RESTART : 0};
    const struct itimerval often = {{0, 200}, {0, 200}};
    struct stat st;
    if (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &often, NULL) != 0) return 99;
    for (long i = 0; i < rounds; i++) {
        is(RETRY(mkdir("d", 0755)) == 0, "mkdir");
        is(RETRY(symlink("x", "d/l")) == 0, "symlink");
        int fd = RETRY(open("d/f", O_WRONLY | O_CREAT | O_EXCL, 0644));
        is(fd == 3, "open");
        is(write(fd, "x", 1) == 1 && close(fd) == 0, "write");
        is(RETRY(link("d/f", "d/g")) == 0, "link");
        is(RETRY(rename("d/g", "d/h")) == 0, "rename");
        is(RETRY(stat("d/h", &st)) == 0 && st.st_nlink == 2 && st.st_size == 1, "stat");
        is(RETRY(truncate("d/h", 0)) == 0, "truncate");
        is(RETRY(unlink("d/h")) == 0 && RETRY(unlink("d/f")) == 0 && RETRY(unlink("d/l")) == 0, "unlink");
        is(RETRY(rmdir("d")) == 0, "rmdir");
        is(dup(0) == 3 && close(3) == 0, "descriptors");
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    printf("%ld %ld %ld %d\n", rounds, interruptions, contradictions, signals > 0);
    return 0;
}
