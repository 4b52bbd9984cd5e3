/* Forks until the kernel refuses, says how often it could and why it ended, and leaves everything running.
 *
 *   forkbomb MOST SECONDS   never more than MOST processes, none of which lives for longer: a missing limit fails a test, not a machine
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const long most = argc > 1 ? strtol(argv[1], NULL, 10) : 100;
    const unsigned seconds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    long made = 0;
    int error = 0;
    signal(SIGTERM, SIG_IGN);
    while (made < most) {
        const pid_t pid = fork();
        if (pid < 0) { error = errno; break; }
        if (pid == 0) {
            if (made % 2) setsid();
            alarm(seconds);
            for (;;) pause();
        }
        made++;
    }
    printf("%ld %d\n", made, error);
    return 0;
}
