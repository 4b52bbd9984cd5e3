/* listen(2) on a connected socket while another thread dissolves the connection: HOST PORT SECONDS. Prints how often it ended, and how often the socket then listened outside its
 * first network namespace. A third thread keeps the socket's lock busy, so that what a supervisor does in two steps is done with others' steps between. */
#define _GNU_SOURCE
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define COOKIE 71 /* SO_NETNS_COOKIE */

static atomic_int current, turn, over;
static int dissolve_after, listen_after; /* rounds of waiting */
static char much[1 << 20];

static void pause_for(int rounds) {
    for (volatile int i = 0; i < rounds; i++) {}
}

static void *dissolve(void *unused) {
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    while (!over) {
        if (!turn) continue;
        pause_for(dissolve_after);
        connect(current, &nobody, sizeof nobody);
        turn = 0;
    }
    return unused;
}

static void *keep_busy(void *unused) {
    while (!over)
        if (turn) send(current, much, sizeof much, MSG_DONTWAIT | MSG_NOSIGNAL);
    return unused;
}

static uint64_t number(int fd, int option) {
    uint64_t value = 0;
    socklen_t size = sizeof value;
    getsockopt(fd, SOL_SOCKET, option, &value, &size);
    return value;
}

int main(int argc, char **argv) {
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *to;
    pthread_t threads[2];
    if (argc != 4 || getaddrinfo(argv[1], argv[2], &hints, &to) != 0) return 2;
    const uint64_t inside = number(socket(AF_INET, SOCK_STREAM, 0), COOKIE);
    if (pthread_create(&threads[0], NULL, dissolve, NULL) || pthread_create(&threads[1], NULL, keep_busy, NULL)) return 2;
    unsigned tries = 0, outside = 0;
    int lead = 0;
    for (const time_t end = time(NULL) + atoi(argv[3]); time(NULL) < end; tries++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, to->ai_addr, to->ai_addrlen) != 0) return 2;
        const int now = lead + rand() % 4001 - 2000;
        dissolve_after = now > 0 ? now : 0, listen_after = now < 0 ? -now : 0;
        current = fd;
        turn = 1;
        pause_for(listen_after);
        const int result = listen(fd, 1);
        while (turn) {}
        lead += result == 0 ? 1000 : -1000; /* towards where either may come first */
        if (number(fd, SO_ACCEPTCONN) && number(fd, COOKIE) != inside) outside++;
        const struct linger at_once = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(fd);
    }
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%u %u\n", tries, outside);
    return 0;
}
