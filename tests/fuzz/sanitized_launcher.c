/* Starts the supervisor that was built with sanitizers: the host gives it no environment, and its reports have to go somewhere.
 *
 * Compiled with PROGRAM and REPORTS, the paths of the two. Addresses are not randomised, because the thread sanitizer of gcc 12 does not start on kernels
 * that randomise more than it knows. */
#include <fcntl.h>
#include <sys/personality.h>
#include <unistd.h>

int main(int argc, char **argv) {
    (void)argc;
    char *environment[] = {"ASAN_OPTIONS=detect_leaks=0:handle_abort=1:detect_stack_use_after_return=0", "UBSAN_OPTIONS=print_stacktrace=1",
                           "TSAN_OPTIONS=report_signal_unsafe=0:second_deadlock_stack=1", NULL};
    const int reports = open(REPORTS, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (reports < 0 || dup2(reports, 2) < 0 || personality(ADDR_NO_RANDOMIZE) < 0) return 125;
    close(reports);
    execve(PROGRAM, argv, environment);
    return 126;
}
