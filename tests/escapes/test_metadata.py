"""Changing what may only be read, by whatever call and descriptor (catalogue 36, 37, 40 to 42, 45)."""

from __future__ import annotations

import os
import struct
from errno import EACCES, EBADF, EINVAL, EPERM

import pytest

from tests.escapes.three_ways import ThreeWays
from tests.vm_fixtures import AT_FDCWD, Out, Probe, Raw, call, deny, results, tree_of

pytestmark = pytest.mark.vm

R, W, RW, TRUNC = os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_TRUNC
EMPTY_PATH, NOFOLLOW = 0x1000, 0x100
PUNCH_HOLE, KEEP_SIZE = 2, 1
LONG_AGO = Raw(struct.pack("<qqqq", 1, 0, 1, 0))
KEEP = 0xFFFF_FFFF  # an id of -1: leave it


def test_the_mode_of_a_file(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        secret = f"{top}/secret"
        return [
            call("open", secret, R),
            call("chmod", secret, 0o600),
            call("fchmod", 3, 0o600),
            call("fchmodat", AT_FDCWD, secret, 0o600),
            call("fchmodat2", AT_FDCWD, secret, 0o600, 0),
            call("fchmodat2", 3, "", 0o600, EMPTY_PATH),
            call("chmod", "/proc/self/fd/3", 0o600),
            call("open", secret, os.O_PATH),
            call("fchmodat2", 4, "", 0o600, EMPTY_PATH),
            call("chmod", "/proc/self/fd/4", 0o600),
        ]

    three_ways.works(script, [3] + [0] * 6 + [4, 0, 0])
    three_ways.refused(script, [3] + [-EACCES] * 6 + [4, -EACCES, -EACCES], "secret", operations=["chmod"])


def test_the_owner_and_the_times_of_a_file(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        secret = f"{top}/secret"
        return [
            call("open", secret, R),
            call("chown", secret, KEEP, KEEP),
            call("lchown", secret, KEEP, KEEP),
            call("fchown", 3, KEEP, KEEP),
            call("fchownat", AT_FDCWD, secret, KEEP, KEEP, NOFOLLOW),
            call("fchownat", 3, "", KEEP, KEEP, EMPTY_PATH),
            call("utimensat", AT_FDCWD, secret, LONG_AGO, 0),
            call("utimensat", 3, 0, LONG_AGO, 0),
            call("futimesat", AT_FDCWD, secret, LONG_AGO),
            call("utimes", secret, LONG_AGO),
            call("utime", secret, 0),
        ]

    three_ways.works(script, [3] + [0] * 10)
    three_ways.refused(script, [3] + [-EACCES] * 10, "secret", operations=["write"])


def test_the_extended_attributes_of_a_file(three_ways: ThreeWays, probe: Probe) -> None:
    vm = three_ways.vm(deny("/w/secret", operations=["write"]))
    before = tree_of(vm, "/w")
    names = ("user.x", "security.x", "trusted.x", "system.posix_acl_access")
    lines = [call("open", "/w/secret", R)]
    for name in names:
        lines += [
            call("setxattr", "/w/secret", name, Raw(b"v"), 1, 0),
            call("lsetxattr", "/w/secret", name, Raw(b"v"), 1, 0),
            call("fsetxattr", 3, name, Raw(b"v"), 1, 0),
            call("removexattr", "/w/secret", name),
            call("lremovexattr", "/w/secret", name),
            call("fremovexattr", 3, name),
        ]
    assert results(probe.in_vm(vm, lines)) == [3] + [-EACCES] * 24
    assert tree_of(vm, "/w") == before


def test_the_length_of_a_file(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        secret = f"{top}/secret"
        return [
            call("open", secret, R),
            call("truncate", secret, 1),
            call("open", secret, R | TRUNC),
            call("open", secret, RW | TRUNC),
            call("open", secret, W),
        ]

    three_ways.works(script, [3, 0, 4, 5, 6])
    three_ways.refused(script, [3, -EACCES, -EACCES, -EACCES, -EACCES], "secret", operations=["write", "truncate"])


def test_a_descriptor_for_writing_does_not_truncate_where_that_is_denied(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [call("open", f"{top}/secret", RW), call("ftruncate", 3, 1)]

    three_ways.works(script, [3, 0])
    three_ways.refused(script, [3, -EACCES], "secret", operations=["truncate"])


def test_a_descriptor_for_reading_writes_by_no_call(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [
            call("open", f"{top}/secret", R),
            call("open", f"{top}/plain", R),
            call("ftruncate", 3, 1),
            call("write", 3, Raw(b"x"), 1),
            call("pwrite64", 3, Raw(b"x"), 1, 0),
            call("fallocate", 3, PUNCH_HOLE | KEEP_SIZE, 0, 10),
            call("copy_file_range", 4, 0, 3, 0, 10, 0),
            call("sendfile", 3, 4, 0, 10),
            call("ioctl", 3, 0x4004_9409, 4),  # FICLONE
        ]

    expected = [3, 4, -EINVAL, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF, -EBADF]
    assert results(three_ways.on_host(script)) == expected
    three_ways.refused(script, expected, "secret", operations=["write"])


def test_file_attributes_are_not_set_by_ioctl(three_ways: ThreeWays, probe: Probe) -> None:
    for vm in (three_ways.vm(deny("/w/secret", operations=["write"])), three_ways.vm({})):
        lines = [
            call("open", "/w/secret", R),
            call("ioctl", 3, 0x4008_6602, Raw(bytes(8))),
            call("ioctl", 3, 0x401C_5820, Raw(bytes(28))),
        ]
        assert results(probe.in_vm(vm, lines)) == [3, -EACCES, -EACCES]


def test_there_are_no_device_nodes(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        kinds = [0o020666, 0o060666]
        return [call("mknodat", AT_FDCWD, f"{top}/node", kind, 0x0103) for kind in kinds] + [
            call("mknod", f"{top}/fifo", 0o010600, 0),
            call("rename", f"{top}/fifo", f"{top}/open/fifo"),
        ]

    three_ways.works(script, [-EPERM, -EPERM, 0, 0])
    vm = three_ways.vm({})
    assert vm.run(["mknod", "/tmp/null", "c", "1", "3"]).returncode != 0
    assert vm.run(["mkfifo", "/tmp/fifo"]).returncode == 0
    assert three_ways.vm({}).run("id -u; mknod /tmp/null c 1 3 || echo refused").stdout.endswith("refused\n")


def test_what_exists_cannot_be_told_from_what_does_not(three_ways: ThreeWays) -> None:
    def looks(top: str, name: str) -> list[str]:
        path = f"{top}/vault/{name}"
        return [
            call("stat", path, Out(144)),
            call("lstat", path, Out(144)),
            call("statx", AT_FDCWD, path, 0, 0x7FF, Out(256)),
            call("access", path, 0),
            call("faccessat2", AT_FDCWD, path, 4, 0x200),
            call("readlink", path, Out(64), 64),
            call("statfs", path, Out(120)),
            call("chdir", path),
            call("open", path, os.O_PATH),
            call("name_to_handle_at", AT_FDCWD, path, Raw(struct.pack("<Ii", 128, 0) + bytes(128)), Out(4), 0),
            call("getxattr", path, "user.x", Out(8), 8),
            call("listxattr", path, Out(8), 8),
            call("inotify_add_watch", 99, path, 1),
            call("mkdir", path, 0o755),
            call("symlink", "x", path),
            call("mknod", path, 0o100600, 0),
            call("open", path, W | os.O_CREAT | os.O_EXCL, 0o600),
        ]

    def script(top: str) -> list[str]:
        return [*looks(top, "inner"), *looks(top, "absent")]

    on_host = results(three_ways.on_host(script))
    half = len(on_host) // 2
    assert on_host[:half] != on_host[half:]  # the control: there is a difference to be seen
    answers = results(three_ways.where_refused(script, "vault/**"))
    assert answers == [-EACCES] * len(answers)
