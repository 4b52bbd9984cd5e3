/* The handlers that syscall_table.h names: one C function for each group of system calls. Each answers its call. */
#ifndef CG_CALLS_H
#define CG_CALLS_H

#include "supervisor.h"
#include "syscall_table.h"

/* calls_open.c */
void fs_open(struct cg_call *);
/* calls_metadata.c: what does not change names */
void fs_stat(struct cg_call *);
void fs_access(struct cg_call *);
void fs_readlink(struct cg_call *);
void fs_chmod(struct cg_call *);
void fs_fchmod(struct cg_call *);
void fs_truncate(struct cg_call *);
void fs_ftruncate(struct cg_call *);
void fs_chdir(struct cg_call *);
void fs_statfs(struct cg_call *);
void fs_utimes(struct cg_call *);
void fs_chown(struct cg_call *);
void fs_fchown(struct cg_call *);
void fs_watch(struct cg_call *);
void fs_handle(struct cg_call *);
void fs_mount(struct cg_call *);
void fs_lock(struct cg_call *);
/* calls_attributes.c */
void fs_xattr(struct cg_call *);
void fs_fxattr(struct cg_call *);
void fs_attributes(struct cg_call *);
/* calls_names.c: what does */
void fs_mkdir(struct cg_call *);
void fs_unlink(struct cg_call *);
void fs_rename(struct cg_call *);
void fs_symlink(struct cg_call *);
void fs_link(struct cg_call *);
void fs_mknod(struct cg_call *);
/* calls_exec.c */
void exec_program(struct cg_call *);
/* calls_network.c */
void net_socket(struct cg_call *);
void net_connect(struct cg_call *);
void net_bind(struct cg_call *);
void net_listen(struct cg_call *);
void net_setsockopt(struct cg_call *);
void net_interface(struct cg_call *);
/* calls_send.c */
void net_sendto(struct cg_call *);
void net_sendmsg(struct cg_call *);
/* calls_memory.c */
void memory_file(struct cg_call *);
/* calls_signal.c */
void process_signal(struct cg_call *);
/* calls_process.c */
void process_act(struct cg_call *);
/* calls_trace.c */
void process_trace(struct cg_call *);

#endif
