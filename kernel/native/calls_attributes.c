/* Extended attributes, and the file attributes of Linux 6.17, by path and by descriptor. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "calls.h"
#include "fs_target.h"

#ifndef SYS_setxattrat /* Linux 6.13 */
#define SYS_setxattrat 463
#define SYS_getxattrat 464
#define SYS_listxattrat 465
#define SYS_removexattrat 466
#endif
#ifndef SYS_file_getattr /* Linux 6.17 */
#define SYS_file_getattr 468
#define SYS_file_setattr 469
#endif
#define FILE_ATTR_MAX 256u

enum action { GET, SET, LIST, REMOVE };

struct attribute {
    enum action action;
    uint64_t name, value, size; /* the guest's pointers, and the size of its buffer */
    int flags;
};

static void do_attribute(struct cg_call *call, const struct cg_fs_target *target, unsigned resolve_flags, const struct attribute *what) {
    const bool writes = what->action == SET || what->action == REMOVE;
    char name[XATTR_NAME_MAX + 1] = "";
    struct cg_path path;
    uint8_t *buffer = NULL;
    int error = what->action == LIST ? 0 : cg_read_string(call, what->name, name, sizeof name);
    if (error == -ENAMETOOLONG || (!error && what->action != LIST && name[0] == '\0')) error = -ERANGE;
    if (!error && what->action == SET && what->size > XATTR_SIZE_MAX) error = -E2BIG;
    const size_t room = what->action == REMOVE ? 0 : what->size > XATTR_SIZE_MAX ? XATTR_SIZE_MAX : what->size;
    if (!error && room && !(buffer = malloc(room))) error = -ENOMEM;
    if (!error && what->action == SET) error = cg_read_memory(call, what->value, buffer, room);
    if (error) cg_answer_error(call, -error);
    else if (fs_find(call, target, resolve_flags, writes ? CG_FS_OP_WRITE : CG_FS_OP_READ, &path) == 0) {
        const struct cg_own_path own = fs_own_path(path.object);
        ssize_t n = what->action == SET      ? setxattr(own.text, name, buffer, room, what->flags)
                    : what->action == REMOVE ? removexattr(own.text, name)
                    : what->action == LIST   ? listxattr(own.text, (char *)buffer, room)
                                             : getxattr(own.text, name, buffer, room);
        if (n < 0) cg_answer_error(call, errno);
        else if (!writes && room && (error = cg_write_memory(call, what->value, buffer, (size_t)n)) != 0) cg_answer_error(call, -error);
        else cg_answer_value(call, n);
        cg_path_release(&path);
    }
    free(buffer);
}

/* xattr_args of the *xattrat calls: a value's address, its size, flags. */
static int read_arguments(struct cg_call *call, struct attribute *what) {
    struct { uint64_t value; uint32_t size, flags; } given;
    if (call->args[5] < sizeof given) return -EINVAL;
    if (call->args[5] > sizeof given) return -E2BIG; /* of a later kernel: its meaning is not known here */
    int error = cg_read_memory(call, call->args[4], &given, sizeof given);
    if (!error && what->action == GET && given.flags) error = -EINVAL;
    what->value = given.value, what->size = given.size, what->flags = (int)given.flags;
    return error;
}

static void attribute_at(struct cg_call *call) {
    const int nr = call->nr;
    const uint64_t flags = (uint32_t)call->args[2], *args = call->args;
    struct attribute what = {.action = nr == SYS_setxattrat ? SET : nr == SYS_getxattrat ? GET : nr == SYS_listxattrat ? LIST : REMOVE, .name = args[3]};
    struct cg_fs_target target;
    int error = flags & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) ? -EINVAL : 0;
    if (!error && (what.action == SET || what.action == GET)) error = read_arguments(call, &what);
    if (what.action == LIST) what.value = args[3], what.size = args[4];
    if (error) { cg_answer_error(call, -error); return; }
    if (fs_target_read(call, (int)args[0], args[1], FS_TARGET_EMPTY, &target) != 0) return;
    do_attribute(call, &target, (flags & AT_SYMLINK_NOFOLLOW ? 0 : CG_RESOLVE_FOLLOW) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0), &what);
    fs_target_release(&target);
}

void fs_xattr(struct cg_call *call) {
    const int nr = call->nr;
    const uint64_t *args = call->args;
    if (nr >= SYS_setxattrat && nr <= SYS_removexattrat) { attribute_at(call); return; }
    const bool link = nr == SYS_lsetxattr || nr == SYS_lgetxattr || nr == SYS_llistxattr || nr == SYS_lremovexattr;
    struct attribute what = {.action = GET, .name = args[1], .value = args[2], .size = args[3], .flags = (int)args[4]};
    if (nr == SYS_setxattr || nr == SYS_lsetxattr) what.action = SET;
    else if (nr == SYS_removexattr || nr == SYS_lremovexattr) what.action = REMOVE;
    else if (nr == SYS_listxattr || nr == SYS_llistxattr) what.action = LIST, what.value = args[1], what.size = args[2];
    struct cg_fs_target target;
    if (fs_target_read(call, AT_FDCWD, args[0], 0, &target) != 0) return;
    do_attribute(call, &target, link ? 0 : CG_RESOLVE_FOLLOW, &what);
    fs_target_release(&target);
}

void fs_fxattr(struct cg_call *call) {
    const uint64_t *args = call->args;
    struct attribute what = {.action = GET, .name = args[1], .value = args[2], .size = args[3], .flags = (int)args[4]};
    if (call->nr == SYS_fsetxattr) what.action = SET;
    else if (call->nr == SYS_fremovexattr) what.action = REMOVE;
    else if (call->nr == SYS_flistxattr) what.action = LIST, what.value = args[1], what.size = args[2];
    struct cg_fs_target target;
    if (fs_target_descriptor(call, (int)args[0], &target) != 0) return;
    do_attribute(call, &target, CG_RESOLVE_EMPTY, &what);
    fs_target_release(&target);
}

/* file_getattr, file_setattr: performed by the same call on the pinned object, so that the kernel checks size and meaning. */
void fs_attributes(struct cg_call *call) {
    const bool sets = call->nr == SYS_file_setattr;
    const uint64_t flags = (uint32_t)call->args[4], size = call->args[3];
    uint8_t data[FILE_ATTR_MAX] = {0};
    struct cg_fs_target target;
    struct cg_path path;
    int error = flags & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) ? -EINVAL : size > sizeof data ? -E2BIG : 0;
    if (!error && sets) error = cg_read_memory(call, call->args[2], data, size);
    if (error) { cg_answer_error(call, -error); return; }
    if (fs_target_read(call, (int)call->args[0], call->args[1], FS_TARGET_EMPTY, &target) != 0) return;
    const unsigned resolve = (flags & AT_SYMLINK_NOFOLLOW ? 0 : CG_RESOLVE_FOLLOW) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0);
    if (fs_find(call, &target, resolve, sets ? CG_FS_OP_WRITE : CG_FS_OP_STAT, &path) == 0) {
        if (syscall(call->nr, path.object, "", data, size, AT_EMPTY_PATH) != 0) cg_answer_error(call, errno);
        else if (!sets && (error = cg_write_memory(call, call->args[2], data, size)) != 0) cg_answer_error(call, -error);
        else cg_answer_value(call, 0);
        cg_path_release(&path);
    }
    fs_target_release(&target);
}
