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
#define FILE_ATTR_MAX 4096u /* a page: the kernel takes no more either */
#define ACL_USER 2 /* tags of entries that name an id */
#define ACL_GROUP 8

enum action { GET, SET, LIST, REMOVE };

struct attribute {
    enum action action;
    uint64_t name, value, size; /* the guest's pointers, and the size of its buffer */
    int flags;
};

/* posix_acl_xattr.h: a version, then entries of tag, rights and id. Ids are of the user namespace of who makes the call. */
static int translate_acl(struct cg_call *call, const char *name, uint8_t *value, ssize_t size, bool inwards) {
    if (strcmp(name, "system.posix_acl_access") != 0 && strcmp(name, "system.posix_acl_default") != 0) return 0;
    for (ssize_t at = 4; at + 8 <= size; at += 8) {
        uint16_t tag;
        uint32_t id;
        memcpy(&tag, value + at, sizeof tag), memcpy(&id, value + at + 4, sizeof id);
        if (tag != ACL_USER && tag != ACL_GROUP) continue;
        const uint32_t inside = tag == ACL_USER ? call->vm->launch.guest_uid : call->vm->launch.guest_gid, outside = tag == ACL_USER ? call->vm->uid : call->vm->gid;
        if (!inwards && id != inside) return -EINVAL; /* no such id in the VM */
        id = !inwards ? outside : id == outside ? inside : UINT32_MAX;
        memcpy(value + at + 4, &id, sizeof id);
    }
    return 0;
}

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
    if (!error && what->action == SET) error = translate_acl(call, name, buffer, (ssize_t)room, false);
    if (error) cg_answer_error(call, -error);
    else if (fs_find(call, target, resolve_flags, writes ? CG_FS_OP_WRITE : CG_FS_OP_READ, &path) == 0) {
        const struct cg_own_path own = fs_own_path(path.object);
        ssize_t n = what->action == SET      ? setxattr(own.text, name, buffer, room, what->flags)
                    : what->action == REMOVE ? removexattr(own.text, name)
                    : what->action == LIST   ? listxattr(own.text, (char *)buffer, room)
                                             : getxattr(own.text, name, buffer, room);
        if (what->action == GET && room) translate_acl(call, name, buffer, n, true);
        if (n < 0) cg_answer_error(call, errno);
        else if (!writes && room && (error = cg_write_memory(call, what->value, buffer, (size_t)n)) != 0) cg_answer_error(call, -error);
        else cg_answer_value(call, n);
        cg_path_release(&path);
    }
    free(buffer);
}

/* xattr_args of the *xattrat calls: a value's address, its size, flags. */
static int read_arguments(struct cg_call *call, struct attribute *what) {
    struct { uint64_t value; uint32_t size, flags; } given = {0};
    int error = cg_read_structure(call, call->args[4], call->args[5], &given, sizeof given);
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
    if (args[1] == 0 && flags & AT_EMPTY_PATH && (int)args[0] != AT_FDCWD) error = fs_target_open_file(call, (int)args[0], &target);
    else error = fs_target_read(call, (int)args[0], args[1], FS_TARGET_EMPTY, &target);
    if (error) return;
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
    if (fs_target_open_file(call, (int)args[0], &target) != 0) return;
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
        /* By a path: by descriptor they want one that is really open. */
        if (syscall(call->nr, AT_FDCWD, fs_own_path(path.object).text, data, size, 0) != 0) cg_answer_error(call, errno);
        else if (!sets && (error = cg_write_memory(call, call->args[2], data, size)) != 0) cg_answer_error(call, -error);
        else cg_answer_value(call, 0);
        cg_path_release(&path);
    }
    fs_target_release(&target);
}
