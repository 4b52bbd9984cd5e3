/* Path resolution on pinned descriptors, in the VM's root, with the kernel's own meaning of a path. */
#ifndef CG_RESOLVE_H
#define CG_RESOLVE_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

/* Where paths start and how descriptors are turned back into paths. All are O_PATH descriptors held for the VM's life. */
struct cg_root {
    int top;      /* the root of the VM's mount namespace */
    int own_fds;  /* the resolving process's own /proc/self/fd */
    int host_proc; /* the host's /proc */
};

/* Whose /proc/self a path means; all 0: nobody's (then /proc/self does not exist). */
struct cg_self { pid_t tgid, tid; };

enum { CG_RESOLVE_FOLLOW = 1,         /* the last component too, if it is a symbolic link */
       CG_RESOLVE_EMPTY = 2,          /* "" means the base itself (AT_EMPTY_PATH) */
       CG_RESOLVE_NO_LINKS = 4,       /* the rest: openat2(2), RESOLVE_NO_SYMLINKS */
       CG_RESOLVE_NO_MAGIC = 8,       /* RESOLVE_NO_MAGICLINKS */
       CG_RESOLVE_BENEATH = 16,       /* RESOLVE_BENEATH */
       CG_RESOLVE_IN_ROOT = 32,       /* RESOLVE_IN_ROOT */
       CG_RESOLVE_NO_XDEV = 64 };     /* RESOLVE_NO_XDEV */

struct cg_path {
    int object;                 /* O_PATH descriptor, or -1: nothing there (error says why) */
    int parent;                 /* directory that holds the last name, or -1 (asked for with cg_resolve_parent, or error ENOENT) */
    int error;                  /* 0, or the errno the kernel's own look-up ends in */
    int magic;                  /* 1: reached through a descriptor link in /proc */
    int refused;                /* 1: `traverse` said no to `way`; text is the name that would be */
    char name[NAME_MAX + 3];    /* the last name ("" when there is none), with a trailing '/' if the path had one */
    size_t length, way_length;
    char way[PATH_MAX + NAME_MAX + 2];
    char text[PATH_MAX + NAME_MAX + 2]; /* the resolved path in the VM: what the policy judges. With an error: the name that would be */
};

/* Who asks. Any function may be NULL. */
struct cg_resolver {
    void *context;
    /* Asked only when a path goes through /proc/self. NULL: then /proc/self does not exist. */
    struct cg_self (*self)(void *context);
    /* May the asker be told whether this name exists and is a directory? Asked where a path goes into it only to leave it again by "..", so that
     * the answer would otherwise tell. 0: no. */
    int (*traverse)(void *context, const char *text, size_t length);
};

/* The object a path names. `base` is an O_PATH descriptor for relative paths (not closed), -1: the root. Always fills `out`;
 * returns out->error. */
int cg_resolve(const struct cg_root *root, int base, const char *path, unsigned flags, const struct cg_resolver *who, struct cg_path *out);
/* The directory that holds the last component, and the component; the component itself is not followed. out->object is the object there, or -1
 * with error ENOENT. Paths whose last component is "." or ".." or which are "/" give name "". `flags`: only those of openat2(2). */
int cg_resolve_parent(const struct cg_root *root, int base, const char *path, unsigned flags, const struct cg_resolver *who, struct cg_path *out);
/* The length of an absolute path that is already the resolved one unless a link is met: no ".", "..", doubled or trailing slash. 0: it is another. */
size_t cg_plain_length(const char *path);
/* open(2) of such a path below the root, which fails where a link would have to be followed. */
int cg_open_plain(const struct cg_root *root, const char *path, int flags);
void cg_path_release(struct cg_path *);
/* The path of a descriptor in its mount namespace's view; "" and -1 if it has none. A deleted file's path is the one it had. */
int cg_descriptor_text(const struct cg_root *root, int fd, char *to, size_t size, size_t *length);

#endif
