/* The private root of a fuzz target; see private_root.h. */
#define _GNU_SOURCE
#include "private_root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void must(int result, const char *what) {
    if (result >= 0) return;
    fprintf(stderr, "fuzz: %s: %s\n", what, strerror(errno));
    exit(71);
}

static void write_text(const char *path, const char *text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd, path);
    must((int)write(fd, text, strlen(text)), path);
    close(fd);
}

void private_root_enter(void) {
    char text[64];
    const unsigned uid = geteuid(), gid = getegid();
    const int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    must(here, "the working directory");
    must(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS), "unshare");
    write_text("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "1000 %u 1", uid);
    write_text("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "1000 %u 1", gid);
    write_text("/proc/self/gid_map", text);
    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
    must(mount("fuzz", "/tmp", "tmpfs", 0, "size=16m,nr_inodes=20k,mode=0755"), "tmpfs");
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
    must(mkdir("/tmp/proc", 0755), "/proc");
    must(mount("/proc", "/tmp/proc", NULL, MS_BIND | MS_REC, NULL), "bind /proc");
    must((int)syscall(SYS_mount_setattr, AT_FDCWD, "/tmp/proc", AT_RECURSIVE, &read_only, sizeof read_only), "a read-only /proc");
    must(chdir("/tmp"), "chdir");
    must((int)syscall(SYS_pivot_root, ".", "."), "pivot_root");
    must(umount2(".", MNT_DETACH), "the old root");
    must(mkdir("/mnt", 0755), "/mnt");
    must(mount("fuzz-mnt", "/mnt", "tmpfs", 0, "size=1m,nr_inodes=200,mode=0755"), "a second file system");
    must(fchdir(here), "back to the working directory");
    close(here);
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    must((int)syscall(SYS_capset, &head, none), "capset");
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    must(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable"); /* /proc/self stays ours */
    umask(022);
}
