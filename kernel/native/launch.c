/* Reading the launch blob, becoming the id that the VM's guests are, and making the namespaces. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "supervisor.h"

/* Ids for the VMs of a root host: no account has them, and each VM (by the supervisor's pid) has its own, so that no process or
 * file of the host and no other VM shares an owner with a guest. */
#define ROOT_HOST_FIRST_ID 1879048192u

int cg_fail(struct cg_failure *why, const char *step, int error, const char *detail) {
    snprintf(why->step, sizeof why->step, "%s", step);
    snprintf(why->detail, sizeof why->detail, "%s", detail ? detail : "");
    why->error = error;
    return -1;
}

/* A NUL-terminated copy of a length-counted field; NULL if it holds a NUL itself. */
static char *copy_text(const uint8_t *from, size_t length) {
    if (memchr(from, 0, length)) return NULL;
    char *to = malloc(length + 1);
    if (!to) return NULL;
    memcpy(to, from, length);
    to[length] = '\0';
    return to;
}

static int read_listener(struct cg_reader *in, struct cg_listener *to) {
    uint32_t n;
    const uint32_t kind = cg_read_u32(in);
    const uint8_t *address = cg_read_bytes(in, &n);
    const uint32_t port = cg_read_u32(in);
    struct sockaddr_un *path = (struct sockaddr_un *)&to->address;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&to->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&to->address;
    if (in->failed || port > UINT16_MAX || kind < CG_LISTEN_UNIX || kind > CG_LISTEN_TCP) return -1;
    memset(to, 0, sizeof *to);
    to->fd = -1;
    to->type = kind == CG_LISTEN_UDP ? SOCK_DGRAM : SOCK_STREAM;
    if (kind == CG_LISTEN_UNIX) {
        if (n == 0 || n >= sizeof path->sun_path || address[0] != '/' || memchr(address, 0, n)) return -1;
        path->sun_family = AF_UNIX;
        memcpy(path->sun_path, address, n);
        to->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
    } else if (n == sizeof v4->sin_addr) {
        v4->sin_family = AF_INET, v4->sin_port = htons((uint16_t)port);
        memcpy(&v4->sin_addr, address, n);
        to->length = sizeof *v4;
    } else if (n == sizeof v6->sin6_addr) {
        v6->sin6_family = AF_INET6, v6->sin6_port = htons((uint16_t)port);
        memcpy(&v6->sin6_addr, address, n);
        to->length = sizeof *v6;
    } else return -1;
    return 0;
}

int cg_launch_read(struct cg_vm *vm, struct cg_failure *why) {
    struct cg_launch *launch = &vm->launch;
    struct stat st;
    if (fstat(CG_FD_LAUNCH, &st) != 0 || st.st_size <= 0) return cg_fail(why, "launch blob", errno ? errno : EINVAL, "no blob on descriptor 4");
    uint8_t *blob = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, CG_FD_LAUNCH, 0);
    if (blob == MAP_FAILED) return cg_fail(why, "launch blob", errno, "mmap");
    close(CG_FD_LAUNCH);

    struct cg_reader in = {blob, blob + st.st_size, 0};
    uint32_t n, length;
    const uint8_t *bytes;
    if (cg_read_u32(&in) != CG_LAUNCH_MAGIC) return cg_fail(why, "launch blob", EINVAL, "wrong magic");
    launch->flags = cg_read_u32(&in);
    launch->host_pid = cg_read_u32(&in);
    launch->guest_uid = cg_read_u32(&in);
    launch->guest_gid = cg_read_u32(&in);
    bytes = cg_read_bytes(&in, &n);
    if (in.failed || n >= sizeof launch->hostname) return cg_fail(why, "launch blob", EINVAL, "host name");
    memcpy(launch->hostname, bytes, n);
    cg_read_bytes(&in, &n); /* working directory of vm.fs: the host joins it itself */
    launch->disk_bytes = cg_read_u64(&in);
    launch->disk_inodes = cg_read_u64(&in);

    uint32_t count = cg_read_u32(&in);
    if (in.failed || count > (size_t)(in.end - in.at) / 20) return cg_fail(why, "launch blob", EINVAL, "step count");
    launch->steps = calloc(count + 1, sizeof *launch->steps);
    if (!launch->steps) return cg_fail(why, "launch blob", ENOMEM, NULL);
    for (launch->step_count = 0; launch->step_count < count; launch->step_count++) {
        struct cg_step *step = &launch->steps[launch->step_count];
        step->tree = -1;
        step->kind = cg_read_u32(&in);
        bytes = cg_read_bytes(&in, &n);
        if (in.failed || n == 0 || bytes[0] != '/' || n >= PATH_MAX || !(step->destination = copy_text(bytes, n)))
            return cg_fail(why, "launch blob", EINVAL, "step destination");
        step->source = cg_read_bytes(&in, &length);
        step->source_length = length;
        if (in.failed) return cg_fail(why, "launch blob", EINVAL, "step source");
        if (step->kind == CG_STEP_BIND || step->kind == CG_STEP_SYMLINK) {
            char *text = copy_text(step->source, step->source_length);
            if (!text) return cg_fail(why, "launch blob", EINVAL, "step source holds NUL");
            step->source = (uint8_t *)text;
        }
        step->mode = cg_read_u32(&in);
        step->flags = cg_read_u32(&in);
    }
    count = cg_read_u32(&in);
    if (in.failed || count > CG_LIMITS_MAX) return cg_fail(why, "launch blob", EINVAL, "limit count");
    for (launch->limit_count = 0; launch->limit_count < count; launch->limit_count++) {
        struct cg_limit *limit = &launch->limits[launch->limit_count];
        limit->resource = cg_read_u32(&in);
        limit->value.rlim_cur = cg_read_u64(&in);
        limit->value.rlim_max = cg_read_u64(&in);
    }
    count = cg_read_u32(&in);
    if (in.failed || count > CG_LISTENERS_MAX) return cg_fail(why, "launch blob", EINVAL, "listener count");
    for (launch->listener_count = 0; launch->listener_count < count; launch->listener_count++)
        if (read_listener(&in, &launch->listeners[launch->listener_count]) != 0) return cg_fail(why, "launch blob", EINVAL, "listener");
    launch->host_port_count = cg_read_count(&in, 4);
    launch->host_ports = calloc(launch->host_port_count + 1, sizeof *launch->host_ports);
    if (!launch->host_ports) return cg_fail(why, "launch blob", ENOMEM, NULL);
    for (uint32_t i = 0; i < launch->host_port_count; i++) {
        const uint32_t port = cg_read_u32(&in);
        if (port == 0 || port > UINT16_MAX) return cg_fail(why, "launch blob", EINVAL, "host port");
        launch->host_ports[i] = (uint16_t)port;
    }
    launch->filter = cg_read_bytes(&in, &length);
    launch->filter_length = length;
    const uint8_t *policy = cg_read_bytes(&in, &n);
    if (in.failed || !cg_reader_done(&in)) return cg_fail(why, "launch blob", EINVAL, "truncated, or bytes left over");
    if (launch->filter_length == 0 || launch->filter_length % 8 != 0 || launch->filter_length / 8 > 4096)
        return cg_fail(why, "launch blob", EINVAL, "filter length");
    if (cg_policy_load(policy, n, &launch->policy) != 0) return cg_fail(why, "launch blob", EINVAL, "policy");
    return 0;
}

/* A root host: open what only root can open, then become an id without any right of its own. An ordinary user: stay. */
int cg_launch_become(struct cg_vm *vm, struct cg_failure *why) {
    vm->uid = geteuid(), vm->gid = getegid();
    if (vm->uid == 0) {
        vm->uid = ROOT_HOST_FIRST_ID + (uid_t)getpid();
        vm->gid = vm->uid;
        if (cg_root_stage_operator_trees(vm, why) != 0) return -1;
        if (setgroups(0, NULL) != 0 || setresgid(vm->gid, vm->gid, vm->gid) != 0 || setresuid(vm->uid, vm->uid, vm->uid) != 0)
            return cg_fail(why, "setresuid", errno, "becoming the VM's own user id");
    } else if (getuid() != vm->uid || getgid() != vm->gid) {
        return cg_fail(why, "setresuid", EPERM, "callgate does not run set-user-id");
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return cg_fail(why, "no_new_privs", errno, NULL);
    return 0;
}

/* What init tells while it sets up, over its socket. */
struct report { int ok, root, listener, listeners[CG_LISTENERS_MAX], user_namespace, network_namespace; uint64_t network; struct cg_failure why; };

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

static int network_cookie(uint64_t *to) {
    socklen_t size = sizeof *to;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), result = fd < 0 ? -1 : getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, to, &size);
    if (fd >= 0) close(fd);
    return result;
}

_Noreturn static void init_start(struct cg_vm *vm, int socket) {
    struct report report = {0};
    if (cg_root_build(vm, &report.why) != 0) goto failed;
    for (size_t i = 0; i < vm->launch.listener_count; i++) report.listeners[i] = vm->launch.listeners[i].fd;
    report.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (report.root < 0) { cg_fail(&report.why, "root", errno, "open"); goto failed; }
    /* From outside they could not be opened: this process is not dumpable. */
    report.user_namespace = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    report.network_namespace = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (report.user_namespace < 0 || report.network_namespace < 0) { cg_fail(&report.why, "namespaces", errno, "/proc/self/ns"); goto failed; }
    if (network_cookie(&report.network) != 0) { cg_fail(&report.why, "network namespace", errno, "SO_NETNS_COOKIE"); goto failed; }
    struct { unsigned short length; const void *filter; } program = {(unsigned short)(vm->launch.filter_length / 8), vm->launch.filter};
    /* 1 = SECCOMP_SET_MODE_FILTER; flags 8 = NEW_LISTENER, 32 = WAIT_KILLABLE_RECV: a caller whose call was received waits for the answer whatever
     * signals it gets, so that what the supervisor did is never done twice (seccomp_unotify(2)). */
    report.listener = (int)syscall(SYS_seccomp, 1, 8 | 32, &program);
    if (report.listener < 0) { cg_fail(&report.why, "filter", errno, "seccomp user notification"); goto failed; }
    report.ok = 1;
    char go;
    /* The supervisor shares this descriptor table until the go-ahead, so the listener is already its own. From here on only calls that are
     * never notified: there is nobody yet to answer. */
    if (write(socket, &report, sizeof report) != sizeof report || read(socket, &go, 1) != 1) _exit(1);
    if (syscall(SYS_close_range, 0, CG_INIT_SOCKET - 1, 2 /* CLOSE_RANGE_UNSHARE */) != 0 ||
        syscall(SYS_close_range, CG_INIT_SOCKET + 1, ~0u, 0) != 0 || write(socket, &go, 1) != 1)
        _exit(1);
    cg_init_main(vm, socket);
failed:
    if (write(socket, &report, sizeof report) < 0) _exit(2);
    _exit(1);
}

int cg_launch_start_init(struct cg_vm *vm, struct cg_failure *why) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return cg_fail(why, "socketpair", errno, NULL);
    if (pair[0] == CG_INIT_SOCKET) { /* make room for init's end at its fixed number */
        int moved = fcntl(pair[0], F_DUPFD_CLOEXEC, CG_INIT_SOCKET + 1);
        if (moved < 0) return cg_fail(why, "socketpair", errno, "dup");
        close(pair[0]);
        pair[0] = moved;
    }
    if (pair[1] != CG_INIT_SOCKET) {
        if (dup3(pair[1], CG_INIT_SOCKET, O_CLOEXEC) < 0) return cg_fail(why, "socketpair", errno, "dup");
        close(pair[1]);
    }
    /* CLONE_FILES until init says it is ready: its listener and root descriptors then need no hand-over by a call that its own filter
     * could notify. */
    const unsigned long flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_FILES;
    vm->init = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (vm->init < 0) return cg_fail(why, "namespaces", errno, "clone(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | ...)");
    if (vm->init == 0) init_start(vm, CG_INIT_SOCKET);

    struct report report;
    ssize_t n = read(pair[0], &report, sizeof report);
    if (n != sizeof report) return cg_fail(why, "init", n < 0 ? errno : EPIPE, "it ended during set-up");
    if (!report.ok) { *why = report.why; return -1; }
    vm->root.top = report.root;
    vm->listener = report.listener;
    vm->network = report.network;
    vm->user_namespace = report.user_namespace, vm->network_namespace = report.network_namespace;
    for (size_t i = 0; i < vm->launch.listener_count; i++) vm->launch.listeners[i].fd = report.listeners[i];
    char go = 1;
    if (write(pair[0], &go, 1) != 1) return cg_fail(why, "init", errno, "no go-ahead");
    vm->init_socket = pair[0];
    vm->init_pidfd = (int)syscall(SYS_pidfd_open, vm->init, 0);
    if (vm->init_pidfd < 0) return cg_fail(why, "pidfd_open", errno, NULL);
    return 0;
}
