/* Pid 1 of the VM, and the leaders: they fork, exec and reap, and nothing else.
 *
 * All of this runs under the guests' own seccomp filter, so it uses only calls that are never notified (plus setsid and one execve, for
 * which the supervisor knows the process that makes them). It is not dumpable: no guest can look into it or trace it.
 *
 *   init   receives START from the supervisor, with stdin, stdout, stderr, the leader's socket and the working directory; forks a leader
 *   leader a child subreaper: whatever a run's programs orphan stays below it; forks the first program, says hello, reaps until nothing is left
 *   first  becomes the program; where the supervisor must tell its last calls from a guest's, it says so before and waits for the go-ahead
 */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_DESCRIPTORS 5 /* stdin stdout stderr leader-socket cwd */
#define STRINGS_MAX 65536   /* arguments and environment together, in number */

static char *strings[STRINGS_MAX + 3]; /* argv, NULL, envp, NULL */

/* Without vfork or posix_spawn: the child needs its own memory, and this process has next to none to copy. */
static pid_t fork_plain(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static int tell(int socket, struct cg_leader_event event) {
    return write(socket, &event, sizeof event) == sizeof event ? 0 : -1;
}

/* Split the packed strings (each ended by NUL): program, then argc arguments, then the environment. */
static int split(char *text, size_t length, uint32_t argc, char **program, char ***argv, char ***envp) {
    if (length == 0 || text[length - 1] != '\0') return -1;
    *program = text;
    size_t at = strlen(text) + 1, n = 0;
    *argv = *envp = strings;
    while (at < length && n < STRINGS_MAX) {
        if (n == argc) { strings[n++] = NULL; *envp = strings + n; }
        strings[n++] = text + at;
        at += strlen(text + at) + 1;
    }
    if (at < length || n < argc) return -1;
    if (n == argc) { strings[n++] = NULL; *envp = strings + n; }
    strings[n] = NULL;
    return 0;
}

_Noreturn static void first_program(const struct cg_start *start, const struct cg_vm *vm, int fds[START_DESCRIPTORS], char *text, size_t length) {
    int socket = fds[3];
    char go;
    struct cg_leader_event event = {.kind = CG_LEADER_FIRST, .pid = getpid()};
    if (vm->launch.flags & CG_LAUNCH_REGISTER && (tell(socket, event) != 0 || read(socket, &go, 1) != 1)) _exit(127);
    event.kind = CG_LEADER_FAILED;
    setsid();
    char *program, **argv, **envp;
    /* The received descriptors may stand anywhere, 0 to 2 included: out of the way first. */
    for (int i = 0; i < START_DESCRIPTORS; i++)
        if (fds[i] < 16 + START_DESCRIPTORS && (fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 16 + START_DESCRIPTORS)) < 0) goto failed;
    socket = fds[3];
    for (int i = 0; i < 3; i++)
        if (dup3(fds[i], i, 0) < 0) goto failed;
    if (start->flags & CG_RUN_TTY && ioctl(0, TIOCSCTTY, 0) != 0) goto failed;
    if (fchdir(fds[4]) != 0) goto failed;
    for (size_t i = 0; i < vm->launch.limit_count; i++)
        if (setrlimit(vm->launch.limits[i].resource, &vm->launch.limits[i].value) != 0) goto failed;
    if (split(text, length, start->argc, &program, &argv, &envp) != 0) { errno = E2BIG; goto failed; }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Everything but stdio and the socket, whatever happened before; the socket goes by itself when the exec succeeds. */
    if (dup3(socket, 3, O_CLOEXEC) < 0) goto failed;
    socket = 3;
    syscall(SYS_close_range, 4, ~0u, 0);
    execve(program, argv, envp);
failed:
    event.error = errno;
    tell(socket, event);
    _exit(127);
}

_Noreturn static void leader(const struct cg_start *start, const struct cg_vm *vm, int fds[START_DESCRIPTORS], char *text, size_t length) {
    int socket = fds[3];
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) _exit(1);
    pid_t child = fork_plain();
    if (child == 0) first_program(start, vm, fds, text, length);
    if (child < 0) {
        tell(socket, (struct cg_leader_event){.kind = CG_LEADER_FAILED, .error = errno});
        _exit(1);
    }
    if (tell(socket, (struct cg_leader_event){.kind = CG_LEADER_HELLO, .pid = child}) != 0) _exit(1);
    for (int i = 0; i < START_DESCRIPTORS; i++)
        if (i != 3) close(fds[i]);
    for (;;) {
        struct cg_leader_event event = {.kind = CG_LEADER_STATUS};
        pid_t pid = wait4(-1, &event.status, 0, &event.usage);
        if (pid == child) tell(socket, event);
        if (pid < 0 && errno == ECHILD) _exit(0);
    }
}

static char message[CG_START_MAX];

/* One START: fork its leader. False when the supervisor is gone. */
static bool receive_start(const struct cg_vm *vm, int socket) {
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int) * (START_DESCRIPTORS + 1))]; } control;
    struct iovec part = {message, sizeof message};
    struct msghdr in = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(socket, &in, MSG_CMSG_CLOEXEC);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    int fds[START_DESCRIPTORS + 1], count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&in); c; c = CMSG_NXTHDR(&in, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        if (count > START_DESCRIPTORS + 1) count = START_DESCRIPTORS + 1;
        memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
    }
    struct cg_start start;
    if ((size_t)n >= sizeof start && count >= START_DESCRIPTORS) {
        memcpy(&start, message, sizeof start);
        char *text = message + sizeof start;
        size_t length = (size_t)n - sizeof start;
        if (count == START_DESCRIPTORS + 1) { /* too long for a message: in a sealed memfd */
            /* Not fstat: it is a call that policies have judged, and we run under the guests' filter. */
            const off_t size = lseek(fds[START_DESCRIPTORS], 0, SEEK_END);
            text = MAP_FAILED;
            if (size > 0) {
                length = (size_t)size;
                text = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, fds[START_DESCRIPTORS], 0);
            }
        }
        if (text != MAP_FAILED && fork_plain() == 0) {
            close(socket);
            leader(&start, vm, fds, text, length);
        }
        if (count == START_DESCRIPTORS + 1 && text != MAP_FAILED) munmap(text, length);
    }
    for (int i = 0; i < count; i++) close(fds[i]); /* a fork that failed shows as the leader's socket ending */
    return true;
}

_Noreturn void cg_init_main(struct cg_vm *vm, int socket) {
    sigset_t chld;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    int ended = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (ended < 0 || fcntl(socket, F_SETFL, O_NONBLOCK) != 0) _exit(1);
    struct pollfd on[2] = {{.fd = socket, .events = POLLIN}, {.fd = ended, .events = POLLIN}};
    for (;;) {
        if (poll(on, 2, -1) < 0 && errno != EINTR) _exit(1);
        if (on[1].revents) {
            struct signalfd_siginfo info;
            while (read(ended, &info, sizeof info) == sizeof info) {}
            int status;
            bool stopped = false;
            while (waitpid(-1, &status, WNOHANG | WUNTRACED) > 0) stopped |= WIFSTOPPED(status);
            /* A leader that a guest stopped: signals are not for us to send. A socket that is full holds this message already. */
            if (stopped && write(socket, "s", 1) < 0 && errno != EAGAIN) _exit(1);
        }
        if (on[0].revents && !receive_start(vm, socket)) _exit(0); /* pid 1 ends: the kernel kills the rest of the VM */
    }
}
