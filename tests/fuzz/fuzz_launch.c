/* launch.c: any bytes on descriptor 4 are refused with a reason, or read as what they say. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"

/* The reader keeps the blob for the supervisor's life. Here it gets memory that ends where the blob ends, so that a byte too far is seen, and that is
 * given back after each input. */
static uint8_t *mapped;
static size_t mapped_size;

static void *map_exactly(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    (void)at, (void)protection, (void)flags;
    mapped = malloc(size);
    mapped_size = size;
    if (!mapped || pread(fd, mapped, size, offset) != (ssize_t)size) abort();
    return mapped;
}

#define mmap map_exactly
#include "launch.c"
#undef mmap

const char *const fuzz_words[] = {"CGL1", "CGP1", "/tmp", "/a", "\x01\x00\x00\x00", "\x03\x00\x00\x00", "\x04\x00\x00\x00", "\xff\xff\xff\xff", NULL};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    /* From here on the number belongs to the blobs. */
    return fcntl(CG_FD_LAUNCH, F_GETFD) < 0 && dup2(2, CG_FD_LAUNCH) < 0 ? -1 : 0;
}

size_t fuzz_seed(unsigned index, uint8_t *to, size_t room) {
    if (index > 2 || room < 600) return 0;
    struct cg_writer out;
    cg_writer_init(&out, to, room);
    cg_write_u32(&out, CG_LAUNCH_MAGIC);
    cg_write_u32(&out, CG_LAUNCH_LOOPBACK), cg_write_u32(&out, 4242), cg_write_u32(&out, 1000), cg_write_u32(&out, 1000);
    cg_write_bytes(&out, "host", 4), cg_write_bytes(&out, "/w", 2);
    cg_write_u64(&out, 1 << 20), cg_write_u64(&out, 1 << 10);
    cg_write_u32(&out, 6 * (index > 0));
    for (uint32_t kind = CG_STEP_DIRECTORY; index > 0 && kind <= CG_STEP_DEVPTS; kind++) {
        cg_write_u32(&out, kind);
        cg_write_bytes(&out, "/a", 2), cg_write_bytes(&out, "/b", kind == CG_STEP_BIND || kind == CG_STEP_SYMLINK ? 2 : 0);
        cg_write_u32(&out, 0755), cg_write_u32(&out, CG_BIND_READ_ONLY);
    }
    cg_write_u32(&out, index);
    for (uint32_t i = 0; i < index; i++) cg_write_u32(&out, i), cg_write_u64(&out, 1), cg_write_u64(&out, 2);
    cg_write_u32(&out, index);
    for (uint32_t i = 0; i < index; i++) cg_write_u32(&out, i ? CG_LISTEN_UDP : CG_LISTEN_UNIX), cg_write_bytes(&out, "/sock", i ? 4 : 5), cg_write_u32(&out, 53 * i);
    cg_write_u32(&out, index);
    for (uint32_t i = 0; i < index; i++) cg_write_u32(&out, 5432 + i);
    cg_write_bytes(&out, "\x06\x00\x00\x00\x00\x00\xff\x7f", 8);
    uint8_t policy[4 + 16 * CG_SCOPES] = {'C', 'G', 'P', '1'};
    for (unsigned scope = 0; scope < CG_SCOPES; scope++) memset(policy + 4 + 16 * scope + 4, 0xff, 4); /* CG_RULE_DEFAULT */
    cg_write_bytes(&out, policy, sizeof policy);
    return cg_writer_size(&out);
}

static void say_listener(struct cg_writer *out, const struct cg_listener *listener) {
    const struct sockaddr_un *path = (const struct sockaddr_un *)&listener->address;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&listener->address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&listener->address;
    cg_write_u32(out, listener->address.ss_family == AF_UNIX ? CG_LISTEN_UNIX : listener->type == SOCK_DGRAM ? CG_LISTEN_UDP : CG_LISTEN_TCP);
    if (listener->address.ss_family == AF_UNIX) cg_write_bytes(out, path->sun_path, strlen(path->sun_path)), cg_write_u32(out, 0);
    else if (listener->address.ss_family == AF_INET) cg_write_bytes(out, &v4->sin_addr, 4), cg_write_u32(out, ntohs(v4->sin_port));
    else cg_write_bytes(out, &v6->sin6_addr, 16), cg_write_u32(out, ntohs(v6->sin6_port));
}

/* Says again what was read; equal to the blob if nothing was lost or made up. The working directory is the host's alone. */
static size_t say_again(const struct cg_launch *launch, const uint8_t *blob, size_t size, uint8_t *to) {
    struct cg_writer out;
    struct cg_reader in;
    uint32_t n;
    cg_writer_init(&out, to, size);
    cg_write_u32(&out, CG_LAUNCH_MAGIC);
    cg_write_u32(&out, launch->flags), cg_write_u32(&out, launch->host_pid), cg_write_u32(&out, launch->guest_uid), cg_write_u32(&out, launch->guest_gid);
    cg_reader_init(&in, blob + 20, size - 20);
    cg_read_bytes(&in, &n);
    cg_write_bytes(&out, launch->hostname, n);
    const uint8_t *directory = cg_read_bytes(&in, &n);
    cg_write_bytes(&out, directory, n);
    cg_write_u64(&out, launch->disk_bytes), cg_write_u64(&out, launch->disk_inodes);
    cg_write_u32(&out, (uint32_t)launch->step_count);
    for (size_t i = 0; i < launch->step_count; i++) {
        const struct cg_step *step = &launch->steps[i];
        cg_write_u32(&out, step->kind);
        cg_write_bytes(&out, step->destination, strlen(step->destination)), cg_write_bytes(&out, step->source, step->source_length);
        cg_write_u32(&out, step->mode), cg_write_u32(&out, step->flags);
    }
    cg_write_u32(&out, (uint32_t)launch->limit_count);
    for (size_t i = 0; i < launch->limit_count; i++)
        cg_write_u32(&out, launch->limits[i].resource), cg_write_u64(&out, launch->limits[i].value.rlim_cur), cg_write_u64(&out, launch->limits[i].value.rlim_max);
    cg_write_u32(&out, (uint32_t)launch->listener_count);
    for (size_t i = 0; i < launch->listener_count; i++) say_listener(&out, &launch->listeners[i]);
    cg_write_u32(&out, launch->host_port_count);
    for (size_t i = 0; i < launch->host_port_count; i++) cg_write_u32(&out, launch->host_ports[i]);
    cg_write_bytes(&out, launch->filter, launch->filter_length);
    return cg_writer_size(&out);
}

static void release(struct cg_launch *launch) {
    for (size_t i = 0; launch->steps && i <= launch->step_count; i++) { /* one more: it may have been half read */
        const uint8_t *source = launch->steps[i].source;
        free((char *)(uintptr_t)launch->steps[i].destination);
        if (i < launch->step_count && !(source >= mapped && source <= mapped + mapped_size)) free((void *)(uintptr_t)source);
    }
    free(launch->steps);
    free(launch->host_ports);
    cg_policy_free(launch->policy);
    free(mapped);
    mapped = NULL, mapped_size = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct cg_vm vm;
    struct cg_failure why = {{0}, 0, {0}};
    memset(&vm.launch, 0, sizeof vm.launch);
    int fd = memfd_create("blob", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || dup2(fd, CG_FD_LAUNCH) < 0) abort();
    close(fd);
    const int result = cg_launch_read(&vm, &why);
    if (result == 0) {
        FUZZ_CHECK(vm.launch.policy && vm.launch.filter_length % 8 == 0 && vm.launch.filter_length > 0, "accepted without a policy or a filter");
        FUZZ_CHECK(memchr(vm.launch.hostname, 0, sizeof vm.launch.hostname) != NULL, "the host name has no end");
        FUZZ_CHECK(vm.launch.limit_count <= CG_LIMITS_MAX, "%zu limits", vm.launch.limit_count);
        for (size_t i = 0; i < vm.launch.step_count; i++) FUZZ_CHECK(vm.launch.steps[i].destination[0] == '/', "a relative destination");
        uint8_t *again = malloc(size);
        if (!again) abort();
        const size_t n = say_again(&vm.launch, data, size, again);
        FUZZ_CHECK(n > 0 && memcmp(again, data, n) == 0, "what was read is not what the blob says");
        free(again);
    } else {
        FUZZ_CHECK(result == -1 && why.step[0] && why.error > 0, "refused without a reason");
        FUZZ_CHECK(!vm.launch.policy, "refused, with a policy");
    }
    release(&vm.launch);
    if (dup2(2, CG_FD_LAUNCH) < 0) abort(); /* not a number that another file may get */
    return 0;
}
