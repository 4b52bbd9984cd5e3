"""The running kernel takes the filter and acts on it; every probe has a control that does the same without a filter."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate.kernel.confinement.filter import build_filter
from callgate.kernel.syscalls.row import TRIGGERS
from callgate.kernel.syscalls.table import by_name

PROBE = Path(__file__).parent / "syscalls" / "probe.c"
NO_FILTER = "-"

# Without a supervisor to take it, a notification fails with ENOSYS: here that is how a notified call is recognised.
NOTIFIED = errno.ENOSYS

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def probe(compile_c: Callable[..., Path]) -> Path:
    return compile_c(PROBE)


@pytest.fixture
def filter_file(tmp_path: Path) -> Callable[..., str]:
    def write(*notified: str) -> str:
        path = tmp_path / ("+".join(notified) or "nothing")
        path.write_bytes(build_filter(frozenset(notified)))
        return str(path)

    return write


def run(probe: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(probe), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def error_of(probe: Path, file: str, call: str | int, *arguments: int) -> int:
    """The errno of one call under a filter; 0 if it succeeds."""
    number = by_name[call].number if isinstance(call, str) else call
    done = run(probe, file, "call", number, *arguments)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_an_ordinary_call_works(probe: Path, filter_file: Callable[..., str]) -> None:
    for file in (filter_file(), filter_file(*TRIGGERS), NO_FILTER):
        assert error_of(probe, file, "getpid") == 0


def test_io_uring_cannot_be_set_up(probe: Path, filter_file: Callable[..., str]) -> None:
    assert error_of(probe, filter_file(), "io_uring_setup", 8, 0) == errno.ENOSYS


@pytest.mark.parametrize("number", [337, 423, 472, 600, 9999, -1])
def test_unknown_numbers_fail_with_enosys(probe: Path, filter_file: Callable[..., str], number: int) -> None:
    assert error_of(probe, filter_file(), number) == errno.ENOSYS


def test_x32_numbers_fail_with_enosys(probe: Path, filter_file: Callable[..., str]) -> None:
    assert error_of(probe, filter_file(), 0x4000_0000 + by_name["getpid"].number) == errno.ENOSYS


def test_the_32_bit_entry_kills_the_process(probe: Path, filter_file: Callable[..., str]) -> None:
    assert run(probe, filter_file(), "int80").returncode == -signal.SIGSYS
    control = run(probe, NO_FILTER, "int80")
    assert control.returncode in (0, -signal.SIGSEGV)  # the second on a kernel without 32-bit emulation


def test_clone3_is_hidden_and_threads_still_start(probe: Path, filter_file: Callable[..., str]) -> None:
    assert error_of(probe, filter_file(), "clone3", 0, 0) == errno.ENOSYS
    assert error_of(probe, NO_FILTER, "clone3", 0, 0) == errno.EINVAL
    for file in (filter_file(), filter_file(*TRIGGERS)):
        assert run(probe, file, "thread").stdout == "0\n"


CLONE_NEWUSER, CLONE_SIGHAND = 0x1000_0000, 0x800


def test_no_new_namespace_can_be_made(probe: Path, filter_file: Callable[..., str]) -> None:
    file = filter_file()
    assert error_of(probe, file, "unshare", CLONE_NEWUSER) == errno.EPERM
    assert error_of(probe, file, "clone", CLONE_NEWUSER | signal.SIGCHLD) == errno.EPERM
    assert error_of(probe, file, "clone", (1 << 32) | CLONE_NEWUSER | signal.SIGCHLD) == errno.EPERM
    assert error_of(probe, file, "clone", CLONE_SIGHAND) == errno.EINVAL  # reaches the kernel, which wants CLONE_VM with it
    assert error_of(probe, file, "setns", 0, 0) == errno.EPERM
    assert error_of(probe, NO_FILTER, "setns", 0, 0) in (errno.EINVAL, errno.EBADF)


@pytest.mark.parametrize("above", [0, 1 << 32, 0xFFFF_FFFF << 32])
def test_input_cannot_be_put_into_a_terminal(probe: Path, filter_file: Callable[..., str], above: int) -> None:
    tiocsti = 0x5412
    assert error_of(probe, filter_file(), "ioctl", 0, tiocsti + above, 0) == errno.EPERM
    assert error_of(probe, NO_FILTER, "ioctl", 0, tiocsti + above, 0) != errno.EPERM  # no terminal: ENOTTY


def test_only_known_socket_families_can_be_made(probe: Path, filter_file: Callable[..., str]) -> None:
    stream, datagram = int(socket.SOCK_STREAM), int(socket.SOCK_DGRAM)
    allowed = filter_file()
    judged = filter_file("network")
    for file in (allowed, judged):
        assert error_of(probe, file, "socket", socket.AF_UNIX, stream | socket.SOCK_CLOEXEC, 0) == 0
        assert error_of(probe, file, "socket", socket.AF_INET, datagram, socket.IPPROTO_UDP) == 0
        assert error_of(probe, file, "socket", socket.AF_NETLINK, socket.SOCK_RAW, 0) == 0
    for family, kind, protocol in ((socket.AF_INET, stream, 262), (socket.AF_VSOCK, stream, 0), (socket.AF_NETLINK, 3, 15)):
        assert error_of(probe, allowed, "socket", family, kind, protocol) == errno.EACCES
        assert error_of(probe, judged, "socket", family, kind, protocol) == NOTIFIED
    assert error_of(probe, NO_FILTER, "socket", socket.AF_NETLINK, 3, 15) == 0


def test_only_opens_for_writing_are_handed_over_when_only_writing_is_judged(probe: Path, filter_file: Callable[..., str]) -> None:
    bad_path = 0  # a null path makes the kernel answer EFAULT, after the flags have been looked at
    file = filter_file("fs.write", "fs.truncate")
    reading, listing, writing, both, creating, truncating = 0, 0o200000, 1, 2, 0o100, 0o1000
    for flags in (reading, listing, writing, both, creating, truncating):
        expected = errno.EFAULT if flags in (reading, listing) else NOTIFIED
        assert error_of(probe, file, "openat", 0, bad_path, flags) == expected, oct(flags)
        assert error_of(probe, NO_FILTER, "openat", 0, bad_path, flags) == errno.EFAULT
    assert error_of(probe, file, "openat2", 0, bad_path, 0, 24) == NOTIFIED


CREATING, TMPFILE, NO_PATH = 0o100, 0o20200002, 0  # a null path makes the kernel answer EFAULT, where it gets that far


@pytest.mark.parametrize("above", [0, 1 << 32, 0xFFFF_FFFF << 32])
@pytest.mark.parametrize("mode", [0o4000, 0o2755, 0o6755, 0o7777])
def test_no_mode_with_a_set_id_bit_gets_to_the_kernel(
    probe: Path, filter_file: Callable[..., str], mode: int, above: int
) -> None:
    file = filter_file("setid", "fs.chmod", "fs.write")
    calls: list[tuple[str, tuple[int, ...]]] = [("chmod", (NO_PATH,)), ("fchmod", (-1,)), ("fchmodat", (-1, NO_PATH))]
    calls += [("fchmodat2", (-1, NO_PATH)), ("creat", (NO_PATH,)), ("mknod", (NO_PATH,)), ("mknodat", (-1, NO_PATH))]
    for flags in (CREATING, TMPFILE):
        calls += [("open", (NO_PATH, flags)), ("openat", (-1, NO_PATH, flags))]
    for name, ahead in calls:
        assert error_of(probe, file, name, *ahead, above + mode) == errno.EPERM, name
        assert error_of(probe, NO_FILTER, name, *ahead, above + mode) not in (0, errno.EPERM), name


def test_what_is_no_mode_is_not_looked_at(probe: Path, filter_file: Callable[..., str]) -> None:
    file = filter_file("setid")
    for flags in (0, 1, 2, 0o1000, 0o200000):  # without a flag that creates, the register holds garbage
        assert error_of(probe, file, "open", NO_PATH, flags, 0o6755) == errno.EFAULT
        assert error_of(probe, file, "openat", -1, NO_PATH, flags, 0o6755) == errno.EFAULT
    assert error_of(probe, file, "chmod", NO_PATH, 0o1777) == errno.EFAULT
    assert error_of(probe, file, "creat", NO_PATH, 0o1777) == errno.EFAULT
    assert error_of(probe, file, "mkdir", NO_PATH, 0o6755) == errno.EFAULT
    assert error_of(probe, file, "openat2", -1, NO_PATH, 0, 24) == NOTIFIED


@pytest.mark.parametrize(
    ("notified", "call", "arguments"),
    [
        ("fs.stat", "newfstatat", ()),
        ("fs.rm", "unlink", ()),
        ("fs.chmod", "rename", ()),
        ("fs.mount_sensitive", "mount", ()),
        ("childProcess", "execve", ()),
        ("network", "connect", ()),
        ("fs.write", "connect", ()),
        ("network", "sendto", (0, 0, 0, 0, 1, 16)),
        ("process", "kill", (2**31 - 1, 0)),
        ("process", "ptrace", ()),
    ],
)
def test_a_judged_call_is_handed_over(
    probe: Path, filter_file: Callable[..., str], notified: str, call: str, arguments: tuple[int, ...]
) -> None:
    assert error_of(probe, filter_file(notified), call, *arguments) == NOTIFIED
    assert error_of(probe, filter_file(), call, *arguments) != NOTIFIED


def test_a_send_without_an_address_is_not_handed_over(probe: Path, filter_file: Callable[..., str]) -> None:
    file = filter_file("network")
    bad_descriptor = 1000
    assert error_of(probe, file, "sendto", bad_descriptor, 0, 0, 0, 0, 0) == errno.EBADF
    assert error_of(probe, file, "sendto", bad_descriptor, 0, 0, 0, 1 << 32, 16) == NOTIFIED
    assert error_of(probe, filter_file(), "sendto", bad_descriptor, 0, 0, 0x2000_0000, 0, 0) == errno.EACCES


def test_a_guest_cannot_make_itself_unreadable_or_listen_to_calls(probe: Path, filter_file: Callable[..., str]) -> None:
    file = filter_file()
    set_dumpable, set_mode_filter, new_listener = 4, 1, 8
    assert error_of(probe, file, "prctl", set_dumpable, 0) == errno.EPERM
    assert error_of(probe, file, "prctl", set_dumpable, 1) == 0
    assert error_of(probe, NO_FILTER, "prctl", set_dumpable, 0) == 0
    assert error_of(probe, file, "seccomp", set_mode_filter, new_listener, 0) == errno.EBUSY
    assert error_of(probe, NO_FILTER, "seccomp", set_mode_filter, new_listener, 0) == errno.EFAULT


def test_personality_can_be_asked_but_not_weakened(probe: Path, filter_file: Callable[..., str]) -> None:
    read_implies_exec = 0x40_0000
    assert error_of(probe, filter_file(), "personality", 0xFFFF_FFFF) == 0
    assert error_of(probe, filter_file(), "personality", read_implies_exec) == errno.EPERM
    assert error_of(probe, NO_FILTER, "personality", read_implies_exec) == 0


PYTHON = """
import asyncio, fcntl, multiprocessing, os, pty, select, signal, socket, sqlite3, subprocess, tempfile, termios, threading
print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout)
print(multiprocessing.get_context("fork").Pool(2).map(abs, [-1, -2]))

async def child():
    process = await asyncio.create_subprocess_exec("echo", "asyncio", stdout=subprocess.PIPE)
    print(await process.communicate())
asyncio.run(child())

server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
connection, _ = server.accept()
client.sendall(b"loopback")
print(connection.recv(8), bool(socket.if_nameindex()))

pid, terminal = pty.fork()
if not pid:
    os.execvp("sh", ["sh", "-c", "stty -echo rows 30 cols 90; stty size"])
print(os.read(terminal, 100).split())
os.waitpid(pid, 0)

with tempfile.TemporaryDirectory() as folder:
    database = sqlite3.connect(folder + "/db")
    database.execute("pragma journal_mode=wal")
    database.execute("create table t (x)")
    database.execute("insert into t values (1)")
    database.commit()
    print(database.execute("select count(*) from t").fetchall())
"""

COMPILE = """
cd "$1" && git init -q . && echo text > file && git add file && git -c user.name=n -c user.email=e commit -q -m message
git log --format=%s && printf 'int main(void) { return 7; }' > program.c && gcc program.c -o program && ./program; echo $?
tar cf archive.tar file program.c && tar tf archive.tar && find . -name '*.c' | xargs ls
cp -p file copy && cat copy | sort | wc -l
"""


@pytest.mark.parametrize("program", [("python3", "-c", PYTHON), ("sh", "-c", COMPILE, "sh")], ids=["python", "shell"])
def test_ordinary_programs_do_the_same_as_without_the_filter(
    probe: Path, filter_file: Callable[..., str], tmp_path: Path, program: tuple[str, ...]
) -> None:
    results = []
    for number, file in enumerate((NO_FILTER, filter_file())):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = run(probe, file, "exec", *program, folder)
        assert not done.stderr
        results.append((done.returncode, done.stdout))
    assert results[0] == results[1]
    assert results[0][0] == 0
    assert results[0][1]
