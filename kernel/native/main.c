/* The supervisor of one VM: start it, then serve its host and its guests until either is gone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor.h"

#define SWEEP_MS 2  /* between two looks at what outlived its run */
#define TICK_MS 50  /* between two looks at blocked calls whose caller may be dead */

static void launch_failed(const struct cg_failure *why) {
    uint8_t buffer[1024];
    struct cg_writer out = {buffer, buffer, buffer + sizeof buffer, 0};
    cg_write_u32(&out, CG_MSG_LAUNCH_FAILED);
    cg_write_u32(&out, 0);
    cg_write_bytes(&out, why->step, strlen(why->step));
    cg_write_i32(&out, why->error);
    cg_write_bytes(&out, why->detail, strlen(why->detail));
    if (!out.failed) send(CG_FD_CONTROL, buffer, (size_t)(out.at - buffer), MSG_NOSIGNAL);
}

static int prepare(struct cg_vm *vm, struct cg_failure *why) {
    /* Signals would interrupt the descriptor hand-over of an answer half-way (seccomp_unotify(2)): no thread takes any. */
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    /* What the host ignores, guests must not: they inherit it from here. */
    const uint64_t defaults[4] = {0}; /* the kernel's struct sigaction: libc would not let us reset its own two, which posix_spawn leaves ignored */
    for (int number = 1; number <= 64; number++) syscall(SYS_rt_sigaction, number, defaults, NULL, 8);
    syscall(SYS_close_range, 5, ~0u, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0) return cg_fail(why, "stdio", errno, "/dev/null");
    if (null > 1) close(null);
    if (fcntl(CG_FD_CONTROL, F_SETFD, FD_CLOEXEC) != 0) return cg_fail(why, "control socket", errno, NULL);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(CG_FIRST_UMASK);
    if (cg_launch_read(vm, why) != 0) return -1;
    cg_watch_prepare(vm);
    vm->host_pidfd = (int)syscall(SYS_pidfd_open, vm->launch.host_pid, 0);
    if (vm->host_pidfd < 0) return cg_fail(why, "host process", errno, "pidfd_open");
    if (cg_launch_become(vm, why) != 0 || cg_launch_start_init(vm, why) != 0) return -1;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return cg_fail(why, "dumpable", errno, NULL);
    vm->root.own_fds = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
    vm->root.host_proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    vm->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (vm->root.own_fds < 0 || vm->root.host_proc < 0 || vm->wake < 0) return cg_fail(why, "descriptors", errno, "/proc of the host");
    if (pthread_mutex_init(&vm->runs_lock, NULL) != 0 || pthread_rwlock_init(&vm->names, NULL) != 0 ||
        pthread_rwlock_init(&vm->name_table.lock, NULL) != 0 || pthread_mutex_init(&vm->lookups_lock, NULL) != 0 || cg_notify_start(vm) != 0) return cg_fail(why, "threads", errno, NULL);
    return 0;
}

static void ready(struct cg_vm *vm) {
    uint8_t buffer[64];
    struct cg_writer out = {buffer, buffer, buffer + sizeof buffer, 0};
    cg_write_u32(&out, CG_MSG_READY);
    cg_write_u32(&out, 0);
    cg_write_u32(&out, CG_PROTOCOL_VERSION);
    cg_write_i32(&out, vm->init);
    cg_write_u32(&out, vm->features);
    int fds[CG_LISTENERS_MAX];
    const size_t count = vm->launch.listener_count;
    for (size_t i = 0; i < count; i++) fds[i] = vm->launch.listeners[i].fd;
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof fds)]; } control;
    struct iovec part = {buffer, (size_t)(out.at - buffer)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    }
    sendmsg(CG_FD_CONTROL, &message, MSG_NOSIGNAL); /* a host that is gone is seen by the main loop */
    for (size_t i = 0; i < count; i++) close(fds[i]);
}

/* Until the host or init is gone. */
static void serve(struct cg_vm *vm) {
    enum { CONTROL, HOST, INIT, WAKE, INIT_SAYS, FIXED };
    static struct pollfd on[FIXED + CG_RUNS_MAX];
    static struct cg_run *of[CG_RUNS_MAX];
    bool sweeping = false, detached = false;
    for (;;) {
        on[CONTROL] = (struct pollfd){.fd = CG_FD_CONTROL, .events = POLLIN};
        on[HOST] = (struct pollfd){.fd = vm->host_pidfd, .events = POLLIN};
        on[INIT] = (struct pollfd){.fd = vm->init_pidfd, .events = POLLIN};
        on[WAKE] = (struct pollfd){.fd = vm->wake, .events = POLLIN};
        on[INIT_SAYS] = (struct pollfd){.fd = vm->init_socket, .events = POLLIN};
        nfds_t n = FIXED;
        for (size_t i = 0; i < CG_RUNS_MAX; i++)
            if (vm->runs[i].used && vm->runs[i].leader_socket >= 0) {
                of[n - FIXED] = &vm->runs[i];
                on[n++] = (struct pollfd){.fd = vm->runs[i].leader_socket, .events = POLLIN};
            }
        int wait = sweeping ? SWEEP_MS : atomic_load(&vm->blocked_workers) > 0 ? TICK_MS : -1;
        const int look = cg_watch_wait(vm);
        if (look >= 0 && (wait < 0 || look < wait)) wait = look;
        if (poll(on, n, wait) < 0 && errno != EINTR) return;
        for (nfds_t i = FIXED; i < n; i++)
            if (on[i].revents) cg_run_leader_event(vm, of[i - FIXED]);
        if (on[INIT_SAYS].revents) {
            char byte;
            if (read(vm->init_socket, &byte, 1) < 0) return;
            if (!detached) close(CG_INIT_SOCKET); /* init has a descriptor table of its own now: let go of what was its */
            else cg_runs_continue_leaders(vm);
            detached = true;
        }
        if (on[WAKE].revents) {
            uint64_t count;
            if (read(vm->wake, &count, sizeof count) < 0 && errno != EAGAIN) return;
        }
        if (atomic_load(&vm->blocked_workers) > 0) cg_notify_tick(vm);
        if (on[HOST].revents || on[INIT].revents) return;
        if (on[CONTROL].revents && cg_control_receive(vm) != 0) return;
        cg_watch_look(vm);
        sweeping = cg_runs_sweep(vm); /* last: what the host just asked to be killed is begun now */
    }
}

int main(void) {
    static struct cg_vm vm;
    struct cg_failure why = {{0}, 0, {0}};
    vm.control = CG_FD_CONTROL;
    vm.listener = vm.init_socket = vm.init_pidfd = vm.host_pidfd = vm.watch.cpu_clock = -1;
    for (size_t i = 0; i < CG_RUNS_MAX; i++) vm.runs[i].events = vm.runs[i].leader_socket = -1;
    if (prepare(&vm, &why) != 0) {
        launch_failed(&why);
        if (vm.init > 0) kill(vm.init, SIGKILL);
        return 1;
    }
    ready(&vm);
    serve(&vm);
    /* The VM ends with pid 1; its mounts, processes and network go with its namespaces. Waiting makes the host's close() mean it. */
    kill(vm.init, SIGKILL);
    waitpid(vm.init, NULL, 0);
    _exit(0);
}
