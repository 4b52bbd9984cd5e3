/* The C library's own way from a name to a connection:   getaddrinfo NAME PORT
 * prints each address, then connects to them in turn and prints the errno, or the first line of the answer to a request. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (argc != 3) return 2;
    int error = getaddrinfo(argv[1], argv[2], &hints, &found);
    if (error) {
        printf("getaddrinfo: %s\n", error == EAI_NONAME ? "no such name" : error == EAI_AGAIN ? "try again" : gai_strerror(error));
        return 1;
    }
    for (struct addrinfo *each = found; each; each = each->ai_next) {
        char host[64], line[16];
        getnameinfo(each->ai_addr, each->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
        int fd = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
        if (connect(fd, each->ai_addr, each->ai_addrlen) != 0) printf("%s errno %d\n", host, errno);
        else {
            dprintf(fd, "GET /c HTTP/1.0\r\nHost: %s\r\n\r\n", argv[1]);
            ssize_t n = recv(fd, line, 15, 0);
            printf("%s %.*s\n", host, n < 0 ? 0 : (int)n, line);
        }
        close(fd);
    }
    freeaddrinfo(found);
    return 0;
}
