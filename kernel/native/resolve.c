/* Path resolution on pinned descriptors.
 *
 * The kernel resolves: one openat2 with RESOLVE_IN_ROOT (absolute paths) or RESOLVE_BENEATH (relative ones), and the path of what was opened is
 * read back from the descriptor. Only where that cannot be exact (a path through /proc/self or another descriptor link, a relative path that leaves
 * its base, a name that does not exist, a rename storm) the components are walked one by one, each on a pinned descriptor.
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

int cg_descriptor_text(const struct cg_root *root, int fd, char *to, size_t size, size_t *length) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    ssize_t n = readlinkat(root->own_fds, number, to, size - 1);
    if (n <= 0 || (size_t)n >= size - 1) goto none;
    static const char deleted[] = " (deleted)";
    const size_t tail = sizeof deleted - 1;
    if (to[0] == '/' && (size_t)n > tail && memcmp(to + n - tail, deleted, tail) == 0) {
        /* A live file may really be called so; then the name leads to it. Otherwise this name was removed, even if the file has another. */
        to[n] = '\0';
        struct stat mine, named;
        int again = open_at(root->top, to, O_PATH | O_NOFOLLOW, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
        const int alive = again >= 0 && fstat(fd, &mine) == 0 && fstat(again, &named) == 0 && mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
        if (again >= 0) close(again);
        if (!alive) n -= (ssize_t)tail;
    }
    to[n] = '\0';
    *length = (size_t)n;
    if (to[0] == '/') return 0;
none:
    if (n <= 0) n = 0, to[0] = '\0';
    *length = (size_t)n;
    return -1;
}

void cg_path_release(struct cg_path *path) {
    if (path->object >= 0) close(path->object);
    if (path->parent >= 0) close(path->parent);
    path->object = path->parent = -1;
}

static void clear(struct cg_path *out) {
    out->object = out->parent = -1;
    out->error = out->magic = 0;
    out->name[0] = out->text[0] = '\0';
    out->length = 0;
}

/* out->text becomes directory + "/" + the lexical rest: the name that would be, of something that cannot be looked up. */
static void would_be(const struct cg_root *root, int directory, const char *rest, struct cg_path *out) {
    size_t n;
    if (cg_descriptor_text(root, directory, out->text, sizeof out->text, &n) != 0) n = 0;
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

static int finish(const struct cg_root *root, struct cg_path *out) {
    if (cg_descriptor_text(root, out->object, out->text, sizeof out->text, &out->length) != 0 && out->length == 0) out->error = ENOENT;
    return out->error;
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

/* The walk, component by component. With `want_parent` the last component is not followed and out->parent is set. */
static int walk(const struct cg_root *root, int base, const char *path, unsigned flags, int want_parent, cg_self_fn self, void *context,
                struct cg_path *out) {
    char *rest = malloc(2 * PATH_MAX + 2), *next_rest = malloc(2 * PATH_MAX + 2);
    int here = -1, links = 0;
    if (!rest || !next_rest) { out->error = ENOMEM; goto out; }
    size_t size = strlen(path);
    if (size >= PATH_MAX) { out->error = ENAMETOOLONG; goto out; }
    memcpy(rest, path, size + 1);
    here = fcntl(rest[0] == '/' || base < 0 ? root->top : base, F_DUPFD_CLOEXEC, 0);
    if (here < 0) { out->error = errno; goto out; }

    const char *at = rest;
    for (;;) {
        while (*at == '/') at++;
        if (*at == '\0') { /* nothing left: here is the object */
            out->object = here, here = -1;
            finish(root, out);
            goto out;
        }
        size_t part = strcspn(at, "/");
        if (part > NAME_MAX) { would_be(root, here, at, out); out->error = ENAMETOOLONG; goto out; }
        char name[NAME_MAX + 1];
        memcpy(name, at, part);
        name[part] = '\0';
        const char *after = at + part;
        while (*after == '/') after++;
        const int last = *after == '\0', slash = at[part] == '/';

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
            int fd = openat(here, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (fd < 0) { out->error = errno; would_be(root, here, at, out); goto out; }
            close(here), here = fd, at = after;
            continue;
        }
        const int proc = is_proc(here);
        char link[PATH_MAX];
        ssize_t link_length = -1;
        int entry = -1;
        struct stat st;
        if (proc && (strcmp(name, "self") == 0 || strcmp(name, "thread-self") == 0) && fstat(here, &st) == 0 && st.st_ino == PROC_ROOT_INODE) {
            /* The kernel would answer for the resolving process, which the VM's /proc does not know. */
            struct cg_self me = self ? self(context) : (struct cg_self){0, 0};
            if (me.tgid == 0) { out->error = ENOENT; would_be(root, here, at, out); goto out; }
            link_length = name[0] == 's' ? snprintf(link, sizeof link, "%d", me.tgid) : snprintf(link, sizeof link, "%d/task/%d", me.tgid, me.tid);
            if (last && !slash && (want_parent || !(flags & CG_RESOLVE_FOLLOW))) {
                entry = openat(here, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                link_length = -1;
            }
        }
        if (link_length < 0 && entry < 0) entry = openat(here, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (link_length < 0 && entry < 0) {
            out->error = errno;
            would_be(root, here, at, out);
            if (last && out->error == ENOENT) {
                out->parent = here, here = -1;
                snprintf(out->name, sizeof out->name, "%s%s", name, slash ? "/" : "");
            }
            goto out;
        }
        if (entry >= 0) {
            if (fstat(entry, &st) != 0) { out->error = errno; close(entry); would_be(root, here, at, out); goto out; }
            const int stop = last && (want_parent || (!(flags & CG_RESOLVE_FOLLOW) && !slash));
            if (stop || !S_ISLNK(st.st_mode)) {
                if (last) {
                    out->object = entry;
                    if (!out->magic) snprintf(out->name, sizeof out->name, "%s%s", name, slash ? "/" : "");
                    if (finish(root, out) == 0 && slash && !want_parent && !S_ISDIR(st.st_mode)) out->error = ENOTDIR;
                    out->parent = here, here = -1;
                    goto out;
                }
                close(here), here = entry, at = after;
                continue;
            }
            if (flags & CG_RESOLVE_NO_LINKS) { out->error = ELOOP; close(entry); would_be(root, here, at, out); goto out; }
            link_length = readlinkat(entry, "", link, sizeof link - 1);
            if (link_length < 0) { out->error = errno; close(entry); would_be(root, here, at, out); goto out; }
            pid_t owner = proc ? proc_owner(root, here) : 0;
            if (owner) {
                /* A descriptor link: it names an object, not a path. Only the caller's own are followed. */
                struct cg_self me = self ? self(context) : (struct cg_self){0, 0};
                close(entry);
                if (owner != me.tgid && owner != me.tid) { out->error = EACCES; would_be(root, here, at, out); goto out; }
                int fd = openat(here, name, O_PATH | O_CLOEXEC);
                if (fd < 0) { out->error = errno; would_be(root, here, at, out); goto out; }
                out->magic = 1;
                close(here), here = fd, at = after;
                if (last) {
                    out->object = here, here = -1;
                    finish(root, out);
                    if (slash && fstat(out->object, &st) == 0 && !S_ISDIR(st.st_mode)) out->error = ENOTDIR;
                    goto out;
                }
                continue;
            }
            close(entry);
        }
        if (++links > LINKS_MAX) { out->error = ELOOP; would_be(root, here, at, out); goto out; }
        link[link_length] = '\0';
        if (link_length == 0) { out->error = ENOENT; would_be(root, here, at, out); goto out; }
        const size_t tail = strlen(after);
        if ((size_t)link_length + 1 + tail >= 2 * PATH_MAX) { out->error = ENAMETOOLONG; would_be(root, here, at, out); goto out; }
        memcpy(next_rest, link, (size_t)link_length);
        size_t n = (size_t)link_length;
        if (!last || slash) next_rest[n++] = '/';
        memcpy(next_rest + n, after, tail + 1);
        char *swap = rest;
        rest = next_rest, next_rest = swap, at = rest;
        if (link[0] == '/') {
            int fd = fcntl(root->top, F_DUPFD_CLOEXEC, 0);
            if (fd < 0) { out->error = errno; goto out; }
            close(here), here = fd;
        }
    }
out:
    if (here >= 0) close(here);
    free(rest), free(next_rest);
    return out->error;
}

int cg_resolve(const struct cg_root *root, int base, const char *path, unsigned flags, cg_self_fn self, void *context, struct cg_path *out) {
    clear(out);
    if (path[0] == '\0') {
        if (!(flags & CG_RESOLVE_EMPTY)) return out->error = ENOENT;
        out->object = fcntl(base < 0 ? root->top : base, F_DUPFD_CLOEXEC, 0);
        if (out->object < 0) return out->error = errno;
        return finish(root, out);
    }
    const uint64_t open_flags = O_PATH | (flags & CG_RESOLVE_FOLLOW ? 0 : O_NOFOLLOW);
    const uint64_t links = flags & CG_RESOLVE_NO_LINKS ? RESOLVE_NO_SYMLINKS : 0;
    if (path[0] == '/' || base < 0)
        out->object = open_at(root->top, path, open_flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | links);
    else
        out->object = open_at(base, path, open_flags, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | links);
    if (out->object >= 0) return finish(root, out);
    return walk(root, base, path, flags, 0, self, context, out);
}

int cg_resolve_parent(const struct cg_root *root, int base, const char *path, cg_self_fn self, void *context, struct cg_path *out) {
    clear(out);
    if (path[0] == '\0') return out->error = ENOENT;
    size_t end = strlen(path);
    if (end >= PATH_MAX) return out->error = ENAMETOOLONG;
    int slash = 0;
    while (end > 1 && path[end - 1] == '/') end--, slash = 1;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    const size_t part = end - start;
    if (part > NAME_MAX) {
        walk(root, base, path, 0, 1, self, context, out);
        return out->error ? out->error : (out->error = ENAMETOOLONG);
    }
    if (part == 0 || (part == 1 && path[start] == '.') || (part == 2 && path[start] == '.' && path[start + 1] == '.')) {
        cg_resolve(root, base, path, CG_RESOLVE_FOLLOW, self, context, out);
        return out->error;
    }
    char head[PATH_MAX];
    memcpy(head, path, start);
    head[start] = '\0';
    if (start == 0) {
        out->parent = fcntl(base < 0 ? root->top : base, F_DUPFD_CLOEXEC, 0);
    } else if (path[0] == '/' || base < 0) {
        out->parent = open_at(root->top, head, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    } else {
        out->parent = open_at(base, head, O_PATH | O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
    }
    if (out->parent < 0) return walk(root, base, path, 0, 1, self, context, out);
    memcpy(out->name, path + start, part);
    out->name[part] = '\0';
    out->object = openat(out->parent, out->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (out->object < 0) out->error = errno;
    size_t n;
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
