/* The VM's private root: the launch blob's set-up steps, done inside the new namespaces on descriptors.
 *
 * Every destination is looked up with RESOLVE_IN_ROOT below the new root, so that no symbolic link, neither of the steps nor of a mounted
 * tree, can lead a later step elsewhere.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <unistd.h>

#include "supervisor.h"

#define STAGING "/tmp" /* covered by the new root's tmpfs until pivot_root; present on every Linux */

static int write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

static int clone_tree(const char *path) {
    return (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
}

static int set_attributes(int tree, uint32_t flags, int user_namespace) {
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOSUID};
    if (!(flags & CG_BIND_DEVICE)) attributes.attr_set |= MOUNT_ATTR_NODEV;
    if (flags & CG_BIND_READ_ONLY) attributes.attr_set |= MOUNT_ATTR_RDONLY;
    if (flags & CG_BIND_NO_EXEC) attributes.attr_set |= MOUNT_ATTR_NOEXEC;
    if (user_namespace >= 0) attributes.attr_set |= MOUNT_ATTR_IDMAP, attributes.userns_fd = (uint64_t)user_namespace;
    return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof attributes);
}

/* A user namespace in which the tree's owner is the guest: for an id-mapped mount (mount_setattr(2)). */
static int owner_namespace(struct cg_vm *vm, uid_t uid, gid_t gid) {
    int gate[2];
    if (pipe2(gate, O_CLOEXEC) != 0) return -1;
    pid_t child = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) < 0) _exit(1);
        _exit(0);
    }
    int fd = -1, error = errno;
    close(gate[0]);
    if (child > 0) {
        char path[64], map[64];
        snprintf(path, sizeof path, "/proc/%d/uid_map", child);
        snprintf(map, sizeof map, "%u %u 1", uid, vm->uid);
        int ok = write_file(path, map) == 0;
        snprintf(path, sizeof path, "/proc/%d/gid_map", child);
        snprintf(map, sizeof map, "%u %u 1", gid, vm->gid);
        ok = ok && write_file(path, map) == 0;
        snprintf(path, sizeof path, "/proc/%d/ns/user", child);
        if (ok) fd = open(path, O_RDONLY | O_CLOEXEC);
        error = errno;
    }
    close(gate[1]);
    if (child > 0) waitpid(child, NULL, 0);
    errno = error;
    return fd;
}

/* The operator's directory with its owner shown as the guest. A filesystem that cannot be id-mapped stays as it is: its modes and owners then
 * decide what the guest may do there. */
static int open_operator_tree(struct cg_vm *vm, const struct cg_step *step) {
    int tree = clone_tree((const char *)step->source);
    struct stat st;
    if (tree < 0) return -1;
    int error = fstat(tree, &st) == 0 ? 0 : errno;
    int owner = error || !(step->flags & CG_BIND_OWNER) ? -1 : owner_namespace(vm, st.st_uid, st.st_gid);
    if (owner >= 0) {
        error = set_attributes(tree, 0, owner) == 0 || errno == EINVAL || errno == EPERM ? 0 : errno;
        close(owner);
    }
    if (error == 0) return tree;
    close(tree);
    errno = error;
    return -1;
}

/* A root host, before it becomes the guest's id: what only root can reach is put where that id can, in a mount namespace of the supervisor's
 * own. (A detached tree made here could not be attached in the VM's namespace, which another user namespace owns.) */
int cg_root_stage_operator_trees(struct cg_vm *vm, struct cg_failure *why) {
    int staged = -1;
    for (size_t i = 0; i < vm->launch.step_count; i++) {
        struct cg_step *step = &vm->launch.steps[i];
        if (step->kind != CG_STEP_BIND || !(step->flags & CG_BIND_OPERATOR)) continue;
        int tree = open_operator_tree(vm, step);
        struct stat st;
        char name[32], *path = malloc(sizeof STAGING + sizeof name);
        if (tree < 0 && step->flags & CG_BIND_OPTIONAL && errno == ENOENT) { free(path); continue; }
        if (tree < 0 || !path || fstat(tree, &st) != 0) return cg_fail(why, "mount", errno, (const char *)step->source);
        snprintf(name, sizeof name, "%zu", i);
        sprintf(path, "%s/%s", STAGING, name);
        step->tree = tree, step->staged = path;
        staged = 1;
    }
    if (staged < 0) return 0;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", STAGING, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=0755") != 0)
        return cg_fail(why, "mount", errno, "the supervisor's own mount namespace");
    for (size_t i = 0; i < vm->launch.step_count; i++) {
        struct cg_step *step = &vm->launch.steps[i];
        struct stat st;
        if (!step->staged) continue;
        int made = -1;
        if (fstat(step->tree, &st) == 0) made = S_ISDIR(st.st_mode) ? mkdir(step->staged, 0755) : mknod(step->staged, S_IFREG | 0644, 0);
        if (made != 0 || syscall(SYS_move_mount, step->tree, "", AT_FDCWD, step->staged, MOVE_MOUNT_F_EMPTY_PATH) != 0)
            return cg_fail(why, "mount", errno, (const char *)step->source);
        close(step->tree);
        step->tree = -1;
        step->source = (const uint8_t *)step->staged;
    }
    return 0;
}

/* The directory that the last step was in. A mount never makes it stale: it covers a name in it, and whoever mounts over it is in another. */
struct parent { int fd; size_t length; char path[PATH_MAX]; };

/* The directory that holds `path`, below the new root; *last is the final name. The descriptor is the cache's. */
static int open_parent(int root, struct parent *cache, const char *path, char *last, size_t size) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/') start--;
    if (n - start == 0 || n - start >= size || start >= sizeof cache->path) { errno = EINVAL; return -1; }
    memcpy(last, path + start, n - start);
    last[n - start] = '\0';
    if (cache->fd >= 0 && cache->length == start && memcmp(cache->path, path, start) == 0) return cache->fd;
    if (cache->fd >= 0) close(cache->fd);
    memcpy(cache->path, path, start);
    cache->path[start] = '\0';
    cache->length = start;
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return cache->fd = (int)syscall(SYS_openat2, root, cache->path, &how, sizeof how);
}

static int make_directory(int parent, const char *name, mode_t mode) {
    if (mkdirat(parent, name, mode) != 0) return errno == EEXIST ? 0 : -1;
    return mode & ~0755u ? fchmodat(parent, name, mode, 0) : 0;
}

static int make_file(int parent, const char *name, const struct cg_step *step) {
    int fd = openat(parent, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    size_t done = 0;
    while (done < step->source_length) {
        ssize_t n = write(fd, step->source + done, step->source_length - done);
        if (n < 0) goto failed;
        done += (size_t)n;
    }
    if (fchmod(fd, step->mode) != 0) goto failed;
    return close(fd);
failed:;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int make_mount(int parent, const char *name, const struct cg_step *step) {
    if (step->tree < 0) return 0; /* optional, and not there */
    struct stat st;
    if (fstat(step->tree, &st) != 0) return -1;
    if (S_ISDIR(st.st_mode)) {
        if (make_directory(parent, name, 0755) != 0) return -1;
    } else {
        int fd = openat(parent, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0) return -1;
        close(fd);
    }
    return (int)syscall(SYS_move_mount, step->tree, "", parent, name, MOVE_MOUNT_F_EMPTY_PATH);
}

static int make_special(int parent, const char *name, const char *type, unsigned long flags, const char *options) {
    if (make_directory(parent, name, 0755) != 0 || fchdir(parent) != 0) return -1;
    return mount(type, name, type, flags, options);
}

static int do_step(int root, struct parent *cache, const struct cg_step *step) {
    char name[NAME_MAX + 1];
    int parent = open_parent(root, cache, step->destination, name, sizeof name), result = -1;
    if (parent < 0) return -1;
    switch (step->kind) {
    case CG_STEP_DIRECTORY: result = make_directory(parent, name, step->mode); break;
    case CG_STEP_FILE: result = make_file(parent, name, step); break;
    case CG_STEP_SYMLINK: result = symlinkat((const char *)step->source, parent, name); break;
    case CG_STEP_BIND: result = make_mount(parent, name, step); break;
    /* Read-only: no guest program needs to write below /proc, and /proc/<pid>/mem would be a way round page protection. */
    case CG_STEP_PROC: result = make_special(parent, name, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL); break;
    case CG_STEP_DEVPTS: result = make_special(parent, name, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); break;
    default: errno = EINVAL;
    }
    return result;
}

/* The loopback, and on it an address that is none: with a loopback's alone, programs that look up names for the families they have (AI_ADDRCONFIG,
 * getaddrinfo(3)) find that they have no IPv4. 192.0.0.8 is there for this (RFC 7600); it leads nowhere. */
static int loopback_up(void) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
    strcpy(request.ifr_name, "lo");
    int result = ioctl(fd, SIOCSIFFLAGS, &request);
    strcpy(request.ifr_name, "lo:1");
    memset(&request.ifr_addr, 0, sizeof request.ifr_addr);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(0xc0000008u);
    if (result == 0) result = ioctl(fd, SIOCSIFADDR, &request);
    address->sin_addr.s_addr = htonl(0xffffffffu);
    if (result == 0) result = ioctl(fd, SIOCSIFNETMASK, &request);
    close(fd);
    return result;
}

/* Ports below 1024 among them: this is before the capabilities go. */
static int listen_for_host(struct cg_listener *at) {
    at->fd = socket(at->address.ss_family, at->type | SOCK_CLOEXEC, 0);
    if (at->fd < 0 || bind(at->fd, (struct sockaddr *)&at->address, at->length) != 0) return -1;
    return at->type == SOCK_STREAM ? listen(at->fd, SOMAXCONN) : 0;
}

static int drop_capabilities(void) {
    /* The bounding set first (it needs CAP_SETPCAP), so that no exec, not even of uid 0 inside, brings one back. */
    int capability = 0;
    while (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0) capability++;
    if (errno != EINVAL || capability <= CAP_SYS_ADMIN) return -1; /* EINVAL: past the kernel's last one */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
              SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED, 0, 0, 0) != 0) return -1;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    return (int)syscall(SYS_capset, &header, none);
}

int cg_root_build(struct cg_vm *vm, struct cg_failure *why) {
    char text[128];
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return cg_fail(why, "parent-death signal", errno, NULL);
    /* The id maps are written through /proc/self, which a process that changed its ids does not own until it is dumpable. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return cg_fail(why, "dumpable", errno, NULL);
    if (write_file("/proc/self/setgroups", "deny") != 0) return cg_fail(why, "id maps", errno, "/proc/self/setgroups");
    snprintf(text, sizeof text, "%u %u 1", vm->launch.guest_uid, vm->uid);
    if (write_file("/proc/self/uid_map", text) != 0) return cg_fail(why, "id maps", errno, "/proc/self/uid_map");
    snprintf(text, sizeof text, "%u %u 1", vm->launch.guest_gid, vm->gid);
    if (write_file("/proc/self/gid_map", text) != 0) return cg_fail(why, "id maps", errno, "/proc/self/gid_map");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return cg_fail(why, "dumpable", errno, NULL);

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return cg_fail(why, "mount", errno, "making / private");
    /* Sources before the new root covers anything they may lie below. */
    for (size_t i = 0; i < vm->launch.step_count; i++) {
        struct cg_step *step = &vm->launch.steps[i];
        if (step->kind != CG_STEP_BIND || step->tree >= 0) continue;
        step->tree = clone_tree((const char *)step->source);
        if (step->tree < 0) {
            if (step->flags & CG_BIND_OPTIONAL && (errno == ENOENT || errno == EACCES)) continue;
            return cg_fail(why, "mount", errno, (const char *)step->source);
        }
        if (set_attributes(step->tree, step->flags, -1) != 0) return cg_fail(why, "mount", errno, (const char *)step->source);
    }
    umask(CG_FIRST_UMASK);
    snprintf(text, sizeof text, "size=%llu,nr_inodes=%llu,mode=0755", (unsigned long long)vm->launch.disk_bytes,
             (unsigned long long)vm->launch.disk_inodes);
    const unsigned long executable = vm->launch.flags & CG_LAUNCH_NO_EXEC ? MS_NOEXEC : 0;
    if (mount("tmpfs", STAGING, "tmpfs", MS_NOSUID | MS_NODEV | executable, text) != 0) return cg_fail(why, "mount", errno, "tmpfs");
    int root = open(STAGING, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return cg_fail(why, "mount", errno, "tmpfs");
    struct parent parent = {.fd = -1};
    for (size_t i = 0; i < vm->launch.step_count; i++)
        if (do_step(root, &parent, &vm->launch.steps[i]) != 0)
            return cg_fail(why, vm->launch.steps[i].kind == CG_STEP_PROC ? "proc" : "root", errno, vm->launch.steps[i].destination);
    if (fchdir(root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0) return cg_fail(why, "pivot_root", errno, NULL);
    if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0) return cg_fail(why, "pivot_root", errno, "leaving the old root");

    if (sethostname(vm->launch.hostname, strlen(vm->launch.hostname)) != 0) return cg_fail(why, "host name", errno, NULL);
    if (vm->launch.flags & CG_LAUNCH_LOOPBACK && loopback_up() != 0) return cg_fail(why, "loopback", errno, NULL);
    for (size_t i = 0; i < vm->launch.listener_count; i++)
        if (listen_for_host(&vm->launch.listeners[i]) != 0) return cg_fail(why, "listener", errno, "a socket of the host inside the VM");
    if (drop_capabilities() != 0) return cg_fail(why, "capabilities", errno, NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return cg_fail(why, "no_new_privs", errno, NULL);
    return 0;
}
