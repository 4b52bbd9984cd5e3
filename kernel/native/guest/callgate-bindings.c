/* The command of every binding and group, inside the VM: one program, a link for each name; and the start of callgate-fetch.
 *
 * It sends its arguments to the host, which knows what they mean, and prints what comes back: the reply holds text for the two standard
 * streams and, in the last message, the exit code. Needs nothing but libc, so that it works in a VM that has no interpreter.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET "/run/callgate/host.sock"
#define FETCH "/run/callgate/python/callgate_fetch.py"
#define MESSAGE_MAX (16u << 20)
#define FAILED 1
#define USAGE 2

static const char *program;

_Noreturn static void fail(int code, const char *what, const char *detail) {
    fprintf(stderr, "%s: %s%s%s\n", program, what, detail ? ": " : "", detail ? detail : "");
    exit(code);
}

/* ---- the request: a buffer that grows up to one message ---- */

struct buffer { uint8_t *bytes; size_t length, room; };

static void append(struct buffer *to, const void *bytes, size_t length) {
    if (length > MESSAGE_MAX || to->length > MESSAGE_MAX - length) fail(USAGE, "the arguments are longer than a message may be", NULL);
    if (to->room < to->length + length) {
        to->room = 2 * (to->length + length) + 256;
        to->bytes = realloc(to->bytes, to->room);
        if (!to->bytes) fail(FAILED, "out of memory", NULL);
    }
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
}

static void append_text(struct buffer *to, const char *text) { append(to, text, strlen(text)); }

/* A JSON string. What is not UTF-8 is for the host to refuse: it decodes every message strictly. */
static void append_string(struct buffer *to, const char *text, size_t length) {
    append_text(to, "\"");
    size_t plain = 0;
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        char escape[8];
        append(to, text + plain, i - plain);
        snprintf(escape, sizeof escape, c < 0x20 ? "\\u%04x" : "\\%c", c);
        append_text(to, escape);
        plain = i + 1;
    }
    append(to, text + plain, length - plain);
    append_text(to, "\"");
}

/* "-" is the standard input. */
static void append_file(struct buffer *to, const char *name) {
    const int fd = strcmp(name, "-") == 0 ? 0 : open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(USAGE, name, strerror(errno));
    struct buffer content = {0};
    uint8_t chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0) append(&content, chunk, (size_t)n);
    if (n < 0) fail(USAGE, name, strerror(errno));
    if (fd > 0) close(fd);
    append_string(to, (const char *)content.bytes, content.length);
    free(content.bytes);
}

static void build_request(struct buffer *to, int argc, char **argv) {
    static const char file_option[] = "--json-file";
    const size_t n = sizeof file_option - 1;
    append(to, "\0\0\0\0", 4); /* the length, below */
    append_text(to, "{\"id\":1,\"kind\":\"command\",\"argv\":[");
    append_string(to, program, strlen(program));
    for (int i = 1; i < argc; i++) {
        const char *name = NULL;
        append_text(to, ",");
        if (strcmp(argv[i], file_option) == 0 && i + 1 < argc) name = argv[++i];
        else if (strncmp(argv[i], file_option, n) == 0 && argv[i][n] == '=') name = argv[i] + n + 1;
        if (!name) { append_string(to, argv[i], strlen(argv[i])); continue; }
        append_text(to, "\"--json\",");
        append_file(to, name);
    }
    append_text(to, "]}");
    const size_t length = to->length - 4;
    for (int i = 0; i < 4; i++) to->bytes[i] = (uint8_t)(length >> (8 * (3 - i)));
}

/* ---- the replies: flat objects of strings and integers ---- */

static void write_all(int fd, const uint8_t *bytes, size_t length) {
    while (length > 0) {
        const ssize_t n = write(fd, bytes, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) exit(FAILED);
        bytes += n, length -= (size_t)n;
    }
}

_Noreturn static void not_understood(void) { fail(FAILED, "the host's reply cannot be read", NULL); }

static int hex_value(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
    return -1;
}

static uint32_t read_hex(const uint8_t *at, const uint8_t *end) {
    uint32_t value = 0;
    if (end - at < 4) not_understood();
    for (int i = 0; i < 4; i++) {
        const int digit = hex_value(at[i]);
        if (digit < 0) not_understood();
        value = value << 4 | (uint32_t)digit;
    }
    return value;
}

static size_t put_utf8(uint8_t *to, uint32_t c) {
    if (c < 0x80) { to[0] = (uint8_t)c; return 1; }
    if (c < 0x800) { to[0] = (uint8_t)(0xc0 | c >> 6); to[1] = (uint8_t)(0x80 | (c & 0x3f)); return 2; }
    if (c < 0x10000) { to[0] = (uint8_t)(0xe0 | c >> 12); to[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f)); to[2] = (uint8_t)(0x80 | (c & 0x3f)); return 3; }
    to[0] = (uint8_t)(0xf0 | c >> 18); to[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f)); to[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f)); to[3] = (uint8_t)(0x80 | (c & 0x3f));
    return 4;
}

/* The string that begins at `at` (its quote), unescaped in place: it only gets shorter. Gives what follows it. */
static uint8_t *read_string(uint8_t *at, const uint8_t *end, uint8_t **text, size_t *length) {
    static const char names[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    if (at >= end || *at++ != '"') not_understood();
    uint8_t *to = at;
    *text = at;
    for (; at < end && *at != '"'; at++) {
        if (*at != '\\') { *to++ = *at; continue; }
        if (++at >= end) not_understood();
        const char *name = *at ? strchr(names, *at) : NULL;
        if (name) { *to++ = (uint8_t)meanings[name - names]; continue; }
        if (*at != 'u') { *to++ = *at; continue; }
        uint32_t c = read_hex(at + 1, end);
        at += 4;
        if (c >= 0xd800 && c < 0xdc00 && end - at > 6 && at[1] == '\\' && at[2] == 'u') {
            c = 0x10000 + ((c - 0xd800) << 10) + ((read_hex(at + 3, end) - 0xdc00) & 0x3ff);
            at += 6;
        }
        to += put_utf8(to, c);
    }
    if (at >= end) not_understood();
    *length = (size_t)(to - *text);
    return at + 1;
}

static bool is(const uint8_t *text, size_t length, const char *word) { return length == strlen(word) && memcmp(text, word, length) == 0; }

/* Print what one reply says (it ends in NUL); true with an exit code if it is the last. */
static bool take_reply(uint8_t *at, size_t size, int *code) {
    const uint8_t *end = at + size, *whole = at;
    bool last = false;
    if (at >= end || *at++ != '{') not_understood();
    while (at < end && *at != '}') {
        uint8_t *key, *value = NULL;
        size_t key_length, length = 0;
        long number = 0;
        at = read_string(at, end, &key, &key_length);
        if (at >= end || *at++ != ':' || at >= end) not_understood();
        if (*at == '"') at = read_string(at, end, &value, &length);
        else if (*at == '{') fail(FAILED, "the host refused the request", (const char *)whole); /* an error object: nothing was done */
        else
            for (; at < end && *at != ',' && *at != '}'; at++)
                if (*at >= '0' && *at <= '9') number = (number * 10 + *at - '0') % 1000;
        if (value && is(key, key_length, "stdout")) write_all(1, value, length);
        else if (value && is(key, key_length, "stderr")) write_all(2, value, length);
        else if (!value && is(key, key_length, "exit")) last = true, *code = (int)number;
        if (at < end && *at == ',') at++;
    }
    return last;
}

static void read_all(int fd, uint8_t *to, size_t length) {
    while (length > 0) {
        const ssize_t n = read(fd, to, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail(FAILED, "the host service ended", n < 0 ? strerror(errno) : NULL);
        to += n, length -= (size_t)n;
    }
}

/* The one command that is not a binding's: a Python program, which needs what an interpreter brings along for HTTPS. */
_Noreturn static void start_fetch(int argc, char **argv) {
    char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) fail(FAILED, "out of memory", NULL);
    words[0] = "python3", words[1] = FETCH;
    memcpy(words + 2, argv + 1, (size_t)argc * sizeof *words); /* with the NULL */
    execvp(words[0], words);
    fail(errno == ENOENT ? 127 : 126, "python3", strerror(errno));
}

int main(int argc, char **argv) {
    program = argc > 0 ? strrchr(argv[0], '/') : NULL;
    program = program ? program + 1 : argc > 0 ? argv[0] : "callgate-bindings";
    if (strcmp(program, "callgate-fetch") == 0) start_fetch(argc, argv);
    struct buffer request = {0};
    build_request(&request, argc, argv);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SOCKET};
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail(FAILED, SOCKET, strerror(errno));
    /* A host that does not want all of it says why in its reply. */
    for (size_t done = 0; done < request.length;) {
        const ssize_t n = send(fd, request.bytes + done, request.length - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        done += (size_t)n;
    }
    for (;;) {
        uint8_t head[4];
        int code;
        read_all(fd, head, sizeof head);
        const size_t length = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
        uint8_t *body = length > 0 && length <= MESSAGE_MAX ? malloc(length + 1) : NULL;
        if (!body) not_understood();
        body[length] = '\0';
        read_all(fd, body, length);
        if (take_reply(body, length, &code)) return code;
        free(body);
    }
}
