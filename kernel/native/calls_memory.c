/* memfd_create where nothing that a guest writes may be executed: a file in memory that nobody can make executable (memfd_create(2), MFD_NOEXEC_SEAL, Linux 6.3).
 *
 * The filter lets such a file be made natively and refuses an executable one. A caller that asks for neither is given one that is not, as the kernel itself does
 * under the sysctl vm.memfd_noexec=1, which only the host's root could set for us.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
#define NAME_SIZE 250 /* MFD_NAME_MAX_LEN and NUL */

void memory_file(struct cg_call *call) {
    char name[NAME_SIZE];
    const unsigned flags = (unsigned)call->args[1];
    const int error = cg_read_string(call, call->args[0], name, sizeof name);
    if (error || !cg_still_waiting(call)) { cg_answer_error(call, error == -ENAMETOOLONG ? EINVAL : error ? -error : ESRCH); return; }
    const int fd = (int)syscall(SYS_memfd_create, name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0) cg_answer_error(call, errno);
    else cg_answer_fd(call, fd, flags & MFD_CLOEXEC);
}
