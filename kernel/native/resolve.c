/* Path resolution on pinned descriptors.
 *
 * The kernel resolves: one openat2 with RESOLVE_IN_ROOT (absolute paths) or RESOLVE_BENEATH (relative ones), and the path of what was opened is
 * read back from the descriptor. Only where that cannot be exact (a path through /proc/self or another descriptor link, a relative path that leaves
 * its base, a name that does not exist, a rename storm, openat2's own restrictions), or where the way itself has to be judged (through "..", by symbolic
 * links), the components are walked one by one, each on a pinned descriptor.
 *
 * The resolving process lives outside the VM. ".." at the VM's root stays there because that root is the root of its mount
 * namespace (pivot_root), and an absolute symbolic link is never followed by the kernel on our behalf except under RESOLVE_IN_ROOT.
 */
#define _GNU_SOURCE
#include "resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINKS_MAX 40       /* as the kernel: path_resolution(7) */
#define RETRIES 32         /* of a look-up that a concurrent rename disturbed */
#define PROC_ROOT_INODE 1  /* PROC_ROOT_INO */

static int open_at(int base, const char *path, uint64_t flags, uint64_t resolve) {
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
    for (int i = 0; i < RETRIES; i++) {
        int fd = (int)syscall(SYS_openat2, base, path, &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) return fd;
    }
    return -1;
}

/* What was moved out of the part of a file system that is mounted is shown as "/" too (prepend_path in the kernel's fs/d_path.c), to who still holds it. */
static int is_root(const struct cg_root *root, int fd) {
    struct stat mine, top;
    return fstat(fd, &mine) == 0 && fstat(root->top, &top) == 0 && mine.st_dev == top.st_dev && mine.st_ino == top.st_ino;
}

/* What the kernel calls a descriptor's file; -1: nothing that fits. */
static ssize_t read_text(const struct cg_root *root, int fd, char *to, size_t size) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    ssize_t n = readlinkat(root->own_fds, number, to, size - 1);
    if (n <= 0 || (size_t)n >= size - 1) return -1;
    to[n] = '\0';
    return n;
}

static int leads_to(const struct cg_root *root, const char *path, int fd) {
    struct stat mine, named;
    const int again = open_at(root->top, path, O_PATH | O_NOFOLLOW, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    const int same = again >= 0 && fstat(fd, &mine) == 0 && fstat(again, &named) == 0 && mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
    if (again >= 0) close(again);
    return same;
}

int cg_descriptor_text(const struct cg_root *root, int fd, char *to, size_t size, size_t *length) {
    static const char deleted[] = " (deleted)";
    const size_t tail = sizeof deleted - 1;
    char once_more[PATH_MAX + NAME_MAX + 2];
    ssize_t n = read_text(root, fd, to, size);
    *length = 0;
    /* A live file may really be called so; then the name leads to it. Otherwise this name was removed, even if the file has another: unless it was removed just
     * now, which the kernel's text tells by another suffix. */
    while (n > (ssize_t)tail && to[0] == '/' && memcmp(to + n - tail, deleted, tail) == 0 && !leads_to(root, to, fd)) {
        const ssize_t again = read_text(root, fd, once_more, sizeof once_more);
        const int settled = again == n && memcmp(to, once_more, (size_t)n) == 0;
        if (settled) to[n -= (ssize_t)tail] = '\0';
        else if (again < 0 || (size_t)again >= size) n = -1;
        else memcpy(to, once_more, (size_t)(n = again) + 1);
        if (settled) break;
    }
    if (n > 0) *length = (size_t)n;
    if (n > 0 && to[0] == '/' && (n > 1 || is_root(root, fd))) return 0;
    if (n <= 0 || to[0] == '/') *length = 0, to[0] = '\0';
    return -1;
}

void cg_path_release(struct cg_path *path) {
    if (path->object >= 0) close(path->object);
    if (path->parent >= 0) close(path->parent);
    path->object = path->parent = -1;
}

static void clear(struct cg_path *out) {
    out->object = out->parent = -1;
    out->error = out->magic = out->refused = 0;
    out->name[0] = out->text[0] = '\0';
    out->length = 0;
}

/* out->text becomes directory + "/" + the lexical rest: the name that would be, of something that cannot be looked up. */
static void would_be(const struct cg_root *root, int directory, const char *rest, struct cg_path *out) {
    size_t n;
    if (cg_descriptor_text(root, directory, out->text, sizeof out->text, &n) != 0) { /* nowhere: then nothing is anywhere below it */
        out->text[0] = '\0', out->length = 0;
        return;
    }
    while (n > 0 && out->text[n - 1] == '/') n--;
    const size_t floor = 0;
    while (*rest) {
        while (*rest == '/') rest++;
        size_t part = strcspn(rest, "/");
        if (part == 0) break;
        if (part == 1 && rest[0] == '.') {
        } else if (part == 2 && rest[0] == '.' && rest[1] == '.') {
            while (n > floor && out->text[n - 1] != '/') n--;
            if (n > floor) n--;
        } else if (n + 1 + part < sizeof out->text) {
            out->text[n++] = '/';
            memcpy(out->text + n, rest, part);
            n += part;
        }
        rest += part;
    }
    if (n == 0) out->text[n++] = '/';
    out->text[n] = '\0';
    out->length = n;
}

size_t cg_plain_length(const char *path) {
    const char *at = path;
    while (*at == '/') {
        const char *name = ++at;
        while (*at != '/' && *at != '\0') at++;
        const size_t part = (size_t)(at - name);
        if (part == 0 || (name[0] == '.' && (part == 1 || (part == 2 && name[1] == '.')))) return 0;
    }
    return (size_t)(at - path);
}

int cg_open_plain(const struct cg_root *root, const char *path, int flags) {
    return open_at(root->top, path, (uint64_t)flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS);
}

/* 1: the path is its own text, which out then has. Only where no link was followed. */
static int is_text(const char *path, struct cg_path *out) {
    out->length = cg_plain_length(path);
    if (out->length > 0) memcpy(out->text, path, out->length + 1);
    return out->length > 0;
}

static int finish(const struct cg_root *root, struct cg_path *out) {
    if (cg_descriptor_text(root, out->object, out->text, sizeof out->text, &out->length) != 0 && out->length == 0) out->error = ENOENT;
    return out->error;
}

static int is_directory(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

static int is_proc(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

/* /proc/<pid>/... -> pid; 0 when the descriptor is elsewhere. */
static pid_t proc_owner(const struct cg_root *root, int fd) {
    char text[PATH_MAX];
    size_t n;
    if (cg_descriptor_text(root, fd, text, sizeof text, &n) != 0) return 0;
    if (strncmp(text, "/proc/", 6) != 0) return 0;
    char *end;
    long pid = strtol(text + 6, &end, 10);
    return end != text + 6 && (*end == '/' || *end == '\0') && pid > 0 ? (pid_t)pid : 0;
}

/* Does "a/b/../c" name ".." anywhere? */
static int goes_up(const char *path) {
    for (const char *at = path; *at; at += strcspn(at, "/")) {
        while (*at == '/') at++;
        if (at[0] == '.' && at[1] == '.' && (at[2] == '/' || at[2] == '\0')) return 1;
    }
    return 0;
}

struct place { dev_t device; ino_t inode; uint64_t mount; };

static int place_of(int fd, struct place *to) {
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) != 0) return -1;
    *to = (struct place){makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino, st.stx_mnt_id};
    return 0;
}

struct walk {
    const struct cg_root *root;
    const struct cg_resolver *who;
    struct cg_path *out;
    unsigned flags;
    int here;            /* the directory the walk has come to */
    int floor;           /* what BENEATH and IN_ROOT do not leave, and where absolute links of IN_ROOT lead; not closed */
    int depth;           /* named components since the start: going up from those is judged */
    int links;           /* symbolic links followed */
    struct place start;  /* for BENEATH, IN_ROOT and NO_XDEV */
};

static void stop(struct walk *walk, int error, const char *rest) {
    walk->out->error = error;
    would_be(walk->root, walk->here, rest, walk->out);
}

/* 0, or the walk ends here, with `rest` to go, because the asker may not be told about `name` below here ("" = here itself). */
static int judge_traversal(struct walk *walk, const char *name, const char *rest) {
    struct cg_path *out = walk->out;
    if (!walk->who->traverse) return 0;
    would_be(walk->root, walk->here, name, out);
    if (out->length == 0) { /* no name to judge: a pipe of the asker's own, or a directory that has left its mount, with nothing above it for the kernel either */
        stop(walk, is_directory(walk->here) ? ENOENT : ENOTDIR, rest);
        return -1;
    }
    if (walk->who->traverse(walk->who->context, out->text, out->length)) return 0;
    out->refused = 1;
    out->way_length = out->length;
    memcpy(out->way, out->text, out->length + 1);
    stop(walk, EACCES, rest);
    return -1;
}

/* A name that the kernel would fail on. The last one is judged by whoever asked for it; one on the way here, so that a missing one and one that is no directory
 * are answered alike where neither may be told. */
static void fail_at(struct walk *walk, int error, const char *at, const char *name, const char *after) {
    if (*after && judge_traversal(walk, name, at) != 0) return;
    stop(walk, error, at);
}

static int step_to(struct walk *walk, int fd, const char *at) {
    struct place place;
    if (walk->flags & CG_RESOLVE_NO_XDEV && (place_of(fd, &place) != 0 || place.mount != walk->start.mount)) {
        close(fd);
        stop(walk, EXDEV, at);
        return -1;
    }
    close(walk->here);
    walk->here = fd;
    return 0;
}

static int go_up(struct walk *walk, const char *at) {
    struct place place;
    if (walk->flags & (CG_RESOLVE_BENEATH | CG_RESOLVE_IN_ROOT)) {
        if (place_of(walk->here, &place) != 0) { stop(walk, errno, at); return -1; }
        if (place.device == walk->start.device && place.inode == walk->start.inode && place.mount == walk->start.mount) {
            if (walk->flags & CG_RESOLVE_IN_ROOT) return 0;
            stop(walk, EXDEV, at);
            return -1;
        }
    }
    if (walk->depth > 0) {
        walk->depth--;
        if (judge_traversal(walk, "", at) != 0) return -1;
    }
    int fd = openat(walk->here, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) { stop(walk, errno, at); return -1; }
    return step_to(walk, fd, at);
}

/* What a link in /proc leads to, which names an object and not a path: only the caller's own are followed. -1: the walk ends. */
static int follow_magic(struct walk *walk, pid_t owner, const char *name, const char *at) {
    const struct cg_self me = walk->who->self ? walk->who->self(walk->who->context) : (struct cg_self){0, 0};
    int error = 0, fd = -1;
    if (walk->flags & (CG_RESOLVE_BENEATH | CG_RESOLVE_IN_ROOT)) error = EXDEV;
    if (walk->flags & (CG_RESOLVE_NO_LINKS | CG_RESOLVE_NO_MAGIC)) error = ELOOP;
    if (!error && owner != me.tgid && owner != me.tid) error = EACCES;
    if (!error && (fd = openat(walk->here, name, O_PATH | O_CLOEXEC)) < 0) error = errno;
    if (error) { stop(walk, error, at); return -1; }
    walk->out->magic = 1;
    walk->depth = 0;
    return step_to(walk, fd, at);
}

/* The text of the symbolic link `name`, already pinned as `entry`, or of /proc/self (entry -1). Its length, or -1. */
static ssize_t link_text(struct walk *walk, int entry, const char *name, char *to, size_t size) {
    if (entry >= 0) return readlinkat(entry, "", to, size);
    const struct cg_self me = walk->who->self ? walk->who->self(walk->who->context) : (struct cg_self){0, 0};
    if (me.tgid == 0) { errno = ENOENT; return -1; }
    return strcmp(name, "self") == 0 ? snprintf(to, size, "%d", me.tgid) : snprintf(to, size, "%d/task/%d", me.tgid, me.tid);
}

static int is_proc_root(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_ino == PROC_ROOT_INODE;
}

/* Take one component. 1: go on with *rest; 0: the walk is over and out is filled. */
static int take_component(struct walk *walk, char **rest, char **spare, const char *at, int want_parent) {
    struct cg_path *out = walk->out;
    char name[NAME_MAX + 2], link[PATH_MAX];
    const size_t part = strcspn(at, "/"), kept = part > NAME_MAX ? NAME_MAX + 1 : part;
    memcpy(name, at, kept); /* one byte too many is as much too long as more: the kernel says which error comes first */
    name[kept] = '\0';
    const char *after = at + part;
    while (*after == '/') after++;
    const int last = *after == '\0', slash = at[part] == '/';
    const size_t tail = strlen(after);

    if (walk->depth > 0 && !is_directory(walk->here)) { /* the file before was no directory: judged as the name on the way that it is */
        if (judge_traversal(walk, "", at) == 0) stop(walk, ENOTDIR, at);
        return 0;
    }
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        if (name[1] == '.' && go_up(walk, at) != 0) return 0;
        if (name[1] == '\0' && faccessat(walk->here, ".", F_OK, 0) != 0) { /* looked up as any name, which takes the right to search */
            stop(walk, errno, at);
            return 0;
        }
        memmove(*rest, after, tail + 1);
        return 1;
    }
    const int proc = is_proc(walk->here);
    /* /proc/self: the kernel would answer for the resolving process, which the VM's /proc does not know. */
    const int self = proc && (strcmp(name, "self") == 0 || strcmp(name, "thread-self") == 0) && is_proc_root(walk->here);
    const int keep = last && (want_parent || (!(walk->flags & CG_RESOLVE_FOLLOW) && !slash)); /* a final link is the object */
    int entry = -1;
    struct stat st = {.st_mode = S_IFLNK};
    if (!self || keep) {
        entry = openat(walk->here, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (entry < 0 || fstat(entry, &st) != 0) {
            const int error = errno;
            if (entry >= 0) close(entry);
            fail_at(walk, error, at, name, after);
            if (last && error == ENOENT && !out->refused) {
                out->parent = walk->here, walk->here = -1;
                snprintf(out->name, sizeof out->name, "%s%s", name, slash ? "/" : "");
            }
            return 0;
        }
    }
    if (keep || !S_ISLNK(st.st_mode)) {
        struct place place;
        if (last && walk->flags & CG_RESOLVE_NO_XDEV && (place_of(entry, &place) != 0 || place.mount != walk->start.mount)) {
            close(entry);
            stop(walk, EXDEV, at);
            return 0;
        }
        if (!last) {
            walk->depth++;
            if (step_to(walk, entry, at) != 0) return 0;
            memmove(*rest, after, tail + 1);
            return 1;
        }
        out->object = entry;
        snprintf(out->name, sizeof out->name, "%s%s", name, slash ? "/" : "");
        if (finish(walk->root, out) == 0 && slash && !want_parent && !S_ISDIR(st.st_mode)) out->error = ENOTDIR;
        out->parent = walk->here, walk->here = -1;
        return 0;
    }
    const pid_t owner = proc && !self ? proc_owner(walk->root, walk->here) : 0;
    if (owner) {
        close(entry);
        if (follow_magic(walk, owner, name, at) != 0) return 0;
        memmove(*rest, after, tail + 1);
        if (!last) return 1;
        out->object = walk->here, walk->here = -1;
        if (finish(walk->root, out) == 0 && slash && fstat(out->object, &st) == 0 && !S_ISDIR(st.st_mode)) out->error = ENOTDIR;
        return 0;
    }
    const ssize_t length = walk->flags & CG_RESOLVE_NO_LINKS || ++walk->links > LINKS_MAX ? (errno = ELOOP, -1) : link_text(walk, entry, name, link, sizeof link - 1);
    const int error = length < 0 ? errno : length == 0 ? ENOENT : (size_t)length + 1 + tail >= 2 * PATH_MAX ? ENAMETOOLONG : 0;
    if (entry >= 0) close(entry);
    if (error) { fail_at(walk, error, at, name, after); return 0; }
    memcpy(*spare, link, (size_t)length);
    size_t n = (size_t)length;
    if (!last || slash) (*spare)[n++] = '/';
    memcpy(*spare + n, after, tail + 1);
    char *swap = *rest;
    *rest = *spare, *spare = swap;
    if (link[0] != '/') return 1;
    if (walk->flags & CG_RESOLVE_BENEATH) { stop(walk, EXDEV, at); return 0; }
    int fd = fcntl(walk->flags & CG_RESOLVE_IN_ROOT ? walk->floor : walk->root->top, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) { stop(walk, errno, at); return 0; }
    walk->depth = 0;
    return step_to(walk, fd, at) == 0;
}

/* The walk, component by component. With `want_parent` the last component is not followed and out->parent is set. */
static int walk_path(const struct cg_root *root, int base, const char *path, unsigned flags, int want_parent, const struct cg_resolver *who,
                     struct cg_path *out) {
    static const struct cg_resolver nobody;
    const size_t size = strlen(path), room = 2 * PATH_MAX + 2;
    const int start = (path[0] == '/' && !(flags & CG_RESOLVE_IN_ROOT)) || base < 0 ? root->top : base;
    struct walk walk = {.root = root, .who = who ? who : &nobody, .out = out, .flags = flags, .here = -1, .floor = start};
    clear(out);
    if (size >= PATH_MAX) return out->error = ENAMETOOLONG;
    char *rest = malloc(room), *spare = malloc(room);
    if (!rest || !spare) out->error = ENOMEM;
    else if (path[0] == '/' && flags & CG_RESOLVE_BENEATH) out->error = EXDEV;
    else if ((walk.here = fcntl(start, F_DUPFD_CLOEXEC, 0)) < 0) out->error = errno;
    else if (flags & (CG_RESOLVE_BENEATH | CG_RESOLVE_IN_ROOT | CG_RESOLVE_NO_XDEV) && place_of(walk.here, &walk.start) != 0) out->error = errno;
    else if (!is_directory(walk.here)) out->error = ENOTDIR; /* also for "/" under IN_ROOT, which names nothing below it */
    if (!out->error) {
        memcpy(rest, path, size + 1);
        for (;;) {
            const char *at = rest + strspn(rest, "/");
            if (*at == '\0') { /* nothing left: here is the object */
                out->object = walk.here, walk.here = -1;
                finish(root, out);
                break;
            }
            if (!take_component(&walk, &rest, &spare, at, want_parent)) break;
        }
    } else if (walk.here >= 0) would_be(root, walk.here, path, out);
    if (walk.here >= 0) close(walk.here);
    free(rest), free(spare);
    return out->error;
}

int cg_resolve(const struct cg_root *root, int base, const char *path, unsigned flags, const struct cg_resolver *who, struct cg_path *out) {
    clear(out);
    if (path[0] == '\0') {
        if (!(flags & CG_RESOLVE_EMPTY)) return out->error = ENOENT;
        out->object = fcntl(base < 0 ? root->top : base, F_DUPFD_CLOEXEC, 0);
        if (out->object < 0) return out->error = errno;
        return finish(root, out);
    }
    const int judged = who && who->traverse;
    if (flags & (CG_RESOLVE_BENEATH | CG_RESOLVE_IN_ROOT | CG_RESOLVE_NO_XDEV | CG_RESOLVE_NO_LINKS) || (judged && goes_up(path)))
        return walk_path(root, base, path, flags, 0, who, out);
    const uint64_t open_flags = O_PATH | (flags & CG_RESOLVE_FOLLOW ? 0 : O_NOFOLLOW);
    /* A link's text may hold "..": where the way is judged, links are walked. */
    const uint64_t resolve = RESOLVE_NO_MAGICLINKS | (judged ? RESOLVE_NO_SYMLINKS : 0);
    if (path[0] == '/' || base < 0) out->object = open_at(root->top, path, open_flags, RESOLVE_IN_ROOT | resolve);
    else out->object = open_at(base, path, open_flags, RESOLVE_BENEATH | resolve);
    if (out->object < 0) return walk_path(root, base, path, flags, 0, who, out);
    /* No link was followed: what was opened had this very name while it was looked up. */
    if (judged && path[0] == '/' && is_text(path, out)) return 0;
    return finish(root, out);
}

int cg_resolve_parent(const struct cg_root *root, int base, const char *path, unsigned flags, const struct cg_resolver *who, struct cg_path *out) {
    clear(out);
    if (path[0] == '\0') return out->error = ENOENT;
    size_t end = strlen(path);
    if (end >= PATH_MAX) return out->error = ENAMETOOLONG;
    int slash = 0;
    while (end > 1 && path[end - 1] == '/') end--, slash = 1;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    const size_t part = end - start;
    if (part == 0 || (part == 1 && path[start] == '.') || (part == 2 && path[start] == '.' && path[start + 1] == '.'))
        return cg_resolve(root, base, path, flags | CG_RESOLVE_FOLLOW, who, out);
    const int judged = who && who->traverse;
    char head[PATH_MAX];
    memcpy(head, path, start);
    head[start] = '\0';
    const uint64_t resolve = RESOLVE_NO_MAGICLINKS | (judged ? RESOLVE_NO_SYMLINKS : 0);
    if (part > NAME_MAX || flags || (judged && goes_up(head))) out->parent = -1;
    else if (start == 0) out->parent = fcntl(base < 0 ? root->top : base, F_DUPFD_CLOEXEC, 0);
    else if (path[0] == '/' || base < 0) out->parent = open_at(root->top, head, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT | resolve);
    else out->parent = open_at(base, head, O_PATH | O_DIRECTORY, RESOLVE_BENEATH | resolve);
    if (out->parent < 0) return walk_path(root, base, path, flags, 1, who, out);
    memcpy(out->name, path + start, part);
    out->name[part] = '\0';
    out->object = openat(out->parent, out->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (out->object < 0) out->error = errno;
    size_t n;
    if (judged && !slash && path[0] == '/' && is_text(path, out)) return out->error;
    if (cg_descriptor_text(root, out->parent, out->text, sizeof out->text, &n) != 0) {
        cg_path_release(out);
        return out->error = ENOENT;
    }
    if (n == 1) n = 0;
    if (n + 1 + part >= sizeof out->text) {
        cg_path_release(out);
        return out->error = ENAMETOOLONG;
    }
    out->text[n] = '/';
    memcpy(out->text + n + 1, out->name, part + 1);
    out->length = n + 1 + part;
    if (slash) out->name[part] = '/', out->name[part + 1] = '\0';
    return out->error;
}
