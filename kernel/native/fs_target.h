/* A path argument of a guest's call (or of vm.fs), and what is done with it: read once, resolved, judged. */
#ifndef CG_FS_TARGET_H
#define CG_FS_TARGET_H

#include "supervisor.h"

struct cg_fs_target {
    int base;                /* O_PATH descriptor that a relative path starts from; -1: the root */
    char path[PATH_MAX];     /* our copy: what the guest does to its own from here on changes nothing */
};

/* How a path argument is taken. EMPTY: it may be "" (AT_EMPTY_PATH). LOOKS: the call changes nothing, and its result is written or handed over to whoever makes
 * this very call; so it may be begun before it is known that the caller still waits. */
enum { FS_TARGET_EMPTY = 1u, FS_TARGET_LOOKS = 2u };

/* Both give 0, or -1 with the call answered. A null pointer is EFAULT, an empty path ENOENT unless it may be one. */
int fs_target_read(struct cg_call *, int dirfd, uint64_t pointer, unsigned how, struct cg_fs_target *);
int fs_target_descriptor(struct cg_call *, int fd, struct cg_fs_target *); /* the object of a descriptor: path "" */
int fs_target_open_file(struct cg_call *, int fd, struct cg_fs_target *);  /* the same; EBADF for one that O_PATH gave, which is no open file */
void fs_target_set(struct cg_fs_target *, const char *path);               /* vm.fs: absolute */
void fs_target_release(struct cg_fs_target *);

int fs_resolve(struct cg_call *, const struct cg_fs_target *, unsigned flags, struct cg_path *);
int fs_resolve_parent(struct cg_call *, const struct cg_fs_target *, unsigned flags, struct cg_path *);
/* Judge one operation on a resolved path; a refusal is recorded and answered. True = allowed. */
bool fs_judge(struct cg_call *, const struct cg_fs_target *, unsigned operation, const struct cg_path *);
bool fs_would_allow(struct cg_call *, unsigned operation, const char *text, size_t length); /* no record, no answer */
void fs_refuse(struct cg_call *, const struct cg_fs_target *, unsigned operation, int32_t rule, const struct cg_path *, const char *reason);
/* Resolve and judge: 0 with a pinned object, or -1 with the call answered and nothing held. */
int fs_find(struct cg_call *, const struct cg_fs_target *, unsigned flags, unsigned operation, struct cg_path *);
/* The caller's umask becomes this thread's. */
void fs_use_umask(struct cg_call *);
/* "/proc/self/fd/N" of one of our own descriptors: how a pinned object is operated on by calls that take a path. */
struct cg_own_path { char text[32]; };
struct cg_own_path fs_own_path(int fd);
int fs_reopen(struct cg_call *, int object, int flags, mode_t mode); /* open(2) of a pinned object */

/* The operations themselves, for guests and for vm.fs. Each answers the call; none releases the target. */
void fs_do_open(struct cg_call *, const struct cg_fs_target *, uint64_t flags, mode_t mode, uint64_t resolve, bool close_on_exec);
void fs_do_mkdir(struct cg_call *, const struct cg_fs_target *, mode_t mode);
void fs_do_unlink(struct cg_call *, const struct cg_fs_target *, bool directory);
void fs_do_rename(struct cg_call *, const struct cg_fs_target *from, const struct cg_fs_target *to, unsigned flags);
void fs_do_symlink(struct cg_call *, const char *text, const struct cg_fs_target *link);
void fs_do_link(struct cg_call *, const struct cg_fs_target *from, bool follow, const struct cg_fs_target *to);
void fs_do_chmod(struct cg_call *, const struct cg_fs_target *, unsigned resolve_flags, mode_t mode);
void fs_do_truncate(struct cg_call *, const struct cg_fs_target *, int64_t length);

#endif
