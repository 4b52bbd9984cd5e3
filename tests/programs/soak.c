/* Makes calls that a policy has judged, of every kind, again and again and from many callers at once.
 *
 *   soak ROUNDS CHILDREN FOLDER      each child has two threads; each thread makes ROUNDS rounds in a folder of its own below FOLDER
 *
 * FOLDER/denied must be refused and everything else allowed. Any other answer ends the program with what it was.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static long rounds;
static const char *top;

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "soak: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void refused(long result, const char *what) { check(result == -1 && errno == EACCES, what); }

/* A thread's own names. */
struct names { char dir[200], file[220], other[220], link[220], fifo[220], socket[108], denied[220], missing[220]; };

static void files(const struct names *n) {
    struct stat st;
    struct statfs fs;
    char text[300];
    int fd = open(n->file, O_CREAT | O_EXCL | O_RDWR, 0644);
    check(fd >= 0 && write(fd, "text", 4) == 4 && ftruncate(fd, 2) == 0 && fchmod(fd, 0600) == 0 && close(fd) == 0, "making a file");
    check(link(n->file, n->other) == 0 && rename(n->other, n->link) == 0 && unlink(n->link) == 0, "names");
    check(symlink("file", n->link) == 0 && readlink(n->link, text, sizeof text) == 4 && stat(n->link, &st) == 0 && lstat(n->link, &st) == 0, "links");
    check(chmod(n->link, 0644) == 0 && truncate(n->link, 10) == 0 && utimensat(AT_FDCWD, n->file, NULL, 0) == 0 && access(n->link, R_OK) == 0, "changes");
    check(setxattr(n->file, "user.a", "b", 1, 0) == 0 && getxattr(n->link, "user.a", text, sizeof text) == 1 && statfs(n->file, &fs) == 0, "attributes");
    const int dir = open(n->dir, O_RDONLY | O_DIRECTORY), again = openat(dir, "file", O_RDONLY);
    check(dir >= 0 && again >= 0 && mkdirat(dir, "sub", 0755) == 0 && unlinkat(dir, "sub", AT_REMOVEDIR) == 0, "in a directory");
    snprintf(text, sizeof text, "/proc/self/fd/%d", again);
    fd = open(text, O_RDONLY);
    check(fd >= 0 && close(fd) == 0 && close(again) == 0 && close(dir) == 0, "a descriptor's path");
    fd = open(n->dir, O_TMPFILE | O_RDWR, 0600);
    check(fd >= 0 && close(fd) == 0, "a file without a name");
    fd = inotify_init1(IN_CLOEXEC);
    check(inotify_add_watch(fd, n->dir, IN_CREATE) >= 0 && close(fd) == 0, "a watch");
    check(unlink(n->link) == 0 && unlink(n->file) == 0, "removing");
    check(open(n->missing, O_RDONLY) == -1 && errno == ENOENT && stat(n->missing, &st) == -1 && errno == ENOENT, "what is not there");
    refused(open(n->denied, O_RDONLY), "a denied file");
    refused(open(n->denied, O_WRONLY | O_CREAT, 0600), "a denied file for writing");
    refused(stat(n->denied, &st), "a denied file's status");
    refused(mkdir(n->denied, 0700), "a denied directory");
    refused(rename(n->dir, n->denied), "a denied name");
}

static void *open_fifo(void *name) {
    const int fd = open(name, O_WRONLY); /* waits for the reader */
    check(fd >= 0 && close(fd) == 0, "a fifo for writing");
    return NULL;
}

static void rarely(const struct names *n) {
    pthread_t writer;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, n->socket);
    check(mkfifo(n->fifo, 0600) == 0 && pthread_create(&writer, NULL, open_fifo, (void *)(uintptr_t)n->fifo) == 0, "a fifo");
    int fd = open(n->fifo, O_RDONLY);
    check(fd >= 0 && close(fd) == 0 && pthread_join(writer, NULL) == 0 && unlink(n->fifo) == 0, "a fifo for reading");
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(bind(server, (struct sockaddr *)&name, sizeof name) == 0 && listen(server, 1) == 0 && connect(client, (struct sockaddr *)&name, sizeof name) == 0, "a socket");
    check(close(server) == 0 && close(client) == 0 && unlink(n->socket) == 0, "closing a socket");
    int status;
    const pid_t pid = fork();
    if (pid == 0) {
        if (chdir(n->dir) != 0 || access("../denied", F_OK) != -1 || errno != EACCES) _exit(1);
        execl("/bin/true", "true", NULL);
        _exit(2);
    }
    check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "a program");
    check(mkfifo(n->fifo, 0600) == 0, "another fifo");
    const pid_t victim = fork(); /* dies while it waits */
    if (victim == 0) { open(n->fifo, O_RDONLY); _exit(3); }
    usleep(500);
    check(kill(victim, SIGKILL) == 0 && waitpid(victim, &status, 0) == victim && WIFSIGNALED(status) && unlink(n->fifo) == 0, "a sudden death");
}

static void *work(void *number) {
    struct names n;
    snprintf(n.dir, sizeof n.dir, "%s/%d-%ld", top, getpid(), (long)(intptr_t)number);
    snprintf(n.file, sizeof n.file, "%s/file", n.dir), snprintf(n.other, sizeof n.other, "%s/other", n.dir), snprintf(n.link, sizeof n.link, "%s/link", n.dir);
    snprintf(n.fifo, sizeof n.fifo, "%s/fifo", n.dir), snprintf(n.socket, sizeof n.socket, "%s/%d-%ld/s", top, getpid(), (long)(intptr_t)number);
    snprintf(n.denied, sizeof n.denied, "%s/denied/x", top), snprintf(n.missing, sizeof n.missing, "%s/missing", n.dir);
    check(mkdir(n.dir, 0755) == 0, "a folder");
    for (long i = 0; i < rounds; i++) {
        files(&n);
        if (i % 100 == 0) rarely(&n);
    }
    check(rmdir(n.dir) == 0, "removing a folder");
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4) return 99;
    rounds = atol(argv[1]), top = argv[3];
    const int children = atoi(argv[2]);
    int status, failed = 0;
    for (int i = 0; i < children; i++)
        if (fork() == 0) {
            pthread_t second;
            if (pthread_create(&second, NULL, work, (void *)1) != 0) _exit(98);
            work((void *)0);
            pthread_join(second, NULL);
            _exit(0);
        }
    for (int i = 0; i < children; i++) failed += wait(&status) < 0 || status != 0;
    return failed;
}
