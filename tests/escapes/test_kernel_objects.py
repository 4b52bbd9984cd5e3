"""Mounts, namespaces and other doors of the kernel (catalogue 95 to 98, 102, 103)."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES, ENOSYS, EOPNOTSUPP, EPERM
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import AT_FDCWD, Earlier, Out, Probe, Raw, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

POLICIES = {
    "default": None,
    "judged": judged_but_allowed(),
    "mounting-allowed": {"fs": "allow", "process": "allow"},
    "all-deny": {"fs": "deny", "process": "deny", "network": "deny"},
}
REFUSED = {-EPERM, -EACCES, -ENOSYS, -EOPNOTSUPP}


@pytest.fixture(params=POLICIES)
def vm(request: pytest.FixtureRequest, vm_factory: Callable[..., VM], probe: Probe) -> VM:
    return vm_factory(permissions=POLICIES[request.param], files=probe.files)


MS_BIND, MNT_DETACH, OPEN_TREE_CLONE = 4096, 2, 1
MOUNTING = [
    call("mount", "/etc", "/tmp", "none", MS_BIND, 0),
    call("mount", "tmpfs", "/tmp", "tmpfs", 0, 0),
    call("mount", "proc", "/proc", "proc", 0, 0),
    call("umount2", "/usr", MNT_DETACH),
    call("umount2", "/proc", MNT_DETACH),
    call("pivot_root", "/tmp", "/tmp"),
    call("chroot", "/tmp"),
    call("open_tree", AT_FDCWD, "/etc", OPEN_TREE_CLONE),
    call("move_mount", AT_FDCWD, "/etc", AT_FDCWD, "/tmp", 0),
    call("fsopen", "tmpfs", 0),
    call("fspick", AT_FDCWD, "/", 0),
    call("fsconfig", 3, 6, 0, 0, 0),
    call("fsmount", 3, 0, 0),
    call("mount_setattr", AT_FDCWD, "/usr", 0, Raw(bytes(32)), 32),
    call("statmount", Raw(bytes(32)), Out(256), 256, 0),
    call("listmount", Raw(bytes(32)), Out(256), 32, 0),
    call(467, AT_FDCWD, "/etc", OPEN_TREE_CLONE, Raw(bytes(32)), 32),  # open_tree_attr
]


def test_nothing_is_mounted_or_unmounted(vm: VM, probe: Probe) -> None:
    def mounts() -> str:
        return vm.run(["cat", "/proc/self/mountinfo"]).stdout

    before = mounts()
    assert set(results(probe.in_vm(vm, MOUNTING))) <= REFUSED
    assert mounts() == before


def test_a_mount_that_a_policy_refuses_says_so(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=deny("/etc/**", operations=["mount_sensitive"]), files=probe.files)
    assert results(probe.in_vm(vm, [call("mount", "/tmp", "/etc", "none", MS_BIND, 0)])) == [-EACCES]
    assert [denial.operation for denial in vm.denials] == ["mount_sensitive"]


def test_no_namespace_is_entered(vm: VM, probe: Probe) -> None:
    """Not even by the descriptor of one's own, and not from the descriptor of a process (PIDFD_GET_*_NAMESPACE)."""
    names = ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup")
    lines = [call("open", f"/proc/self/ns/{name}", os.O_RDONLY) for name in names]
    lines += [call("setns", Earlier(n), 0) for n in range(len(names))]
    lines += [call("getpid"), call("pidfd_open", Earlier(len(lines)), 0), call("setns", Earlier(len(lines) + 1), 0x1000_0000)]
    lines += [call("ioctl", Earlier(len(lines) - 2), command, 0) for command in range(0xFF01, 0xFF0B)]
    answers = results(probe.in_vm(vm, lines))
    assert set(answers[7:14]) <= REFUSED
    assert answers[16] in REFUSED
    assert max(answers[17:]) < 0


ADMINISTRATION = [
    ("userfaultfd", 0),
    ("bpf", 0, Raw(bytes(128)), 128),
    ("perf_event_open", Raw(bytes(128)), 0, -1, -1, 0),
    ("keyctl", 0, -3, 1),
    ("add_key", "user", "name", Raw(b"x"), 1, -3),
    ("request_key", "user", "name", 0, -3),
    ("memfd_secret", 0),
    ("kexec_load", 0, 0, 0, 0),
    ("kexec_file_load", -1, -1, 0, 0, 0),
    ("init_module", 0, 0, ""),
    ("finit_module", -1, "", 0),
    ("delete_module", "none", 0),
    ("syslog", 10, 0, 0),
    ("acct", 0),
    ("swapon", "/tmp/x", 0),
    ("swapoff", "/tmp/x"),
    ("reboot", 0, 0, 0, 0),
    ("settimeofday", Raw(bytes(16)), 0),
    ("clock_settime", 0, Raw(bytes(16))),
    ("adjtimex", Raw(bytes(208))),
    ("iopl", 3),
    ("ioperm", 0x80, 1, 1),
    ("modify_ldt", 1, Raw(bytes(16)), 16),
    ("sethostname", "x", 1),
    ("setdomainname", "x", 1),
    ("vhangup",),
    ("quotactl", 0x800000, 0, 0, 0),
    ("open_by_handle_at", AT_FDCWD, Raw(bytes(136)), 0),
    ("name_to_handle_at", AT_FDCWD, "/tmp", Raw(b"\x80" + bytes(135)), Out(4), 0),
    ("fanotify_init", 0, 0),
    ("fanotify_mark", 0, 1, 1, AT_FDCWD, "/"),
    ("migrate_pages", 0, 0, 0, 0),
    ("move_pages", 0, 0, 0, 0, 0, 0),
    ("capset", Raw(bytes(8)), Raw(bytes(24))),
    ("setgroups", 0, 0),
    ("shmget", 1, 4096, 0o1666),
    ("msgget", 1, 0o1666),
    ("semget", 1, 1, 0o1666),
    ("mq_open", "x", 0o102, 0o666, 0),
    ("io_setup", 8, Out(8)),
    ("lookup_dcookie", 0, 0, 0),
]  # fmt: skip


def test_the_machine_is_not_administered(vm: VM, probe: Probe) -> None:
    lines = [call(name, *arguments) for name, *arguments in ADMINISTRATION]  # type: ignore[arg-type]
    answers = dict(zip((name for name, *_ in ADMINISTRATION), results(probe.in_vm(vm, lines)), strict=True))
    assert {name: answer for name, answer in answers.items() if answer not in REFUSED} == {}


def test_identities_do_not_change(vm: VM, probe: Probe) -> None:
    changes = [
        ("setuid", 0),
        ("setgid", 0),
        ("setreuid", 0, 0),
        ("setresuid", 0, 0, 0),
        ("setresgid", 0, 0, 0),
        ("setuid", 65534),
    ]
    lines = [call(name, *arguments) for name, *arguments in changes]
    answers = results(probe.in_vm(vm, [*lines, call("setfsuid", 0), call("setfsuid", -1), call("getuid"), call("getgid")]))
    assert set(answers[:6]) <= {-EPERM, -22}
    assert answers[7:] == [1000, 1000, 1000]


TERMINAL_ATTACKS = {
    "TIOCSTI": 0x5412,
    "TIOCLINUX": 0x541C,
    "TIOCCONS": 0x541D,
    "TIOCSETD": 0x5423,
    "KDSKBENT": 0x4B47,
    "VT_ACTIVATE": 0x5606,
}


def test_a_terminal_is_not_typed_into(vm: VM, probe: Probe) -> None:
    """Also with garbage in the high half of the command, which the kernel does not look at."""
    commands = [command | high for command in TERMINAL_ATTACKS.values() for high in (0, 0xDEAD_BEEF_0000_0000)]
    lines = [call("open", "/dev/ptmx", os.O_RDWR), *(call("ioctl", 3, command, Raw(b"x" * 32)) for command in commands)]
    answers = results(probe.in_vm(vm, lines))
    assert set(answers[1:]) <= {-EPERM, -25}
    assert answers[1:3] == [-EPERM, -EPERM]


DEVICES = (
    "mem",
    "kmem",
    "port",
    "kmsg",
    "fuse",
    "userfaultfd",
    "loop0",
    "loop-control",
    "kvm",
    "net/tun",
    "sda",
    "vda",
    "console",
    "tty0",
    "ttyS0",
)


def test_only_harmless_devices_are_there(vm_factory: Callable[..., VM], probe: Probe) -> None:
    for permissions in (None, judged_but_allowed()):
        vm = vm_factory(permissions=permissions, files=probe.files)
        answers = results(probe.in_vm(vm, [call("open", f"/dev/{name}", os.O_RDONLY) for name in DEVICES]))
        assert max(answers) < 0
        usable = [call("open", f"/dev/{name}", os.O_RDWR) for name in ("null", "zero", "full", "random", "urandom")]
        assert min(results(probe.in_vm(vm, usable))) >= 0


def test_devices_stay_usable_where_everything_is_denied(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions={"fs": "deny"})
    script = "echo x > /dev/null; head -c 4 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c; echo x > /dev/full || echo full"
    assert vm.run(script).stdout.split() == ["4", "3", "full"]
