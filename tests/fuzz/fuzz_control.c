/* control.c and runs.c: any packets from the host are each answered once, do what they say to the VM's own files, and keep nothing.
 *
 * The process is in a root of its own, which the "VM" of this target is; it has no init, so a run that is started gets as far as the message to init.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "private_root.h"

#include "init.h"
#include "supervisor.h"

const char *const fuzz_words[] = {"/w", "/w/file", "/w/denied/x", "/w/link", "/w/dir", "..", "/w/dir/new", "/bin/prog", "prog", "PATH=/bin", "PATH=", "PATH=:x:",
                                  "\x10\x00\x00\x00", "\x11\x00\x00\x00", "\x12\x00\x00\x00", "\x13\x00\x00\x00", "\x01\x00\x00\x00", "\x02\x00\x00\x00", "\x0a\x00\x00\x00",
                                  "\xff\xff\xff\xff", NULL};

enum { DESCRIPTORS = 7 /* one more than there is room for */ };
static struct cg_vm vm;
static int host, init;

static int must(int result, const char *what) {
    FUZZ_CHECK(result >= 0, "%s: %s", what, strerror(errno));
    return result;
}

/* ---- the VM's files ---- */

static void remove_below(int folder) {
    DIR *entries = fdopendir(folder);
    FUZZ_CHECK(entries != NULL, "fdopendir");
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(entries), entry->d_name, 0) == 0) continue;
        fchmodat(dirfd(entries), entry->d_name, 0700, 0);
        const int below = openat(dirfd(entries), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) remove_below(below);
        unlinkat(dirfd(entries), entry->d_name, AT_REMOVEDIR);
    }
    closedir(entries);
}

static void make_tree(void) {
    must(mkdir("/w", 0755), "/w"), must(mkdir("/w/dir", 0755), "dir"), must(mkdir("/w/denied", 0755), "denied"), must(mkdir("/bin", 0755), "/bin");
    must(symlink("dir", "/w/link"), "link"), must(mkfifo("/w/fifo", 0644), "fifo");
    close(must(open("/w/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644), "file"));
    close(must(open("/w/denied/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0644), "x"));
    close(must(open("/bin/prog", O_WRONLY | O_CREAT | O_CLOEXEC, 0755), "prog"));
}

/* A policy that denies everything on files below /w/denied and allows the rest. */
static void load_policy(void) {
    uint8_t blob[512];
    struct cg_writer out;
    cg_writer_init(&out, blob, sizeof blob);
    cg_write_u32(&out, CG_POLICY_MAGIC);
    for (unsigned scope = 0; scope < CG_SCOPES; scope++) {
        cg_write_u32(&out, 1), cg_write_i32(&out, CG_RULE_DEFAULT), cg_write_u32(&out, 0);
        cg_write_u32(&out, scope == CG_SCOPE_FS);
        if (scope == CG_SCOPE_FS) {
            cg_write_u32(&out, 0), cg_write_u32(&out, (1u << CG_FS_OPS) - 1), cg_write_i32(&out, 0), cg_write_u32(&out, 1);
            cg_write_bytes(&out, "/w/denied/**", 12), cg_write_u32(&out, 0);
        }
    }
    FUZZ_CHECK(cg_policy_load(blob, cg_writer_size(&out), &vm.launch.policy) == 0, "the policy");
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    private_root_enter();
    load_policy();
    make_tree();
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), "socketpair");
    host = pair[0], vm.control = pair[1];
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), "socketpair");
    init = pair[0], vm.init_socket = pair[1];
    const int room = 1 << 20;
    setsockopt(host, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), setsockopt(vm.init_socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(vm.control, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    vm.root.top = must(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), "top");
    vm.root.own_fds = must(open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC), "own descriptors");
    vm.root.host_proc = must(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC), "/proc");
    vm.uid = geteuid(), vm.gid = getegid();
    vm.launch.guest_uid = vm.launch.guest_gid = 1000;
    pthread_mutex_init(&vm.runs_lock, NULL), pthread_rwlock_init(&vm.names, NULL);
    pthread_rwlock_init(&vm.name_table.lock, NULL), pthread_mutex_init(&vm.lookups_lock, NULL);
    for (size_t i = 0; i < CG_RUNS_MAX; i++) vm.runs[i].events = vm.runs[i].leader_socket = -1;
    return 0;
}

/* ---- inputs: packets, each with its length, its number of descriptors and the length of what the last of them holds ---- */

static uint8_t *packet(uint8_t *at, uint32_t descriptors, const struct cg_writer *payload, const struct cg_writer *content) {
    const size_t n = cg_writer_size(payload), m = content ? cg_writer_size(content) : 0;
    const uint8_t head[5] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)descriptors, (uint8_t)m, (uint8_t)(m >> 8)};
    memcpy(at, head, sizeof head), memcpy(at + 5, payload->begin, n);
    if (m) memcpy(at + 5 + n, content->begin, m);
    return at + 5 + n + m;
}

static void write_run(struct cg_writer *out, const char *program) {
    cg_write_bytes(out, "/w", 2);
    cg_write_u32(out, 2), cg_write_bytes(out, program, strlen(program)), cg_write_bytes(out, "x", 1);
    cg_write_u32(out, 2), cg_write_bytes(out, "A=1", 3), cg_write_bytes(out, "PATH=/nowhere:/bin", 18);
}

size_t fuzz_seed(unsigned index, uint8_t *to, size_t room) {
    if (index > 6 || room < 4096) return 0;
    uint8_t one[1024], two[1024], *at = to;
    for (uint32_t i = 0; i < 10; i++) {
        struct cg_writer out, content;
        cg_writer_init(&out, one, sizeof one), cg_writer_init(&content, two, sizeof two);
        if (index < 3) { /* every operation of vm.fs, on several paths */
            static const char *const paths[3][2] = {{"/w/file", "/w/dir/new"}, {"/w/denied/x", "/w/dir/x"}, {"/w/link/../new", "/w/dir"}};
            cg_write_u32(&out, CG_MSG_FS), cg_write_u32(&out, i);
            cg_write_u32(&out, CG_FS_OPEN + i), cg_write_u32(&out, i % 2), cg_write_u32(&out, i == 0 ? O_RDWR | O_CREAT : 0), cg_write_u32(&out, 0700);
            cg_write_bytes(&out, paths[index][0], strlen(paths[index][0])), cg_write_bytes(&out, paths[index][1], strlen(paths[index][1]));
            at = packet(at, 0, &out, NULL);
        } else if (index < 5) { /* a run, in the packet or in a memfd */
            cg_write_u32(&out, CG_MSG_RUN), cg_write_u32(&out, i), cg_write_u32(&out, index == 4 ? CG_RUN_IN_MEMFD : 0);
            write_run(index == 4 ? &content : &out, i % 2 ? "prog" : i % 4 ? "/bin/prog" : "/w/dir");
            at = packet(at, index == 4 ? 5 : 4, &out, &content);
        } else if (index == 5) { /* names, the last of which has an address that no name may have; sockets; refused look-ups */
            const uint8_t v4[4] = {198, i < 9 ? 18 : 20, 0, (uint8_t)i}, v6[16] = {0x20, 1, 0, 2, [15] = (uint8_t)i};
            cg_write_u32(&out, i % 3 ? CG_MSG_NAME : i % 2 ? CG_MSG_SOCKET : CG_MSG_LOOKUP_DENIED), cg_write_u32(&out, i);
            if (i % 3) {
                cg_write_bytes(&out, "a.example", 9), cg_write_bytes(&out, v4, 4), cg_write_bytes(&out, v6, 16);
                cg_write_u32(&out, i % 4), cg_write_u32(&out, i), cg_write_u32(&out, 2), cg_write_bytes(&out, v4, 4), cg_write_bytes(&out, v6, 16);
            } else if (i % 2) cg_write_u32(&out, 2), cg_write_u32(&out, 1);
            else cg_write_u32(&out, 17), cg_write_u32(&out, 53), cg_write_i32(&out, 0), cg_write_bytes(&out, "dns://a", 7), cg_write_bytes(&out, "", 0);
            at = packet(at, 0, &out, NULL);
        } else {
            cg_write_u32(&out, i % 2 ? CG_MSG_STATS : CG_MSG_SIGNAL), cg_write_u32(&out, i);
            if (i % 2 == 0) cg_write_u32(&out, i), cg_write_u32(&out, 9), cg_write_u32(&out, i % 4);
            at = packet(at, 0, &out, NULL);
        }
    }
    return (size_t)(at - to);
}

static void send_packet(const uint8_t *payload, size_t n, int descriptors, const uint8_t *content, size_t m) {
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int) * DESCRIPTORS)]; } control;
    struct iovec part = {(void *)(uintptr_t)payload, n};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int fds[DESCRIPTORS];
    for (int i = 0; i < descriptors; i++) {
        fds[i] = i == descriptors - 1 && i > 3 ? must(memfd_create("payload", MFD_CLOEXEC), "memfd") : must(open("/", O_PATH | O_CLOEXEC), "/");
        if (i == descriptors - 1 && i > 3) FUZZ_CHECK(write(fds[i], content, m) == (ssize_t)m, "writing a payload");
    }
    if (descriptors) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control, message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)descriptors);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)descriptors);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)descriptors);
    }
    FUZZ_CHECK(sendmsg(host, &message, 0) == (ssize_t)n, "sending: %s", strerror(errno));
    for (int i = 0; i < descriptors; i++) close(fds[i]);
}

/* One packet, its descriptors closed again; 0 if there is none. */
static size_t take_packet(int from, uint8_t *to, size_t room) {
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int) * DESCRIPTORS)]; } control;
    struct iovec part = {to, room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    const ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0) return 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        for (size_t at = 0; c->cmsg_type == SCM_RIGHTS && at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
            close(fd);
        }
    return (size_t)n;
}

static void check_reply(uint32_t request) {
    static uint8_t reply[CG_MESSAGE_MAX];
    struct cg_reader in;
    uint32_t n;
    cg_reader_init(&in, reply, take_packet(host, reply, sizeof reply));
    FUZZ_CHECK(cg_read_u32(&in) == CG_MSG_REPLY && cg_read_u32(&in) == request, "no reply to request %u", request);
    const int32_t error = cg_read_i32(&in);
    FUZZ_CHECK(error >= 0 && error < 4096, "error %d", error);
    cg_read_u64(&in), cg_read_bytes(&in, &n);
    if (cg_read_u32(&in)) { /* a denial */
        FUZZ_CHECK(error == EACCES, "a denial with error %d", error);
        FUZZ_CHECK(cg_read_u32(&in) == CG_SCOPE_FS, "a denial in another scope");
        cg_read_u32(&in), cg_read_i32(&in), cg_read_u32(&in), cg_read_u64(&in);
        for (int i = 0; i < 4; i++) cg_read_bytes(&in, &n);
    }
    FUZZ_CHECK(cg_reader_done(&in), "a reply that cannot be read");
    FUZZ_CHECK(take_packet(host, reply, sizeof reply) == 0, "a second reply to request %u", request);
}

/* What init would be told: so many texts as it says there are arguments, at least, each ended. */
static void check_start(void) {
    static uint8_t message[CG_START_MAX];
    const size_t n = take_packet(init, message, sizeof message);
    if (n == 0 || n == sizeof(struct cg_start)) return; /* nothing, or all in a memfd */
    struct cg_start start;
    memcpy(&start, message, sizeof start);
    FUZZ_CHECK(n > sizeof start && message[n - 1] == '\0', "a start without its texts");
    size_t texts = 0;
    for (size_t i = sizeof start; i < n; i++) texts += message[i] == '\0';
    FUZZ_CHECK(start.argc >= 1 && texts >= 1u + start.argc, "%u arguments, %zu texts", start.argc, texts);
}

static void forget_runs(void) {
    for (size_t i = 0; i < CG_RUNS_MAX; i++) {
        struct cg_run *run = &vm.runs[i];
        if (!run->used) continue;
        if (run->events >= 0) close(run->events);
        if (run->leader_socket >= 0) close(run->leader_socket);
        memset(run, 0, sizeof *run);
        run->events = run->leader_socket = -1;
    }
}

static void check_untouched(void) {
    struct stat st;
    FUZZ_CHECK(stat("/w/denied/x", &st) == 0 && st.st_size == 0 && (st.st_mode & 07777) == 0644 && st.st_nlink == 1, "what is denied was changed");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned inputs;
    struct fuzz_input in = {data, size};
    int unchecked = 0;
    while (in.left > 0) {
        const size_t wanted = fuzz_u8(&in) + 256u * fuzz_u8(&in), descriptors = fuzz_u8(&in) % (DESCRIPTORS + 1), m = fuzz_u8(&in) + 256u * fuzz_u8(&in);
        size_t n, length;
        uint8_t *payload = fuzz_piece(&in, wanted, &n), *content = fuzz_piece(&in, descriptors > 4 ? m : 0, &length);
        if (n > 0) { /* a packet of no bytes is the end of the host */
            struct cg_reader head;
            cg_reader_init(&head, payload, n);
            const uint32_t type = cg_read_u32(&head), request = cg_read_u32(&head);
            cg_read_u32(&head);
            unchecked |= type == CG_MSG_FS && cg_read_u32(&head) & CG_FS_UNCHECKED;
            send_packet(payload, n, (int)descriptors, content, length);
            FUZZ_CHECK(cg_control_receive(&vm) == 0, "the host is taken for gone");
            check_reply(request);
            check_start();
        }
        free(payload), free(content);
    }
    forget_runs();
    if (!unchecked) check_untouched();
    if (unchecked || ++inputs % 64 == 0) { /* the next one begins anew */
        remove_below(must(open("/w", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "/w"));
        remove_below(must(open("/bin", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "/bin"));
        must(rmdir("/w"), "/w"), must(rmdir("/bin"), "/bin");
        make_tree();
    }
    return 0;
}
