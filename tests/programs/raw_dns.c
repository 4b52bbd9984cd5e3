/* A resolver as statically linked programs bring their own: one UDP query to the server that /etc/resolv.conf names, no C library involved.
 *     raw_dns NAME TYPE [PORT]
 * prints the response code and the addresses of the answer; with a port it then connects there and prints the errno, and what the server says first. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what) {
    printf("%s: errno %d\n", what, errno);
    exit(1);
}

int main(int argc, char **argv) {
    char line[256], server[64] = "";
    FILE *conf = fopen("/etc/resolv.conf", "r");
    if (argc < 3 || !conf) fail("resolv.conf");
    while (fgets(line, sizeof line, conf))
        if (sscanf(line, "nameserver %63s", server) == 1) break;
    fclose(conf);

    unsigned char packet[1500] = {0x12, 0x34, 1, 0, 0, 1};
    size_t n = 12;
    char *name = strdup(argv[1]);
    for (char *label = strtok(name, "."); label; label = strtok(NULL, ".")) {
        packet[n++] = (unsigned char)strlen(label);
        memcpy(packet + n, label, strlen(label));
        n += strlen(label);
    }
    n += 2; /* the root, and the upper half of the type */
    packet[n++] = (unsigned char)atoi(argv[2]);
    packet[n + 1] = 1;
    n += 2;

    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
    inet_aton(server, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (sendto(fd, packet, n, 0, (struct sockaddr *)&to, sizeof to) < 0) fail("sendto");
    ssize_t got = recv(fd, packet, sizeof packet, 0);
    if (got < 12) fail("recv");
    close(fd);
    printf("rcode %d", packet[3] & 15);
    const int answers = packet[6] << 8 | packet[7];
    size_t at = n; /* past the question, which is repeated */
    char address[INET6_ADDRSTRLEN] = "";
    unsigned char raw[16] = {0};
    size_t length = 0;
    for (int i = 0; i < answers && at + 12 <= (size_t)got; i++) {
        length = (size_t)(packet[at + 10] << 8 | packet[at + 11]);
        if (length == 4 || length == 16) {
            memcpy(raw, packet + at + 12, length);
            printf(" %s", inet_ntop(length == 4 ? AF_INET : AF_INET6, raw, address, sizeof address));
        }
        at += 12 + length;
    }
    printf("\n");
    if (argc < 4 || !answers) return 0;

    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((unsigned short)atoi(argv[3]))};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six.sin6_port};
    memcpy(length == 4 ? (void *)&four.sin_addr : (void *)&six.sin6_addr, raw, length);
    fd = socket(length == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, length == 4 ? (struct sockaddr *)&four : (struct sockaddr *)&six, length == 4 ? sizeof four : sizeof six) != 0) fail("connect");
    dprintf(fd, "GET /raw HTTP/1.0\r\nHost: %s\r\n\r\n", argv[1]);
    got = recv(fd, packet, 15, 0);
    printf("%.*s\n", got < 0 ? 0 : (int)got, (char *)packet);
    return 0;
}
