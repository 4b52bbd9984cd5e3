"""The table holds every system call once, under its right number, with a handler or a reason."""

from __future__ import annotations

import inspect
import re
from itertools import pairwise
from pathlib import Path

import pytest

from callgate.kernel.syscalls.arguments.files import FileMode
from callgate.kernel.syscalls.decision import ALLOW, NOTIFY, Outcome
from callgate.kernel.syscalls.row import ANY_FS, FS_TRIGGERS, TRIGGERS, Syscall, complete_triggers
from callgate.kernel.syscalls.table import GROUPS, SYSCALLS, by_name, by_number
from callgate.scopes.operations import OPERATIONS

NUMBERS = frozenset(range(337)) | frozenset(range(424, 472))  # 337 to 423 were never given out on x86-64
SYSTEM_HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")

HANDLERS = """
    fs_open fs_stat fs_access fs_readlink fs_mkdir fs_unlink fs_rename fs_symlink fs_link fs_chmod fs_fchmod fs_truncate
    fs_ftruncate fs_chdir fs_statfs fs_utimes fs_chown fs_fchown fs_mknod fs_xattr fs_fxattr fs_attributes fs_watch fs_handle
    fs_mount fs_lock exec_program net_socket net_connect net_bind net_listen net_sendto net_sendmsg net_setsockopt
    net_interface process_signal process_act process_trace memory_file
"""

# A signal that comes before the supervisor has taken a notification ends the call with EINTR, whatever the call.
NEVER_NOTIFIED = """
    close close_range dup dup2 dup3 fork vfork clone read write readv writev pread64 pwrite64 exit exit_group munmap
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait wait4 waitid restart_syscall
"""


def everything_notified() -> frozenset[str]:
    return frozenset(TRIGGERS)


def test_every_number_has_exactly_one_row() -> None:
    assert [row.number for row in SYSCALLS] == sorted(NUMBERS)
    assert len(by_name) == len(by_number) == len(SYSCALLS)


def test_no_group_repeats_a_row_and_each_is_in_numeric_order() -> None:
    assert sum(len(group.ROWS) for group in GROUPS) == len(SYSCALLS)
    for group in GROUPS:
        assert all(first.number < second.number for first, second in pairwise(group.ROWS)), group.__name__


@pytest.mark.skipif(not SYSTEM_HEADER.exists(), reason="the kernel headers are not installed")
def test_numbers_are_those_of_the_system_header() -> None:
    defined = dict(re.findall(r"#define __NR_(\w+) (\d+)", SYSTEM_HEADER.read_text()))
    assert len(defined) > 300
    assert {name: int(number) for name, number in defined.items()} == {
        name: row.number for name, row in by_name.items() if name in defined
    }


def test_triggers_are_the_operations_of_the_fs_scope_the_other_enforced_scopes_setid_and_noexec() -> None:
    assert tuple(f"fs.{operation}" for operation in OPERATIONS["fs"]) == FS_TRIGGERS
    assert set(OPERATIONS) >= {"network", "childProcess", "process", "env"}
    assert {*FS_TRIGGERS, ANY_FS, "network", "childProcess", "process", "env", "setid", "noexec"} == TRIGGERS


def test_a_handler_is_named_exactly_where_something_is_judged() -> None:
    for row in SYSCALLS:
        assert bool(row.judged) == bool(row.handler), row.name
        assert TRIGGERS.issuperset(row.judged), row.name
        assert len(set(row.judged)) == len(row.judged), row.name


def test_handlers_are_those_of_the_supervisor_and_each_is_used() -> None:
    assert {row.handler for row in SYSCALLS if row.handler} == set(HANDLERS.split())


def test_every_trigger_is_judged_by_some_call() -> None:
    judged = {trigger for row in SYSCALLS for trigger in row.judged}
    assert judged | {"fs.rename"} == TRIGGERS  # renaming counts for any operation of fs, so it stands under fs.*


def test_every_refusal_has_a_reason() -> None:
    for row in SYSCALLS:
        if isinstance(row.otherwise, Outcome):
            assert row.otherwise == ALLOW or row.why, row.name
            assert row.otherwise != NOTIFY, f"{row.name}: what is notified has to name a trigger"
        else:
            assert inspect.getdoc(type(row.otherwise)), row.name


@pytest.mark.parametrize("name", NEVER_NOTIFIED.split())
def test_calls_nobody_retries_are_never_notified(name: str) -> None:
    row = by_name[name]
    assert not row.judged
    assert "notify" not in repr(row.decide(everything_notified()))


def test_a_rule_notifies_only_calls_that_have_a_handler() -> None:
    for row in SYSCALLS:
        if "notify" in repr(row.decide(everything_notified())):
            assert row.handler, row.name


def test_a_call_without_a_judged_trigger_is_not_notified() -> None:
    for row in SYSCALLS:
        assert "notify" not in repr(row.decide(frozenset())), row.name
        for trigger in TRIGGERS - set(row.judged):
            if trigger == ANY_FS or (trigger in FS_TRIGGERS and ANY_FS in row.judged):
                continue
            assert "notify" not in repr(row.decide(complete_triggers(frozenset({trigger})))), (row.name, trigger)


def test_any_fs_trigger_stands_for_fs_as_a_whole() -> None:
    assert complete_triggers(frozenset({"fs.chmod", "network"})) == {"fs.chmod", "network", "fs.*"}
    assert complete_triggers(frozenset({"network", "setid"})) == {"network", "setid"}
    assert complete_triggers(frozenset({"fs.*"})) == {"fs.*"}


@pytest.mark.parametrize("name", ["fs", "fs.execute", "env.read", "Network", "network.http", ""])
def test_a_name_that_is_no_trigger_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="unknown triggers"):
        complete_triggers(frozenset({"network", name}))


# The table of the contract (SPEC 3), every judged call of it: what a call is judged as, and the calls.
CONTRACT = {
    ("fs.read", "fs.readdir", "fs.write", "fs.truncate", "fs.stat"): "open openat",
    ("fs.read", "fs.readdir", "fs.write", "fs.truncate", "fs.stat", "setid"): "openat2",
    ("fs.read", "fs.readdir", "fs.stat"): "inotify_add_watch",
    ("fs.read",): "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr getxattrat listxattrat",
    ("fs.write", "fs.truncate"): "creat",
    ("fs.write",): """
        mknod mknodat utime utimes futimesat utimensat chown lchown fchownat fchown setxattr lsetxattr fsetxattr removexattr
        lremovexattr fremovexattr setxattrat removexattrat file_setattr
    """,
    ("fs.truncate",): "truncate ftruncate",
    ("fs.stat",): """
        stat lstat newfstatat statx access faccessat faccessat2 statfs chdir name_to_handle_at file_getattr
    """,
    ("fs.create_dir",): "mkdir mkdirat",
    ("fs.rm",): "unlink unlinkat rmdir",
    ("fs.*",): "rename renameat renameat2 link linkat flock fcntl",
    ("fs.symlink",): "symlink symlinkat",
    ("fs.readlink",): "readlink readlinkat",
    ("fs.chmod",): "chmod fchmod fchmodat fchmodat2",
    ("fs.mount_sensitive",): """
        mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr
    """,
    ("network", "fs.*"): "connect bind sendto sendmsg sendmmsg",
    ("network",): "socket listen setsockopt ioctl",
    ("childProcess", "env", "fs.*"): "execve execveat",
    ("noexec",): "memfd_create",
    ("process",): """
        kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal setpriority ioprio_set sched_setaffinity
        sched_setscheduler sched_setparam sched_setattr prlimit64 ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp
        setpgid setsid pidfd_open
    """,
}


def test_calls_are_judged_as_the_contract_says() -> None:
    wanted = {name: frozenset(triggers) for triggers, names in CONTRACT.items() for name in names.split()}
    assert {row.name: frozenset(row.judged) for row in SYSCALLS if row.judged} == wanted


def test_a_rule_on_a_mode_notifies_for_what_its_row_is_judged_as() -> None:
    rows = [row for row in SYSCALLS if isinstance(row.otherwise, FileMode)]
    assert rows
    for row in rows:
        assert isinstance(row.otherwise, FileMode)
        assert row.otherwise.judged == row.judged, row.name


@pytest.mark.parametrize("name", ["io_uring_setup", "clone3", "userfaultfd", "memfd_secret", "statmount", "listns"])
def test_calls_that_programs_fall_back_from_fail_with_enosys(name: str) -> None:
    for notified in (frozenset[str](), everything_notified()):
        assert by_name[name].decide(notified) == Outcome("errno", 38)


@pytest.mark.parametrize("name", ["ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"])
def test_acting_with_the_rights_of_another_process_is_never_simply_allowed(name: str) -> None:
    assert by_name[name].decide(frozenset()) == Outcome("errno", 1)
    assert by_name[name].decide(frozenset({"process"})) == NOTIFY


def test_a_row_is_small_and_immutable() -> None:
    row = Syscall(0, "read")
    with pytest.raises(AttributeError):
        row.handler = "other"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
