/* execve and execveat: judged by name, by image and by environment, and what runs is proved to be what was judged.
 *
 * The kernel has to read path, arguments and environment again when it runs the call, so the caller is seized for just this exec: at the exec event,
 * before the new image's first instruction, what runs is compared with what was judged, and killed if it differs (ptrace(2), PTRACE_EVENT_EXEC).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "env.h"
#include "fs_target.h"
#include "image.h"
#include "trace.h"

#ifndef AT_EXECVE_CHECK
#define AT_EXECVE_CHECK 0x10000 /* Linux 6.14 */
#endif

#define INTERPRETERS_MAX 5 /* as the kernel: a script whose interpreter is a script ... */
#define LOADER "a dynamic loader would run a program that no rule has judged"
#define CHANGED "changed after it was judged; the process was killed before it ran"

/* What must run. Of a script also how the kernel makes the interpreter's arguments begin: every interpreter with its argument, and the script. */
struct image {
    bool judged;
    dev_t device;
    ino_t inode;
    size_t length;
    char arguments[PATH_MAX + 32 + (INTERPRETERS_MAX + 1) * 2 * CG_IMAGE_LINE]; /* each ended by NUL */
};

struct exec { struct image image; struct cg_env_rules *environment; };

/* The name as asked for, made absolute and without "." and "..": what it leads to is judged besides. */
static size_t requested_name(struct cg_call *call, const struct cg_fs_target *target, const struct cg_path *path, char *to, size_t size) {
    size_t n = 0;
    const char *at = target->path[0] ? target->path : path->text;
    if (at[0] != '/' && (target->base < 0 || cg_descriptor_text(&call->vm->root, target->base, to, PATH_MAX, &n) != 0)) n = 0;
    while (n > 0 && to[n - 1] == '/') n--;
    while (*at) {
        const size_t part = strcspn(at, "/");
        if (part == 2 && at[0] == '.' && at[1] == '.') {
            while (n > 0 && to[--n] != '/') {}
        } else if (part > 0 && !(part == 1 && at[0] == '.') && n + 1 + part < size) {
            to[n++] = '/';
            memcpy(to + n, at, part);
            n += part;
        }
        at += part;
        at += strspn(at, "/");
    }
    to[n] = '\0';
    return n;
}

static void refuse(struct cg_call *call, int32_t rule, const struct cg_fs_target *target, const struct cg_path *path, const char *requested, const char *reason) {
    const bool named = path->length > 0;
    cg_refuse(call, CG_SCOPE_CHILD_PROCESS, 0, rule, named ? path->text : requested, named ? path->length : strlen(requested), target->path, reason);
}

/* The name as requested and the path as resolved: either may deny. */
static bool judge_names(struct cg_call *call, const struct cg_fs_target *target, const struct cg_path *path) {
    const struct cg_policy *policy = call->vm->launch.policy;
    char requested[2 * PATH_MAX];
    int32_t rule = CG_RULE_DEFAULT;
    const size_t n = requested_name(call, target, path, requested, sizeof requested);
    if (cg_policy_decide(policy, CG_SCOPE_CHILD_PROCESS, 0, requested, n, &rule) == 1 &&
        (path->text[0] == '/' ? cg_policy_decide(policy, CG_SCOPE_CHILD_PROCESS, 0, path->text, path->length, &rule) == 1
                              : cg_policy_constant(policy, CG_SCOPE_CHILD_PROCESS, 0) == 1))
        return true;
    refuse(call, rule, target, path, requested, "");
    return false;
}

/* Put `text` before the arguments there are. False: no room. */
static bool prepend(struct image *image, const char *text) {
    const size_t n = strlen(text) + 1;
    if (n > sizeof image->arguments - image->length) return false;
    memmove(image->arguments + n, image->arguments, image->length);
    memcpy(image->arguments, text, n);
    image->length += n;
    return true;
}

/* A script as the kernel names it to the interpreter: the path as given, or by the descriptor it was executed from (execveat(2)). */
static bool prepend_script(struct cg_call *call, const struct cg_fs_target *target, struct image *image) {
    char name[PATH_MAX + 32];
    const int dirfd = call->nr == SYS_execveat ? (int)call->args[0] : AT_FDCWD;
    if (target->path[0] == '/' || dirfd == AT_FDCWD) return prepend(image, target->path);
    snprintf(name, sizeof name, "/dev/fd/%d%s%s", dirfd, target->path[0] ? "/" : "", target->path);
    return prepend(image, name);
}

/* Of a file that its caller may execute but not read we see nothing: it counts as a program, and if it is a script its interpreter is killed as another one. */
static enum cg_image_kind kind_of(int object, struct cg_shebang *shebang) {
    int fd = open(fs_own_path(object).text, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return CG_IMAGE_OTHER;
    const enum cg_image_kind kind = cg_image_kind_of(fd, shebang);
    close(fd);
    return kind;
}

/* One file of the chain: judged, and executable as far as can be told beforehand. False: answered. */
static bool judge_file(struct cg_call *call, const struct cg_fs_target *target, const struct cg_path *path, struct stat *st) {
    if (path->text[0] == '\0' && path->error) cg_answer_error(call, path->error);
    else if (!judge_names(call, target, path)) {
    } else if (path->error) cg_answer_error(call, path->error);
    else if (fstat(path->object, st) != 0) cg_answer_error(call, errno);
    else if (S_ISLNK(st->st_mode)) cg_answer_error(call, ELOOP);
    else if (!S_ISREG(st->st_mode) || syscall(SYS_faccessat2, path->object, "", X_OK, AT_EMPTY_PATH | AT_EACCESS) != 0) cg_answer_error(call, EACCES);
    return !call->answered;
}

/* Judge the program and, if it is a script, its interpreters. 0: `image` is what must run. -1: answered. */
static int judge_program(struct cg_call *call, struct cg_fs_target *target, unsigned flags, struct image *image) {
    struct cg_path path;
    struct stat st;
    for (int depth = 0; depth <= INTERPRETERS_MAX; depth++) {
        struct cg_shebang shebang;
        fs_resolve(call, target, depth ? CG_RESOLVE_FOLLOW : flags, &path);
        const enum cg_image_kind kind = judge_file(call, target, &path, &st) ? kind_of(path.object, &shebang) : CG_IMAGE_OTHER;
        if (kind == CG_IMAGE_LOADER) refuse(call, CG_RULE_UNSUPPORTED, target, &path, target->path, LOADER);
        cg_path_release(&path);
        if (call->answered) return -1;
        image->device = st.st_dev, image->inode = st.st_ino;
        if (kind != CG_IMAGE_SCRIPT) return 0;
        if ((depth == 0 && !prepend_script(call, target, image)) || (shebang.argument[0] && !prepend(image, shebang.argument)) || !prepend(image, shebang.interpreter)) {
            cg_answer_error(call, E2BIG);
            return -1;
        }
        const int base = shebang.interpreter[0] == '/' ? -1 : cg_pin_cwd(call);
        fs_target_release(target);
        target->base = base;
        snprintf(target->path, sizeof target->path, "%s", shebang.interpreter);
    }
    cg_answer_error(call, ELOOP);
    return -1;
}

static bool same_image(struct cg_vm *vm, pid_t pid, const struct image *image) {
    char path[32];
    struct stat st;
    snprintf(path, sizeof path, "%d/exe", pid);
    return fstatat(vm->root.host_proc, path, &st, 0) == 0 && st.st_dev == image->device && st.st_ino == image->inode;
}

/* The arguments of a new image cannot be changed by anyone: it has not run yet. */
static bool same_arguments(struct cg_vm *vm, pid_t pid, const struct image *image) {
    char path[32], text[sizeof image->arguments];
    if (image->length == 0) return true;
    snprintf(path, sizeof path, "%d/cmdline", pid);
    int fd = openat(vm->root.host_proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t done = 0;
    for (ssize_t n; done < image->length && (n = read(fd, text + done, image->length - done)) > 0;) done += (size_t)n;
    close(fd);
    return done == image->length && memcmp(text, image->arguments, done) == 0;
}

/* Only a program that attacks gets here. The record names what would have run. */
static bool refuse_change(struct cg_call *call, pid_t pid) {
    char path[32], text[PATH_MAX];
    snprintf(path, sizeof path, "%d/exe", pid);
    const ssize_t n = readlinkat(call->vm->root.host_proc, path, text, sizeof text);
    call->tid = pid; /* a thread that was not the first has its process's number since the exec */
    cg_refuse(call, CG_SCOPE_CHILD_PROCESS, 0, CG_RULE_UNSUPPORTED, text, n > 0 ? (size_t)n : 0, NULL, CHANGED);
    return false;
}

static bool approve_exec(struct cg_call *call, pid_t pid, enum cg_stop stop, const void *context) {
    const struct exec *exec = context;
    if (stop == CG_STOP_RETURN) return true;
    if (exec->image.judged && !(same_image(call->vm, pid, &exec->image) && same_arguments(call->vm, pid, &exec->image))) return refuse_change(call, pid);
    return !exec->environment->judged || cg_env_settle(call, pid, exec->environment);
}

/* AT_EXECVE_CHECK asks whether a file may be executed and executes nothing: asked on behalf, of the very file that was judged. */
static void check_only(struct cg_call *call, const struct cg_fs_target *target, unsigned flags) {
    struct cg_path path;
    struct stat st;
    char *const none[] = {NULL};
    fs_resolve(call, target, flags, &path);
    if (judge_file(call, target, &path, &st)) {
        const long result = syscall(SYS_execveat, path.object, "", none, none, AT_EMPTY_PATH | AT_EXECVE_CHECK);
        cg_answer_error(call, result == 0 ? 0 : errno);
    }
    cg_path_release(&path);
}

static void run_judged(struct cg_call *call, const struct exec *exec) {
    if (cg_run_proved(call, "image, arguments and environment are compared with the judged ones at the exec event, before the first instruction", approve_exec, exec) != 0)
        cg_refuse(call, CG_SCOPE_CHILD_PROCESS, 0, CG_RULE_UNSUPPORTED, "", 0, NULL, CG_TRACED);
}

void exec_program(struct cg_call *call) {
    const bool at = call->nr == SYS_execveat;
    const uint64_t flags = at ? (uint32_t)call->args[4] : 0;
    struct cg_fs_target target;
    struct cg_env_rules environment;
    struct exec exec; /* not cleared as a whole: the rest of `arguments` is not looked at */
    exec.environment = &environment;
    cg_await_handed_over(call); /* what the caller wrote is not busy because of us */
    if (cg_take_exec(call->vm, call->tid)) {
        cg_answer_continue(call, "the operator's own program: the caller is our code, its memory is not shared with any guest");
        return;
    }
    if (flags & ~(uint64_t)(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_EXECVE_CHECK)) { cg_answer_error(call, EINVAL); return; }
    exec.image.judged = cg_policy_constant(call->vm->launch.policy, CG_SCOPE_CHILD_PROCESS, 0) != 1;
    exec.image.length = 0;
    const unsigned resolve = (flags & AT_SYMLINK_NOFOLLOW ? 0 : CG_RESOLVE_FOLLOW) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0);
    if (exec.image.judged) {
        if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], FS_TARGET_EMPTY, &target) != 0) return;
        if (flags & AT_EXECVE_CHECK) check_only(call, &target, resolve);
        else judge_program(call, &target, resolve, &exec.image);
        fs_target_release(&target);
    } else if (flags & AT_EXECVE_CHECK) cg_answer_continue(call, "it executes nothing, which a register says, and every name may be executed");
    if (call->answered) return;
    if (!exec.image.judged && cg_policy_constant(call->vm->launch.policy, CG_SCOPE_ENV, 0) == 1 && cg_policy_constant(call->vm->launch.policy, CG_SCOPE_ENV, 1) == 1) {
        cg_answer_continue(call, "no policy has a say in what is executed here");
        return;
    }
    if (cg_env_read_rules(call, &environment) == 0 && cg_env_judge(call, call->args[at ? 3 : 2], &environment) == 0) run_judged(call, &exec);
    cg_env_release(&environment);
}
