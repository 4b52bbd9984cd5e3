/* Makes one call again and again while somebody else changes what it means, and counts what came of it.
 *
 *   race FLIPPER OPERATION ROUNDS SECONDS ARGUMENT...      until ROUNDS calls were made or SECONDS are over
 *
 * FLIPPER is who changes the call's arguments in memory: thread, mapped (another process, through a shared mapping) or sharer (a process
 * made with CLONE_VM alone). The operations, with what one side may do and the other must never:
 *   read A B         open and read a path whose one differing byte flips; the content starts with "public" or "secret"
 *   create A B       create a file at such a path
 *   flags FILE       openat2 with flags that flip between reading and writing with truncation
 *   exec A B         execute such a path: the two programs exit with 40 and 41
 *   execenv A B P    execute P with an environment of one such string: P exits with 40 if it is as it should be, else with 41
 *   connect PA PB    connect to a port that flips
 *   sendto PA PB     send a datagram to a port that flips
 *   sendmsg PA PB    the same, the address being in a message header
 *   sendmmsg PA PB   the same, in the second of two messages; the first goes to PA
 * and those whose flipper is always a thread, which does not touch memory:
 *   links L1 L2      read L1 while it is exchanged with L2, two symbolic links
 *   execlinks L1 L2 P  execute P while L1 is exchanged with L2
 *   dirfd A B        openat(fd, "f") while fd is replaced by dup2
 *   cwd A B          open("f") while the working directory changes
 *   sockets P        connect a descriptor that flips between a TCP socket and a UDP socket, which must never be connected
 *
 * Says: rounds, allowed, refused (EACCES), wrong (the forbidden side happened), other, and the last other errno.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What flips: two bytes at once, so that no third value is ever seen. */
struct shared {
    _Atomic int stop;
    uint16_t first, second;
    volatile uint16_t *place;
    char path[4096] __attribute__((aligned(8)));
    struct open_how how;
    struct sockaddr_in peer;
};

static struct shared *shared;
static long rounds, allowed, refused, wrong, other;
static int last_errno;
static const char *one, *two, *three; /* the operation's arguments */
static int first_fd, second_fd, flipped_fd;

static void fail(const char *what) {
    fprintf(stderr, "race: %s: %s\n", what, strerror(errno));
    exit(99);
}

static void failed_call(void) {
    if (errno == EACCES) refused++;
    else other++, last_errno = errno;
}

/* ---- the flippers ---- */

static int flip_memory(void *unused) {
    (void)unused;
    while (!shared->stop) {
        *shared->place = shared->second;
        *shared->place = shared->first;
    }
    return 0;
}

static int flip_links(void *unused) {
    (void)unused;
    while (!shared->stop) syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, two, 2 /* RENAME_EXCHANGE */);
    return 0;
}

static int flip_descriptor(void *unused) {
    (void)unused;
    while (!shared->stop) {
        dup2(second_fd, flipped_fd);
        dup2(first_fd, flipped_fd);
    }
    return 0;
}

static int flip_directory(void *unused) {
    (void)unused;
    while (!shared->stop)
        if (chdir(two) != 0 || chdir(one) != 0) fail("chdir");
    return 0;
}

static int (*flip)(void *);
static void *flip_as_thread(void *unused) { return (void *)(intptr_t)flip(unused); }

/* ---- the calls ---- */

static void count_content(int fd) {
    char text[7] = "";
    if (fd < 0) { failed_call(); return; }
    if (read(fd, text, 6) < 0) other++, last_errno = errno;
    else if (strcmp(text, "secret") == 0) wrong++;
    else if (strcmp(text, "public") == 0) allowed++;
    else other++;
    close(fd);
}

static void do_read(void) { count_content((int)syscall(SYS_open, shared->path, O_RDONLY)); }
static void do_link(void) { count_content((int)syscall(SYS_open, one, O_RDONLY)); }
static void do_dirfd(void) { count_content((int)syscall(SYS_openat, flipped_fd, "f", O_RDONLY)); }
static void do_cwd(void) { count_content((int)syscall(SYS_open, "f", O_RDONLY)); }

static void do_create(void) {
    const int fd = (int)syscall(SYS_open, shared->path, O_WRONLY | O_CREAT, 0644);
    if (fd < 0) { failed_call(); return; }
    allowed++;
    close(fd);
    if (access(two, F_OK) == 0) wrong++; /* where looking is allowed too; the test looks as well */
}

static void do_flags(void) {
    const int fd = (int)syscall(SYS_openat2, AT_FDCWD, one, &shared->how, sizeof shared->how);
    struct stat st;
    if (fd < 0) { failed_call(); return; }
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY || fstat(fd, &st) != 0 || st.st_size == 0) wrong++;
    else allowed++;
    close(fd);
}

static void execute(const char *path, char *variable) {
    int status;
    const pid_t pid = vfork();
    if (pid == 0) {
        syscall(SYS_execve, path, (char *[]){"x", NULL}, (char *[]){variable, NULL});
        _exit(errno == EACCES ? 42 : 43);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) fail("child");
    if (WIFSIGNALED(status)) refused++;
    else if (WEXITSTATUS(status) == 40) allowed++;
    else if (WEXITSTATUS(status) == 41) wrong++;
    else if (WEXITSTATUS(status) == 42) refused++;
    else other++, last_errno = WEXITSTATUS(status);
}

static void do_exec(void) { execute(shared->path, NULL); }
static void do_exec_environment(void) { execute(three, shared->path); }
static void do_exec_links(void) { execute(three, NULL); }

static int bound(int type, const char *port) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int yes = 1, fd = socket(AF_INET, type | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 || bind(fd, (struct sockaddr *)&here, sizeof here) != 0) fail(port);
    if (type == SOCK_STREAM && listen(fd, 100) != 0) fail("listen");
    return fd;
}

static void abandon(int fd) {
    const struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); /* so that ports are not used up */
    close(fd);
}

static void take_all(int listener, int is_wrong) {
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; abandon(fd)) wrong += is_wrong;
}

static void do_connect(void) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (syscall(SYS_connect, fd, &shared->peer, sizeof shared->peer) == 0) allowed++; /* corrected below, by who was reached */
    else failed_call();
    take_all(first_fd, 0);
    take_all(second_fd, 1);
    abandon(fd);
}

static void do_sendto(void) {
    char byte = 'x';
    if (syscall(SYS_sendto, flipped_fd, &byte, 1, 0, &shared->peer, sizeof shared->peer) == 1) allowed++;
    else failed_call();
    while (recv(first_fd, &byte, 1, 0) > 0) {}
    while (recv(second_fd, &byte, 1, 0) > 0) wrong++;
}

static void take_datagrams(void) {
    char byte;
    while (recv(first_fd, &byte, 1, 0) > 0) {}
    while (recv(second_fd, &byte, 1, 0) > 0) wrong++;
}

static void do_sendmsg(void) {
    char byte = 'x';
    struct iovec part = {&byte, 1};
    const struct msghdr message = {.msg_name = &shared->peer, .msg_namelen = sizeof shared->peer, .msg_iov = &part, .msg_iovlen = 1};
    if (sendmsg(flipped_fd, &message, 0) == 1) allowed++;
    else failed_call();
    take_datagrams();
}

/* One of two sent: the second was refused. */
static void do_sendmmsg(void) {
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct sockaddr_in steady = shared->peer;
    steady.sin_port = htons((uint16_t)atoi(one));
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_name = &steady, .msg_namelen = sizeof steady, .msg_iov = &part, .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_name = &shared->peer, .msg_namelen = sizeof shared->peer, .msg_iov = &part, .msg_iovlen = 1}}};
    const int sent = (int)syscall(SYS_sendmmsg, flipped_fd, messages, 2, 0);
    if (sent == 2) allowed++;
    else if (sent == 1) refused++;
    else failed_call();
    take_datagrams();
}

static int listener;

static void do_sockets(void) {
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    const int fresh = socket(AF_INET, SOCK_STREAM, 0);
    if (dup2(fresh, first_fd) < 0) fail("dup2");
    close(fresh);
    if (syscall(SYS_connect, flipped_fd, &shared->peer, sizeof shared->peer) == 0) allowed++;
    else if (errno == EISCONN) allowed++; /* the last round's socket, which the flipper had still put there */
    else failed_call();
    if (getpeername(second_fd, (struct sockaddr *)&peer, &size) == 0) {
        wrong++;
        const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
        syscall(SYS_connect, second_fd, &nobody, sizeof nobody);
    }
    take_all(listener, 0);
}

/* ---- setting up ---- */

static void flip_path(void) {
    const size_t length = strlen(one);
    size_t at = 0;
    while (at < length && one[at] == two[at]) at++;
    if (length != strlen(two) || at == length || strcmp(one + at + 1, two + at + 1) != 0) fail("the paths must differ in one byte");
    const size_t pair = at & ~(size_t)1;
    strcpy(shared->path, one);
    shared->place = (volatile uint16_t *)(void *)(shared->path + pair);
    memcpy(&shared->first, one + pair, 2), memcpy(&shared->second, two + pair, 2);
}

static void flip_port(void) {
    shared->peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(one)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    shared->place = &shared->peer.sin_port;
    shared->first = htons((uint16_t)atoi(one)), shared->second = htons((uint16_t)atoi(two));
}

static void (*set_up(const char *operation))(void) {
    flip = flip_memory;
    if (strcmp(operation, "read") == 0) return flip_path(), do_read;
    if (strcmp(operation, "create") == 0) return flip_path(), do_create;
    if (strcmp(operation, "exec") == 0) return flip_path(), do_exec;
    if (strcmp(operation, "execenv") == 0) return flip_path(), do_exec_environment;
    if (strcmp(operation, "flags") == 0) {
        shared->place = (volatile uint16_t *)(void *)&shared->how.flags;
        shared->first = O_RDONLY, shared->second = O_RDWR | O_TRUNC;
        return do_flags;
    }
    if (strcmp(operation, "connect") == 0) {
        first_fd = bound(SOCK_STREAM, one), second_fd = bound(SOCK_STREAM, two);
        return flip_port(), do_connect;
    }
    if (strncmp(operation, "send", 4) == 0) {
        first_fd = bound(SOCK_DGRAM, one), second_fd = bound(SOCK_DGRAM, two), flipped_fd = socket(AF_INET, SOCK_DGRAM, 0);
        return flip_port(), strcmp(operation, "sendto") == 0 ? do_sendto : strcmp(operation, "sendmsg") == 0 ? do_sendmsg : do_sendmmsg;
    }
    if (strcmp(operation, "links") == 0) return flip = flip_links, do_link;
    if (strcmp(operation, "execlinks") == 0) return flip = flip_links, do_exec_links;
    if (strcmp(operation, "cwd") == 0) {
        if (chdir(one) != 0) fail(one);
        return flip = flip_directory, do_cwd;
    }
    flip = flip_descriptor;
    if (strcmp(operation, "dirfd") == 0) {
        first_fd = open(one, O_RDONLY | O_DIRECTORY), second_fd = open(two, O_RDONLY | O_DIRECTORY);
    } else if (strcmp(operation, "sockets") == 0) {
        two = one;
        listener = bound(SOCK_STREAM, one), close(bound(SOCK_DGRAM, one)), flip_port();
        first_fd = socket(AF_INET, SOCK_STREAM, 0), second_fd = socket(AF_INET, SOCK_DGRAM, 0);
    } else fail("which operation?");
    flipped_fd = dup(first_fd);
    if (first_fd < 0 || second_fd < 0 || flipped_fd < 0) fail("descriptors");
    return operation[0] == 'd' ? do_dirfd : do_sockets;
}

int main(int argc, char **argv) {
    if (argc < 6) { fprintf(stderr, "race: FLIPPER OPERATION ROUNDS SECONDS ARGUMENT...\n"); return 99; }
    const char *who = argv[1];
    const long most = atol(argv[3]);
    one = argv[5], two = argc > 6 ? argv[6] : one, three = argc > 7 ? argv[7] : one;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    void (*const call)(void) = set_up(argv[2]);

    pthread_t thread;
    pid_t process = 0;
    char *stack = malloc(1 << 18);
    if (strcmp(who, "thread") == 0) {
        if (pthread_create(&thread, NULL, flip_as_thread, NULL) != 0) fail("pthread_create");
    } else if (strcmp(who, "mapped") == 0) {
        if ((process = fork()) == 0) _exit(flip(NULL));
    } else process = clone(flip, stack + (1 << 18), CLONE_VM | SIGCHLD, NULL);
    if (process < 0) fail("flipper");

    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        call();
        rounds++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (rounds < most && now.tv_sec - start.tv_sec < atol(argv[4]));
    shared->stop = 1;
    if (process) waitpid(process, NULL, 0);
    else pthread_join(thread, NULL);
    printf("%ld %ld %ld %ld %ld %d\n", rounds, allowed, refused, wrong, other, last_errno);
    return 0;
}
