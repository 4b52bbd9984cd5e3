/* Makes system calls exactly as its standard input words them, one a line, and says what each gave.
 *
 *   rawcalls main|thread|child|grandchild|sharer|lone-fs|survivor <script
 *
 * A line is "NUMBER ARGUMENT..." or "i386 NUMBER ARGUMENT..." (int 0x80). An argument is
 *   123 -100 0x10   a number                 =3       what line 3 (from 0) gave
 *   sHEX            a NUL-terminated string  bHEX     bytes
 *   o32             a buffer of 32 bytes, shown in hexadecimal if the call succeeds
 *   eHEX            a string whose NUL is the last byte before an unmapped page
 *   uHEX            bytes that go on, without a NUL, into an unmapped page
 *   [A,A,...]       an array of 64-bit words
 * Each line's answer is the raw result (minus the errno), then " HEX" for each o-argument.
 *
 * The calls are made with the bare instruction, so no library has a say in them, by: the first thread, another thread, a child, a
 * grandchild that detached itself (two forks and setsid), a process that shares the memory, a thread with a directory of its own, or a
 * thread that outlives the first one, whose entries in /proc are then gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES_MAX 4096
#define ARGUMENTS 6

struct shown { const unsigned char *at; size_t size; };

static long results[LINES_MAX];
static struct shown outputs[ARGUMENTS * 4];
static size_t output_count;

static void fail(const char *what) {
    fprintf(stderr, "rawcalls: %s\n", what);
    exit(99);
}

static long raw(long number, const long a[ARGUMENTS]) {
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}

static long raw_i386(long number, const long a[ARGUMENTS]) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a[0]), "c"(a[1]), "d"(a[2]), "S"(a[3]), "D"(a[4]) : "r8", "r9", "r10", "r11", "memory");
    return result;
}

static size_t unhex(const char *text, size_t length, unsigned char *to) {
    for (size_t i = 0; i + 1 < length; i += 2) {
        char pair[3] = {text[i], text[i + 1], '\0'};
        to[i / 2] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return length / 2;
}

/* Pages that end where nothing is mapped; the bytes end exactly there. */
static void *at_the_edge(const unsigned char *bytes, size_t length) {
    const size_t room = (length / 4096 + 1) * 4096;
    unsigned char *pages = mmap(NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || munmap(pages + room, 4096) != 0) fail("mmap");
    return memcpy(pages + room - length, bytes, length);
}

static long argument(const char **at);

static long words(const char **at) {
    long *array = calloc(64, sizeof *array);
    size_t n = 0;
    if (!array) fail("memory");
    for (++*at; **at && **at != ']'; n++) {
        if (n == 64) fail("more than 64 words");
        array[n] = argument(at);
        if (**at == ',') ++*at;
    }
    if (**at == ']') ++*at;
    return (long)array;
}

static long argument(const char **at) {
    const char kind = **at;
    if (kind == '[') return words(at);
    const size_t length = strcspn(*at, ", ]\n");
    const char *text = *at + 1;
    *at += length;
    if (kind == '=') return results[strtoul(text, NULL, 10)];
    if (kind == 'o') {
        const size_t size = strtoul(text, NULL, 10);
        unsigned char *buffer = calloc(1, size + 1);
        if (!buffer || output_count == sizeof outputs / sizeof *outputs) fail("too many outputs");
        outputs[output_count++] = (struct shown){buffer, size};
        return (long)buffer;
    }
    if (strchr("sbeu", kind)) {
        unsigned char *bytes = calloc(1, length + 2);
        if (!bytes) fail("memory");
        const size_t n = unhex(text, length - 1, bytes);
        return (long)(kind == 'e' ? at_the_edge(bytes, n + 1) : kind == 'u' ? at_the_edge(bytes, n) : bytes);
    }
    return (long)strtoull(text - 1, NULL, 0);
}

static void one_line(const char *line, size_t index) {
    const char *at = line;
    long arguments[ARGUMENTS] = {0};
    const int i386 = strncmp(at, "i386 ", 5) == 0;
    if (i386) at += 5;
    char *after;
    const long number = strtol(at, &after, 0);
    output_count = 0;
    at = after;
    for (size_t n = 0; *at == ' '; n++) {
        at++;
        if (n == ARGUMENTS) fail("more than six arguments");
        arguments[n] = argument(&at);
    }
    const long result = results[index] = i386 ? raw_i386(number, arguments) : raw(number, arguments);
    printf("%ld", result);
    for (size_t i = 0; i < output_count && result >= 0; i++) {
        putchar(' ');
        const size_t shown = result > 0 && (size_t)result < outputs[i].size ? (size_t)result : outputs[i].size;
        for (size_t k = 0; k < shown; k++) printf("%02x", outputs[i].at[k]);
    }
    putchar('\n');
    fflush(stdout);
}

static char **script;
static size_t script_length;

static void *perform(void *unused) {
    (void)unused;
    for (size_t i = 0; i < script_length; i++) one_line(script[i], i);
    return NULL;
}

static int perform_as_process(void *unused) {
    perform(unused);
    return 0;
}

static void read_script(void) {
    size_t size = 0;
    char *line = NULL;
    script = calloc(LINES_MAX, sizeof *script);
    while (script && script_length < LINES_MAX && getline(&line, &size, stdin) > 0) script[script_length++] = strdup(line);
    free(line);
}

static void await(pid_t pid) {
    int status;
    if (pid < 0 || waitpid(pid, &status, __WALL) != pid || status != 0) {
        fprintf(stderr, "rawcalls: child ended with status %x (%s)\n", (unsigned)status, pid < 0 ? strerror(errno) : "-");
        exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 98);
    }
}

static void by_grandchild(void) {
    int ends[2];
    char end;
    if (pipe(ends) != 0) fail("pipe");
    /* Out of the way, so that the calls get the same descriptor numbers as everybody's. */
    const int alive = fcntl(ends[1], F_DUPFD, 200);
    if (alive < 0 || close(ends[1]) != 0) fail("dup");
    const pid_t child = fork();
    if (child == 0) {
        if (setsid() < 0) fail("setsid");
        if (fork() == 0) {
            close(ends[0]);
            perform(NULL);
            _exit(0);
        }
        _exit(0);
    }
    close(alive);
    await(child);
    while (read(ends[0], &end, 1) > 0) {}
}

/* A thread made by hand: it shares all but the working directory, the root and the umask. */
static void by_lone_thread(void) {
    static int alive = 1;
    char *stack = malloc(1 << 18);
    const int flags = CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    if (!stack || clone(perform_as_process, stack + (1 << 18), flags, NULL, NULL, NULL, &alive) < 0) fail("clone");
    while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE)) syscall(SYS_futex, &alive, FUTEX_WAIT, 1, NULL, NULL, 0);
}

static void *survive(void *unused) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    while (!strstr(text, ") Z ")) { /* until the first thread is a zombie */
        const int fd = open(path, O_RDONLY);
        if (fd < 0 || read(fd, text, sizeof text - 1) < 0) fail(path);
        close(fd);
    }
    perform(unused);
    exit(0);
}

int main(int argc, char **argv) {
    const char *who = argc > 1 ? argv[1] : "main";
    read_script();
    if (strcmp(who, "main") == 0) perform(NULL);
    else if (strcmp(who, "thread") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, perform, NULL) != 0) fail("pthread_create");
        pthread_join(thread, NULL);
    } else if (strcmp(who, "lone-fs") == 0) by_lone_thread();
    else if (strcmp(who, "survivor") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, survive, NULL) != 0) fail("pthread_create");
        syscall(SYS_exit, 0);
    } else if (strcmp(who, "child") == 0) {
        const pid_t pid = fork();
        if (pid == 0) { perform(NULL); _exit(0); }
        await(pid);
    } else if (strcmp(who, "sharer") == 0) {
        char *stack = malloc(1 << 18);
        await(stack ? clone(perform_as_process, stack + (1 << 18), CLONE_VM | CLONE_FILES | SIGCHLD, NULL) : -1);
    } else if (strcmp(who, "grandchild") == 0) by_grandchild();
    else fail("who is to make the calls?");
    return 0;
}
