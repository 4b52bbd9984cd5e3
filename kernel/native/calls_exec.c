/* execve and execveat: judged by name and by image, and the image that runs is proved to be the one that was judged.
 *
 * The kernel has to read the path again when it runs the call, so the caller is seized for just this exec: at the exec event, before the
 * new image's first instruction, what runs is compared with what was judged, and killed if it differs (ptrace(2), PTRACE_EVENT_EXEC).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "fs_target.h"
#include "trace.h"

#define INTERPRETERS_MAX 5 /* as the kernel: a script whose interpreter is a script ... */
#define SCRIPT_LINE 256    /* BINPRM_BUF_SIZE */

/* What must run: an image, and for a script also its own path among the arguments that the kernel makes for the interpreter. */
struct image { dev_t device; ino_t inode; unsigned script_index; char script[PATH_MAX + 32]; };

/* The basename as requested and the path as resolved: either may deny. */
static bool judge_image(struct cg_call *call, const struct cg_fs_target *target, const struct cg_path *path) {
    const struct cg_policy *policy = call->vm->launch.policy;
    char requested[2 * PATH_MAX];
    int32_t rule = CG_RULE_DEFAULT;
    size_t n = 0;
    const char *asked = target->path[0] ? target->path : path->text;
    if (asked[0] != '/') {
        if (target->base < 0 || cg_descriptor_text(&call->vm->root, target->base, requested, PATH_MAX, &n) != 0) n = 0;
        while (n > 0 && requested[n - 1] == '/') n--;
        while (asked[0] == '.' && asked[1] == '/') asked += 2;
        requested[n++] = '/';
    }
    snprintf(requested + n, sizeof requested - n, "%s", asked);
    if (cg_policy_decide(policy, CG_SCOPE_CHILD_PROCESS, 0, requested, strlen(requested), &rule) == 1 &&
        (path->text[0] == '/' ? cg_policy_decide(policy, CG_SCOPE_CHILD_PROCESS, 0, path->text, path->length, &rule) == 1
                              : cg_policy_constant(policy, CG_SCOPE_CHILD_PROCESS, 0) == 1))
        return true;
    cg_refuse(call, CG_SCOPE_CHILD_PROCESS, 0, rule, path->length ? path->text : requested, path->length ? path->length : strlen(requested), target->path, "");
    return false;
}

/* "#! interpreter argument": the interpreter's path into `to`, and whether there is an argument; false if this is not a script. */
static bool script_interpreter(int object, char *to, size_t size, bool *argument) {
    char line[SCRIPT_LINE + 1];
    int fd = open(fs_own_path(object).text, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false; /* executable but not readable: the kernel cannot read it as a script for this caller's interpreter either */
    ssize_t n = pread(fd, line, SCRIPT_LINE, 0);
    close(fd);
    if (n < 3 || line[0] != '#' || line[1] != '!') return false;
    line[n] = '\0';
    char *at = line + 2, *end;
    while (*at == ' ' || *at == '\t') at++;
    for (end = at; *end && *end != ' ' && *end != '\t' && *end != '\n'; end++) {}
    if (end == at || (size_t)(end - at) >= size) return false;
    memcpy(to, at, (size_t)(end - at));
    to[end - at] = '\0';
    while (*end == ' ' || *end == '\t') end++;
    *argument = *end != '\0' && *end != '\n';
    return true;
}

/* A script as the kernel names it to the interpreter: the path as given, or by the descriptor it was executed from (execveat(2)). */
static void script_name(struct cg_call *call, const struct cg_fs_target *target, char *to, size_t size) {
    const int dirfd = call->nr == SYS_execveat ? (int)call->args[0] : AT_FDCWD;
    if (target->path[0] == '/' || dirfd == AT_FDCWD) snprintf(to, size, "%s", target->path);
    else snprintf(to, size, "/dev/fd/%d%s%s", dirfd, target->path[0] ? "/" : "", target->path);
}

/* Judge the program and, if it is a script, its interpreters. 0: `image` is what must run. -1: answered. */
static int judge_program(struct cg_call *call, struct cg_fs_target *target, unsigned flags, struct image *image) {
    struct cg_path path;
    struct stat st;
    image->script_index = 0;
    for (int depth = 0; depth <= INTERPRETERS_MAX; depth++) {
        fs_resolve(call, target, depth ? CG_RESOLVE_FOLLOW : flags, &path);
        if (path.text[0] == '\0' && path.error) cg_answer_error(call, path.error);
        else if (!judge_image(call, target, &path)) {
        } else if (path.error) cg_answer_error(call, path.error);
        else if (fstat(path.object, &st) != 0) cg_answer_error(call, errno);
        else if (S_ISLNK(st.st_mode)) cg_answer_error(call, ELOOP);
        else if (!S_ISREG(st.st_mode) || syscall(SYS_faccessat2, path.object, "", X_OK, AT_EMPTY_PATH | AT_EACCESS) != 0) cg_answer_error(call, EACCES);
        if (call->answered) {
            cg_path_release(&path);
            return -1;
        }
        image->device = st.st_dev, image->inode = st.st_ino;
        char interpreter[PATH_MAX];
        bool argument = false;
        const bool script = script_interpreter(path.object, interpreter, sizeof interpreter, &argument);
        cg_path_release(&path);
        if (!script) return 0;
        if (depth == 0) script_name(call, target, image->script, sizeof image->script);
        image->script_index += argument ? 2 : 1; /* interpreter, its argument, script */
        int base = interpreter[0] == '/' ? -1 : cg_pin_cwd(call);
        fs_target_release(target);
        target->base = base;
        snprintf(target->path, sizeof target->path, "%s", interpreter);
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
static bool same_script(struct cg_vm *vm, pid_t pid, const struct image *image) {
    char path[32], text[2 * PATH_MAX];
    snprintf(path, sizeof path, "%d/cmdline", pid);
    int fd = openat(vm->root.host_proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return false;
    text[n] = '\0';
    const char *at = text;
    for (unsigned i = 0; i < image->script_index && at < text + n; i++) at += strlen(at) + 1;
    return at < text + n && strcmp(at, image->script) == 0;
}

/* Changed after it was judged: only a program that attacks does that. */
static bool approve_image(struct cg_call *call, pid_t pid, enum cg_stop stop, const void *context) {
    const struct image *image = context;
    return stop == CG_STOP_RETURN || (same_image(call->vm, pid, image) && (!image->script_index || same_script(call->vm, pid, image)));
}

void exec_program(struct cg_call *call) {
    const bool at = call->nr == SYS_execveat;
    struct cg_fs_target target;
    struct image image;
    if (cg_take_exec(call->vm, call->tid)) {
        cg_answer_continue(call, "the operator's own program: the caller is our code, its memory is not shared with any guest");
        return;
    }
    const uint64_t flags = at ? (uint32_t)call->args[4] : 0;
    if (flags & ~(uint64_t)(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)) { cg_answer_error(call, EINVAL); return; }
    if (fs_target_read(call, at ? (int)call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], FS_TARGET_EMPTY, &target) != 0) return;
    if (judge_program(call, &target, (flags & AT_SYMLINK_NOFOLLOW ? 0 : CG_RESOLVE_FOLLOW) | (flags & AT_EMPTY_PATH ? CG_RESOLVE_EMPTY : 0), &image) == 0)
        cg_run_proved(call, "the image is compared with the judged one at the exec event, before its first instruction", approve_image, &image);
    fs_target_release(&target);
}
