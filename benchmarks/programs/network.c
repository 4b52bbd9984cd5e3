/* One connection's worth of work over TCP, and the server for it; reports nanoseconds.
 *
 *   network serve                          prints its port on the loopback and echoes until its standard input ends
 *   network OPERATION COUNT ADDRESS PORT   prints nanoseconds of one of COUNT:
 *     connect    connect(2) alone, without making the socket or closing it
 *     request    64 bytes there and back
 *     message    the same, sent with sendmsg(2)
 *     stream     a mebibyte there and back
 *     refused    a call that the supervisor answers at once: listen(2) on no descriptor
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MEBIBYTE (1u << 20)
#define REQUEST 64

static char buffer[256 * 1024];

_Noreturn static void fail(const char *what) {
    fprintf(stderr, "network: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long check(long result, const char *what) {
    if (result < 0) fail(what);
    return result;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void send_all(int fd, const char *from, size_t length) {
    while (length > 0) {
        ssize_t n = send(fd, from, length, MSG_NOSIGNAL);
        if (n < 0) return; /* the client is done */
        from += n, length -= (size_t)n;
    }
}

static int serve(void) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    int listener = (int)check(socket(AF_INET, SOCK_STREAM, 0), "socket"), epoll = (int)check(epoll_create1(0), "epoll");
    check(bind(listener, (struct sockaddr *)&own, length), "bind");
    check(listen(listener, SOMAXCONN), "listen");
    check(getsockname(listener, (struct sockaddr *)&own, &length), "getsockname");
    printf("%u\n", ntohs(own.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[64];
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
    event.data.fd = STDIN_FILENO;
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event), "epoll_ctl");
    for (;;) {
        int count = epoll_wait(epoll, ready, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == STDIN_FILENO) return 0;
            if (fd == listener) {
                if ((event.data.fd = accept(listener, NULL, NULL)) >= 0) epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            ssize_t n = read(fd, buffer, sizeof buffer);
            if (n <= 0) close(fd);
            else send_all(fd, buffer, (size_t)n);
        }
    }
}

static int connected(const struct sockaddr_in *to) {
    int fd = (int)check(socket(AF_INET, SOCK_STREAM, 0), "socket");
    check(connect(fd, (const struct sockaddr *)to, sizeof *to), "connect");
    return fd;
}

static double connects(const struct sockaddr_in *to, long count) {
    const struct linger at_once = {.l_onoff = 1};
    double spent = 0;
    for (long i = 0; i < count; i++) {
        int fd = (int)check(socket(AF_INET, SOCK_STREAM, 0), "socket");
        double before = now();
        check(connect(fd, (const struct sockaddr *)to, sizeof *to), "connect");
        spent += now() - before;
        /* No port is left waiting: thousands of rounds would use them up. */
        check(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), "SO_LINGER");
        close(fd);
    }
    return spent;
}

static double requests(const struct sockaddr_in *to, long count, int by_message) {
    int fd = connected(to);
    double before = now();
    for (long i = 0; i < count; i++) {
        struct iovec part = {buffer, REQUEST};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        check(by_message ? sendmsg(fd, &message, 0) : send(fd, buffer, REQUEST, 0), "send");
        for (size_t got = 0; got < REQUEST;) got += (size_t)check(recv(fd, buffer, REQUEST - got, 0), "recv");
    }
    return now() - before;
}

static void *pump(void *fd) {
    send_all(*(int *)fd, buffer, sizeof buffer);
    return NULL;
}

static double streams(const struct sockaddr_in *to, long count) {
    static char sink[sizeof buffer];
    int fd = connected(to);
    double before = now();
    for (long i = 0; i < count * (long)(MEBIBYTE / sizeof buffer); i++) {
        pthread_t sender;
        errno = pthread_create(&sender, NULL, pump, &fd);
        if (errno) fail("pthread_create");
        for (size_t got = 0; got < sizeof sink;) {
            long n = check(recv(fd, sink, sizeof sink - got, 0), "recv");
            if (n == 0) fail("the server went");
            got += (size_t)n;
        }
        pthread_join(sender, NULL);
    }
    return now() - before;
}

static double refusals(long count) {
    double before = now();
    for (long i = 0; i < count; i++)
        if (listen(-1, 1) == 0) fail("listen on no descriptor");
    return now() - before;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "serve") == 0) return serve();
    if (argc != 5) return 2;
    const long count = atol(argv[2]);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[4]))};
    if (count < 1 || inet_pton(AF_INET, argv[3], &to.sin_addr) != 1) return 2;
    double spent = strcmp(argv[1], "connect") == 0   ? connects(&to, count)
                   : strcmp(argv[1], "request") == 0 ? requests(&to, count, 0)
                   : strcmp(argv[1], "message") == 0 ? requests(&to, count, 1)
                   : strcmp(argv[1], "stream") == 0  ? streams(&to, count)
                   : strcmp(argv[1], "refused") == 0 ? refusals(count)
                                                     : -1;
    if (spent < 0) return 2;
    printf("%.1f\n", spent / (double)count);
    return 0;
}
