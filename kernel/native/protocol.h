/* The messages and blobs that cross between the host (Python) and the supervisor (C).
 *
 * Everything is little-endian and packed, in the order written here:
 *   u8 u16 u32 u64 i32   fixed-width integers
 *   bytes                u32 length, then that many bytes (no terminator; may hold any byte unless said)
 *   list<T>              u32 count, then the items
 * A reader that runs past the end, or has bytes left over, rejects the whole message (bytes.h). kernel/launch_blob.py and kernel/protocol.py are the
 * other end; tests/kernel/test_protocol.py compares the two through cffi.
 *
 * LAUNCH BLOB: in a sealed memfd, inherited as descriptor CG_FD_LAUNCH
 *   u32 magic CG_LAUNCH_MAGIC
 *   u32 flags                 CG_LAUNCH_*
 *   u32 host_pid              the process whose death ends the VM
 *   u32 guest_uid, guest_gid  the ids seen inside
 *   bytes hostname
 *   bytes workdir             default working directory of vm.fs relative paths
 *   u64 disk_bytes, u64 disk_inodes   size of the root tmpfs
 *   list<setup step>          u32 kind CG_STEP_*, bytes destination, bytes source, u32 mode, u32 flags CG_BIND_*
 *   list<limit>               u32 resource (RLIMIT_*), u64 soft, u64 hard: set in every guest program before exec;
 *                             or u32 CG_WATCH_*, u64 most, u64 0: what the supervisor watches itself
 *   list<listener>            u32 kind CG_LISTEN_*, bytes address (a path; four or sixteen bytes), u32 port: sockets of the host inside the VM
 *   list<u32> host_ports      ports of the host's loopback that the operator opened to the guests
 *   bytes filter              struct sock_filter[], 8 bytes each
 *   bytes policy              the policy blob
 *
 * POLICY BLOB: compiled by kernel/plan.py, decoded by policy.c
 *   u32 magic CG_POLICY_MAGIC
 *   six scopes in the order of enum cg_scope, each:
 *     u32 default_allow       0 or 1
 *     i32 default_rule        CG_RULE_MODE or CG_RULE_DEFAULT: what is reported when no rule matches
 *     u32 fold_case           1: the subject is lower-cased (ASCII) before matching (network)
 *     list<rule>              in policy order; the last that matches wins
 *       u32 allow, u32 operations (bit n = operation n of the scope), i32 rule (index to report, or CG_RULE_*),
 *       list<bytes> globs     grammar of scopes/glob.py, already in the scope's subject form
 *       u32 naming            how many of the globs, counted from the first, name an address rather than a host or everything
 *
 * CONTROL SOCKET: SOCK_SEQPACKET, descriptor CG_FD_CONTROL in the supervisor. One message per packet:
 *   u32 type, u32 request, then the payload. A reply repeats the request number. At most CG_MESSAGE_MAX bytes.
 *
 *   supervisor -> host
 *     CG_MSG_READY          u32 protocol version, i32 init_pid (host's view), u32 seccomp features CG_FEATURE_*
 *                           descriptors: the listeners, in the order of the launch blob
 *     CG_MSG_LAUNCH_FAILED  bytes step, i32 errno, bytes detail; the supervisor then exits. Nothing ran.
 *     CG_MSG_REPLY          i32 errno (0 = done), u64 value, bytes data, u32 has_denial, [denial]; may carry one descriptor
 *   host -> supervisor
 *     CG_MSG_RUN            u32 flags CG_RUN_*, bytes cwd, list<bytes> argv, list<bytes> envp
 *                           descriptors: stdin, stdout, stderr, events socket (SOCK_SEQPACKET)
 *                           with CG_RUN_IN_MEMFD what follows the flags is in a fifth descriptor (a memfd) instead
 *                           reply value = run number
 *     CG_MSG_SIGNAL         u32 run, u32 signal, u32 whom CG_SIGNAL_*
 *     CG_MSG_FS             u32 operation CG_FS_*, u32 flags CG_FS_UNCHECKED, u32 a, u32 b, bytes path, bytes second path
 *     CG_MSG_STATS          reply data = u64 notified, denials, dropped denials, threads, runs alive
 *     CG_MSG_CPU_CLOCK      descriptor: a cgroup's cpu.stat; the processor time of everything in the VM, for CG_WATCH_CPU
 *     CG_MSG_NAME           bytes name, bytes v4, bytes v6, u32 flags CG_NAME_*, u32 port, list<bytes> addresses: what the VM's resolver is about to
 *                           answer for a name. v4 and v6 (of 198.18.0.0/15 and 2001:2::/48) stand for the name inside the VM, the addresses (4 or 16 bytes,
 *                           best first) are what the supervisor dials, at `port` or, if that is 0, at the one asked for. Replaces what was known of these two.
 *     CG_MSG_SOCKET         u32 domain, u32 type -> the descriptor of a new socket in the VM's network namespace
 *     CG_MSG_LOOKUP_DENIED  u32 protocol (IPPROTO_*), u32 source port, i32 rule, bytes subject, bytes reason: a name was refused to the program that asked
 *                           from that port; sent on as a denial of its run. ENOENT: no such program is known.
 *
 * EVENTS SOCKET: one per run, supervisor -> host, same framing (request = run number); EOF after CG_EVENT_EXITED
 *     CG_EVENT_STARTED      u32 pid (in the VM)
 *     CG_EVENT_EXEC_FAILED  i32 errno, bytes stage ("chdir", "lookup", "exec"); then CG_EVENT_EXITED does not follow
 *     CG_EVENT_DENIAL       denial
 *     CG_EVENT_EXITED       i32 wait status, u64 user microseconds, u64 system microseconds, u64 max rss KiB,
 *                           u64 calls of the VM notified meanwhile, u64 denials not sent (rate limit or full socket), u32 exceeded: bits 1 << (CG_WATCH_* - CG_WATCH_WALL)
 *
 *   denial: u32 scope, u32 operation, i32 rule, u32 pid (in the VM), u64 CLOCK_REALTIME nanoseconds,
 *           bytes subject (what was judged), bytes requested (what the guest wrote, made absolute), bytes program, bytes reason ("" or a word
 *           on why a call is refused whatever the policy says)
 */
#ifndef CG_PROTOCOL_H
#define CG_PROTOCOL_H

#define CG_PROTOCOL_VERSION 1u
#define CG_FD_CONTROL 3
#define CG_FD_LAUNCH 4
#define CG_MESSAGE_MAX 131072u
#define CG_LAUNCH_MAGIC 0x314c4743u /* "CGL1" */
#define CG_POLICY_MAGIC 0x31504743u /* "CGP1" */

enum { CG_LAUNCH_LOOPBACK = 1u,    /* bring the VM's own lo up */
       CG_LAUNCH_REGISTER = 2u,    /* exec or process calls are notified: tell our own helpers from guests */
       CG_LAUNCH_NO_SETID = 4u,    /* host directories are writable: no set-user-ID or set-group-ID file may come to be */
       CG_LAUNCH_NO_EXEC = 64u };  /* nothing in the root's tmpfs can be executed */

enum { CG_STEP_DIRECTORY = 1, /* destination, mode */
       CG_STEP_FILE = 2,      /* destination, source = content, mode */
       CG_STEP_SYMLINK = 3,   /* destination, source = target */
       CG_STEP_BIND = 4,      /* destination, source = host path, flags */
       CG_STEP_PROC = 5,      /* destination */
       CG_STEP_DEVPTS = 6 };  /* destination */

enum { CG_BIND_READ_ONLY = 1u, CG_BIND_OPTIONAL = 2u /* a missing source is skipped */, CG_BIND_DEVICE = 4u,
       CG_BIND_OPERATOR = 8u, /* opened with the operator's rights */
       CG_BIND_OWNER = 16u /* with OPERATOR: its owner is seen as the guest user */,
       CG_BIND_NO_EXEC = 64u /* nothing in it can be executed */ };

enum { CG_LISTEN_UNIX = 1 /* a stream socket at a path */, CG_LISTEN_UDP = 2, CG_LISTEN_TCP = 3 };

enum { CG_MSG_READY = 1, CG_MSG_LAUNCH_FAILED = 2, CG_MSG_REPLY = 3, CG_MSG_RUN = 16, CG_MSG_SIGNAL = 17, CG_MSG_FS = 18, CG_MSG_STATS = 19, CG_MSG_CPU_CLOCK = 20,
       CG_MSG_NAME = 24, CG_MSG_SOCKET = 25, CG_MSG_LOOKUP_DENIED = 26,
       CG_EVENT_STARTED = 32, CG_EVENT_EXEC_FAILED = 33, CG_EVENT_DENIAL = 34, CG_EVENT_EXITED = 35 };

enum { CG_RUN_TTY = 1u /* stdin is a pty of ours: make it the controlling terminal */, CG_RUN_IN_MEMFD = 2u };

enum { CG_SIGNAL_FIRST = 0, /* the run's first program */
       CG_SIGNAL_TREE = 1,  /* every process of the run, with SIGKILL */
       CG_SIGNAL_GROUP = 2 /* the first program and the rest of its process group, as a terminal's keys do */ };

enum { CG_WATCH_WALL = 1000,  /* milliseconds that a run may take */
       CG_WATCH_CPU = 1001,   /* milliseconds of processor time that a run's processes may use together */
       CG_WATCH_MEMORY = 1002 /* bytes that the VM's processes may hold together */ };

enum { CG_NAME_OPERATOR = 1u,    /* the operator's own mapping: local addresses are not refused, and address rules do not matter */
       CG_NAME_HOST_PORTS = 2u   /* the host itself: only the ports of host_ports */ };

enum { CG_FEATURE_WAIT_KILLABLE = 1u, CG_FEATURE_SYNC_WAKE_UP = 2u };

/* vm.fs. a and b are per operation; data and descriptor of the reply as noted. */
enum { CG_FS_OPEN = 1,     /* a = open flags, b = mode -> descriptor */
       CG_FS_STAT = 2,     /* a = 1: follow -> data = struct stat as u64: mode ino dev nlink uid gid size atime_ns mtime_ns ctime_ns */
       CG_FS_MKDIR = 3,    /* b = mode */
       CG_FS_UNLINK = 4,   /* a = 1: directory */
       CG_FS_RENAME = 5,   /* path -> second path */
       CG_FS_SYMLINK = 6,  /* path = the link, second path = its text */
       CG_FS_READLINK = 7, /* -> data */
       CG_FS_CHMOD = 8,    /* b = mode */
       CG_FS_LINK = 9,     /* path -> second path */
       CG_FS_TRUNCATE = 10 /* a = low, b = high half of the length */ };
enum { CG_FS_UNCHECKED = 1u };

enum cg_scope { CG_SCOPE_FS, CG_SCOPE_NETWORK, CG_SCOPE_CHILD_PROCESS, CG_SCOPE_PROCESS, CG_SCOPE_ENV, CG_SCOPE_BINDING, CG_SCOPES };

/* Operation numbers are positions in scopes/operations.py; "*" scopes have the single operation 0. */
enum cg_fs_operation { CG_FS_OP_READ, CG_FS_OP_WRITE, CG_FS_OP_STAT, CG_FS_OP_READDIR, CG_FS_OP_CREATE_DIR, CG_FS_OP_RM, CG_FS_OP_RENAME,
                       CG_FS_OP_SYMLINK, CG_FS_OP_READLINK, CG_FS_OP_CHMOD, CG_FS_OP_TRUNCATE, CG_FS_OP_MOUNT_SENSITIVE, CG_FS_OPS };
enum cg_network_operation { CG_NET_OP_FETCH, CG_NET_OP_HTTP, CG_NET_OP_DNS, CG_NET_OP_LISTEN };

/* What decided, when it was not the user's rule number n >= 0. */
enum { CG_RULE_DEFAULT = -1, CG_RULE_MODE = -2, CG_RULE_RUNTIME_IMAGE = -3, CG_RULE_MOUNT = -4, CG_RULE_DEVICE = -5, CG_RULE_UNSUPPORTED = -6,
       CG_RULE_WIDENING = -7, CG_RULE_LOCAL_ADDRESS = -8, CG_RULE_UNRESOLVED = -9, CG_RULE_HOST_SERVICE = -10 /* the sockets of the host inside the VM */ };

#endif
