/* resolve.c: any path, base and flags lead to what the kernel's own look-up leads to: the same object, or the same errno.
 *
 * The process is in a root of its own, as the supervisor's VM is: there open(2) and openat2(2) are the oracle, /proc/self included. Where the
 * resolver is meant to differ, `deliberate` says so.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fuzz.h"
#include "private_root.h"

#include "resolve.h"

const char *const fuzz_words[] = {"/", "..", "../", "/..", "./", "/.", "//", "dir", "file", "up", "loop", "dangling", "absolute", "deep", "closed", "mnt",
                                  "long", "to-mnt", "to-proc", "/proc/self/fd/", "/proc/self/cwd/", "/proc/self/root/", "/proc/thread-self/fd/", "/proc/self",
                                  "/proc/1/root/", "in-dir", "dirlink", "\xff", "name (deleted)", "self", "fifo", "chain9", NULL};

enum { BASES = 10 };
static int bases[BASES]; /* the first is -1 */
static struct cg_root root;

static int must(int result, const char *what) {
    FUZZ_CHECK(result >= 0, "%s: %s", what, strerror(errno));
    return result;
}

static void make_file(const char *path) { close(must(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644), path)); }

static void make_tree(void) {
    static const char *const links[][2] = {
        {"../..", "/dir/up"}, {"loop", "/dir/loop"}, {"nowhere/x", "/dir/dangling"}, {"/dir/deep", "/absolute"}, {"dir", "/dirlink"}, {"/mnt/in", "/dir/to-mnt"},
        {"/proc/self/fd", "/dir/to-proc"}, {"deep/../file", "/dir/around"}, {"/../../dir/./deep/", "/dir/over"}, {"file/", "/dir/slash"}, {"/", "/dir/top"},
        {"/proc/self/cwd", "/cwd"}, {"../dir/deep", "/mnt/in/back"}, {"", "/dir/empty"}};
    must(mkdir("/dir", 0755), "dir"), must(mkdir("/dir/deep", 0755), "deep"), must(mkdir("/dir/deep/er", 0755), "er");
    must(mkdir("/closed", 0755), "closed"), make_file("/closed/secret");
    must(mkdir("/unlisted", 0755), "unlisted"), make_file("/unlisted/known");
    must(mkdir("/mnt/in", 0755), "in"), make_file("/mnt/file"), make_file("/mnt/in/in-dir");
    make_file("/dir/file"), make_file("/file"), make_file("/dir/deep/in-dir"), make_file("/dir/name (deleted)"), make_file("/dir/\xff\n");
    must(mkfifo("/dir/fifo", 0644), "fifo");
    char name[300], text[4200], chain[32];
    memset(name, 'n', sizeof name);
    memcpy(name, "/dir/", 5), name[5 + 255] = '\0';
    make_file(name);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (links[i][0][0]) must(symlink(links[i][0], links[i][1]), links[i][1]);
    for (int i = 0; i < 45; i++) { /* chain9 is nine links from its end, chain44 too many */
        snprintf(name, sizeof name, "/dir/chain%d", i);
        snprintf(chain, sizeof chain, i ? "chain%d" : "deep", i - 1);
        must(symlink(chain, name), name);
    }
    for (size_t i = 0; i < 4000; i += 2) memcpy(text + i, "./", 2);
    memcpy(text + 4000, "deep", 5);
    must(symlink(text, "/dir/long"), "a long link");
    must(chmod("/closed", 0), "closed"), must(chmod("/unlisted", 0711), "unlisted");
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    private_root_enter();
    make_tree();
    root.top = must(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), "top");
    root.own_fds = must(open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC), "own descriptors");
    root.host_proc = must(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC), "/proc");
    static const char *const names[BASES] = {NULL, "/", "/dir", "/dir/deep/er", "/dir/file", "/dir/loop", "/mnt/in", "/proc/self", "/proc/self/fd", "/gone"};
    must(mkdir("/gone", 0755), "gone");
    bases[0] = -1;
    for (int i = 1; i < BASES; i++) bases[i] = must(open(names[i], O_PATH | O_NOFOLLOW | O_CLOEXEC), names[i]);
    close(bases[7]);
    bases[7] = must(open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC), "/proc/self"); /* the directory, not the link */
    must(rmdir("/gone"), "gone");
    return 0;
}

/* An input: which base, which flags, whose permission is asked for, the path. */
size_t fuzz_seed(unsigned index, uint8_t *to, size_t room) {
    static const char *const paths[] = {"/dir/deep/er/..", "../up/dir", "dir/file/", "/dir/chain39", "/dir/chain40/in-dir", "/proc/self/fd/0", "/proc/self/cwd/x", "in/back/er",
                                        "/absolute/er/../../file", "/dir/nothing/../file", "/closed/x", "/unlisted/known", "mnt/../file", "dirlink", "/dir/to-proc/1",
                                        "/dir/name (deleted)", "//dir///deep//", "..", "/", "/dir/long/in-dir", "."};
    enum { PATHS = sizeof paths / sizeof *paths };
    if (index >= 4 * PATHS || room < 64) return 0;
    const char *path = paths[index % PATHS];
    to[0] = (uint8_t)(index % BASES);
    to[1] = (uint8_t[]){0, CG_RESOLVE_FOLLOW, CG_RESOLVE_BENEATH | CG_RESOLVE_FOLLOW, CG_RESOLVE_IN_ROOT}[index / PATHS];
    to[2] = (uint8_t)(index % 3);
    memcpy(to + 3, path, strlen(path));
    return 3 + strlen(path);
}

static struct cg_self myself(void *context) { (void)context; return (struct cg_self){getpid(), gettid()}; }

static int anybody(void *context, const char *text, size_t length) {
    (void)context;
    FUZZ_CHECK(text[0] == '/' && strlen(text) == length, "asked about \"%s\" (%zu)", text, length);
    return 1;
}

static int nobody(void *context, const char *text, size_t length) {
    (void)context, (void)text, (void)length;
    return 0;
}

/* ---- the oracle ---- */

static int kernel(int base, const char *path, unsigned flags, uint64_t open_flags) {
    const uint64_t resolve = (flags & CG_RESOLVE_NO_LINKS ? RESOLVE_NO_SYMLINKS : 0) | (flags & CG_RESOLVE_NO_MAGIC ? RESOLVE_NO_MAGICLINKS : 0) |
                             (flags & CG_RESOLVE_BENEATH ? RESOLVE_BENEATH : 0) | (flags & CG_RESOLVE_IN_ROOT ? RESOLVE_IN_ROOT : 0) |
                             (flags & CG_RESOLVE_NO_XDEV ? RESOLVE_NO_XDEV : 0);
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | open_flags, .resolve = resolve};
    int fd;
    do fd = (int)syscall(SYS_openat2, base < 0 ? root.top : base, path, &how, sizeof how);
    while (fd < 0 && (errno == EAGAIN || errno == EINTR));
    return fd < 0 ? -errno : fd;
}

struct identity { unsigned major, minor; uint64_t inode, mount; unsigned mode; };

static struct identity identify(int fd) {
    struct statx st;
    must(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st), "statx");
    return (struct identity){st.stx_dev_major, st.stx_dev_minor, st.stx_ino, st.stx_mnt_id, st.stx_mode};
}

static int same(int one, int two) {
    const struct identity a = identify(one), b = identify(two);
    return a.major == b.major && a.minor == b.minor && a.inode == b.inode && a.mount == b.mount && a.mode == b.mode;
}

/* Answers that the resolver gives on purpose where the kernel gives something else:
 * - Another process's descriptor links are refused whatever its rights are, and restrictions on links come before them.
 * - Linux fails an absolute link on a relative path with EXDEV under RESOLVE_NO_XDEV even on one mount, unless a ".." came first; we do not. */
static int deliberate(const char *path, unsigned flags, int ours, int theirs) {
    if (strstr(path, "proc") && (ours == EACCES || ((ours == ELOOP || ours == EXDEV) && theirs == EACCES))) return 1;
    return path[0] != '/' && flags & CG_RESOLVE_NO_XDEV && theirs == EXDEV;
}

static void check_text(const struct cg_path *path, int object) {
    FUZZ_CHECK(path->length == strlen(path->text), "%zu characters counted in \"%s\"", path->length, path->text);
    char text[PATH_MAX];
    size_t n;
    if (cg_descriptor_text(&root, object, text, sizeof text, &n) == 0) FUZZ_CHECK(strcmp(text, path->text) == 0, "called \"%s\", but is \"%s\"", path->text, text);
}

static void check_resolve(int base, const char *path, unsigned flags, const struct cg_resolver *who) {
    struct cg_path found;
    const int error = cg_resolve(&root, base, path, flags, who, &found);
    FUZZ_CHECK(error == found.error, "returns %d, says %d", error, found.error);
    if (who->traverse == nobody) { /* the kernel's answer, or a refusal: never another error in its place */
        FUZZ_CHECK(!found.refused || (error == EACCES && found.object < 0 && found.text[0] == '/'), "refused with error %d, object %d", error, found.object);
        if (found.refused) { cg_path_release(&found); return; }
    }
    FUZZ_CHECK(!found.refused, "refused by nobody");
    int oracle;
    if (path[0] == '\0' && flags & CG_RESOLVE_EMPTY) oracle = must(fcntl(base < 0 ? root.top : base, F_DUPFD_CLOEXEC, 0), "dup");
    else oracle = kernel(base, path, flags, flags & CG_RESOLVE_FOLLOW ? 0 : O_NOFOLLOW);
    const int expected = oracle < 0 ? -oracle : 0;
    if (error != expected && !deliberate(path, flags, error, expected))
        FUZZ_FAIL("\"%s\" from base %d with flags 0x%x: error %d, the kernel's is %d", path, base, flags, error, expected);
    if (error == 0 && flags & CG_RESOLVE_NO_XDEV && path[0] != '/')
        FUZZ_CHECK(identify(found.object).mount == identify(base < 0 ? root.top : base).mount, "\"%s\" from base %d is on another mount", path, base);
    if (error == 0 && expected == 0) {
        FUZZ_CHECK(same(found.object, oracle), "\"%s\" from base %d with flags 0x%x: another object (%s)", path, base, flags, found.text);
        check_text(&found, oracle);
    }
    if (oracle >= 0) close(oracle);
    cg_path_release(&found);
}

static void check_parent(int base, const char *path, unsigned flags, const struct cg_resolver *who) {
    struct cg_path found;
    cg_resolve_parent(&root, base, path, flags, who, &found);
    if (!found.refused && found.name[0]) {
        char stripped[PATH_MAX];
        size_t n = strlen(path);
        memcpy(stripped, path, n + 1);
        while (n > 1 && stripped[n - 1] == '/') stripped[--n] = '\0';
        const int oracle = kernel(base, stripped, flags, O_NOFOLLOW), expected = oracle < 0 ? -oracle : 0;
        if (found.error != expected && !deliberate(path, flags, found.error, expected))
            FUZZ_FAIL("the parent of \"%s\" from base %d with flags 0x%x: error %d, the kernel's is %d", path, base, flags, found.error, expected);
        if (found.error == 0 && expected == 0) FUZZ_CHECK(same(found.object, oracle), "the parent's \"%s\" is another object (%s)", path, found.text);
        if (found.error == ENOENT && expected == ENOENT && found.parent >= 0) { /* where a new name would go */
            char name[NAME_MAX + 3];
            snprintf(name, sizeof name, "%s", found.name);
            name[strcspn(name, "/")] = '\0';
            FUZZ_CHECK(faccessat(found.parent, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0, "\"%s\" is there after all", name);
        }
        if (oracle >= 0) close(oracle);
    }
    if (found.parent >= 0) FUZZ_CHECK(S_ISDIR(identify(found.parent).mode) || found.error, "the parent of \"%s\" is no directory", path);
    cg_path_release(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    const int base = bases[data[0] % BASES];
    const unsigned flags = data[1] & 127;
    const struct cg_resolver who = {NULL, myself, (int (*[])(void *, const char *, size_t)){NULL, anybody, nobody}[data[2] % 3]};
    const uint8_t *nul = memchr(data + 3, 0, size - 3);
    const size_t n = nul ? (size_t)(nul - (data + 3)) : size - 3;
    /* openat2 itself refuses the two together, before any path is looked at. */
    if ((flags & CG_RESOLVE_BENEATH && flags & CG_RESOLVE_IN_ROOT) || n >= PATH_MAX) return 0;
    char *path = malloc(n + 1);
    if (!path) abort();
    memcpy(path, data + 3, n);
    path[n] = '\0';
    check_resolve(base, path, flags, &who);
    check_parent(base, path, flags & ~(unsigned)(CG_RESOLVE_FOLLOW | CG_RESOLVE_EMPTY), &who);
    free(path);
    return 0;
}
