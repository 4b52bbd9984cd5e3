"""What a program gets for the caller's 0, 1 and 2, with ordinary programs in the place of guests."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callgate.guest.terminal import StdioRelay

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def run(relay: StdioRelay, argv: list[str]) -> int:
    """Runs a program on the relay's descriptors, in a session of its own as a guest has it."""
    stdin, stdout, stderr = relay.guest
    child = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)
    relay.started()
    return child.wait(timeout=30)


def read_available(fd: int, enough: Callable[[bytes], bool], seconds: float = 10) -> bytes:
    data, deadline = b"", time.monotonic() + seconds
    while not enough(data) and time.monotonic() < deadline:
        if select.select([fd], [], [], 0.05)[0]:
            data += os.read(fd, 65536)
    return data


def test_anonymous_pipe_is_passed_as_it_is() -> None:
    reader, writer = os.pipe()
    with StdioRelay(reader, writer, writer) as relay:
        assert relay.guest == (reader, writer, writer)
        assert not relay.tty
    os.close(reader)
    os.close(writer)


def test_null_device_is_passed_as_it_is() -> None:
    null = os.open("/dev/null", os.O_RDWR)
    with StdioRelay(null, null, null) as relay:
        assert relay.guest == (null, null, null)
    os.close(null)


@pytest.mark.parametrize("kind", ["file", "folder", "named fifo", "socket", "device"])
def test_everything_else_becomes_an_anonymous_pipe(kind: str, tmp_path: Path) -> None:
    other: socket.socket | None = None
    if kind == "file":
        (tmp_path / "f").write_bytes(b"x")
        fd = os.open(tmp_path / "f", os.O_RDONLY)
    elif kind == "folder":
        fd = os.open(tmp_path, os.O_RDONLY)
    elif kind == "named fifo":
        os.mkfifo(tmp_path / "fifo")
        fd = os.open(tmp_path / "fifo", os.O_RDWR)
    elif kind == "device":
        fd = os.open("/dev/zero", os.O_RDONLY)
    else:
        ours, other = socket.socketpair()
        fd = ours.detach()
    null = os.open("/dev/null", os.O_RDWR)
    with StdioRelay(fd, null, null) as relay:
        given = os.fstat(relay.guest[0])
        assert relay.guest[0] != fd
        assert stat.S_ISFIFO(given.st_mode)
        assert given.st_dev != os.fstat(fd).st_dev or kind == "device"
    os.close(fd)
    os.close(null)
    if other is not None:
        other.close()


def test_file_contents_reach_the_program_and_its_output_the_file(tmp_path: Path) -> None:
    content = os.urandom(300_000)
    (tmp_path / "in").write_bytes(content)
    source = os.open(tmp_path / "in", os.O_RDONLY)
    sink = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    with StdioRelay(source, sink, sink) as relay:
        assert run(relay, ["cat"]) == 0
    os.close(source)
    os.close(sink)
    assert (tmp_path / "out").read_bytes() == content


def test_two_descriptors_of_one_file_keep_the_order_of_writes(tmp_path: Path) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    again = os.dup(log)
    with StdioRelay(null, log, again) as relay:
        run(relay, ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done"])
    for fd in (null, log, again):
        os.close(fd)
    expected = "".join(f"out{i}\nerr{i}\n" for i in range(1, 10))
    assert (tmp_path / "log").read_text() == expected


def test_program_ends_although_nobody_ends_its_input() -> None:
    ours, theirs = socket.socketpair()
    null = os.open("/dev/null", os.O_RDWR)
    with StdioRelay(theirs.fileno(), null, null) as relay:
        assert run(relay, ["true"]) == 0
    os.close(null)
    ours.close()
    theirs.close()


def test_program_is_told_when_the_reader_of_its_relayed_output_is_gone() -> None:
    ours, theirs = socket.socketpair()
    null = os.open("/dev/null", os.O_RDWR)
    with StdioRelay(null, theirs.fileno(), null) as relay:
        ours.close()
        assert run(relay, ["sh", "-c", "exec yes"]) == -signal.SIGPIPE
    os.close(null)
    theirs.close()


def test_nothing_started_leaves_nothing_open(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    with StdioRelay(fd, fd, fd):
        pass
    os.close(fd)


# -- terminals --


def fail_after(step: Callable[[], None]) -> None:
    step()
    raise ZeroDivisionError


class Terminal:
    """A terminal as a caller has it; the test sits at the keyboard."""

    def __init__(self) -> None:
        self.keyboard, self.fd = os.openpty()

    def close(self) -> None:
        os.close(self.keyboard)
        os.close(self.fd)


@pytest.fixture
def terminal(leaves_nothing: None) -> Iterator[Terminal]:  # noqa: ARG001
    made = Terminal()
    yield made
    made.close()


TTY_PROGRAM = "import os, sys; print(*(os.isatty(fd) for fd in range(3)), os.get_terminal_size(1).columns, flush=True)"


def test_terminal_stays_a_terminal_of_the_same_size_but_not_the_callers_own(terminal: Terminal) -> None:
    termios.tcsetwinsize(terminal.fd, (40, 123))
    with StdioRelay(terminal.fd, terminal.fd, terminal.fd) as relay:
        assert relay.tty
        assert len(set(relay.guest)) == 1
        assert os.fstat(relay.guest[0]).st_rdev != os.fstat(terminal.fd).st_rdev
        assert run(relay, [sys.executable, "-c", TTY_PROGRAM]) == 0
    assert read_available(terminal.keyboard, lambda data: b"\n" in data) == b"True True True 123\r\n"


def test_terminal_attributes_are_raw_during_the_run_and_restored_after(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.fd)
    with StdioRelay(terminal.fd, terminal.fd, terminal.fd) as relay:
        relay.started()
        assert not termios.tcgetattr(terminal.fd)[3] & termios.ICANON
        relay.leave_raw_mode()
        assert termios.tcgetattr(terminal.fd) == before
        relay.enter_raw_mode()
        assert not termios.tcgetattr(terminal.fd)[3] & termios.ECHO
    assert termios.tcgetattr(terminal.fd) == before


def test_terminal_is_restored_when_the_block_is_left_by_an_error(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.fd)
    with pytest.raises(ZeroDivisionError), StdioRelay(terminal.fd, terminal.fd, terminal.fd) as relay:
        fail_after(relay.started)
    assert termios.tcgetattr(terminal.fd) == before


def test_what_is_typed_reaches_the_program_through_its_own_line_discipline(terminal: Terminal) -> None:
    with StdioRelay(terminal.fd, terminal.fd, terminal.fd) as relay:
        typing = threading.Timer(0.3, os.write, (terminal.keyboard, b"wrong\x15hello\r\x04"))  # ^U clears the line, ^D ends
        typing.start()
        assert run(relay, ["cat"]) == 0
        typing.join()
    shown = read_available(terminal.keyboard, lambda data: data.count(b"hello") == 2)
    assert shown.endswith(b"hello\r\nhello\r\n")


def test_interrupt_key_signals_the_program(terminal: Terminal) -> None:
    # A controlling terminal is what makes ^C a signal; a guest's leader sets it, here the program does.
    program = "import fcntl, termios, time; fcntl.ioctl(0, termios.TIOCSCTTY, 0); print('ready', flush=True); time.sleep(30)"
    with StdioRelay(terminal.fd, terminal.fd, terminal.fd) as relay:

        def press() -> None:
            read_available(terminal.keyboard, lambda data: b"ready" in data)
            os.write(terminal.keyboard, b"\x03")

        pressing = threading.Thread(target=press)
        pressing.start()
        assert run(relay, [sys.executable, "-c", program]) != 0
        pressing.join()


def test_new_window_size_is_passed_on(terminal: Terminal) -> None:
    with StdioRelay(terminal.fd, terminal.fd, terminal.fd) as relay:
        termios.tcsetwinsize(terminal.fd, (11, 22))
        relay.resize()
        assert termios.tcgetwinsize(relay.guest[0]) == (11, 22)


def test_piped_input_with_terminal_output_is_not_a_terminal_input(terminal: Terminal) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"piped\n")
    os.close(writer)
    before = termios.tcgetattr(terminal.fd)
    with StdioRelay(reader, terminal.fd, terminal.fd) as relay:
        assert not relay.tty
        assert run(relay, ["cat"]) == 0
        assert termios.tcgetattr(terminal.fd) == before  # ^C stays the caller's
    os.close(reader)
    assert read_available(terminal.keyboard, lambda data: b"\n" in data) == b"piped\r\n"


def test_terminal_that_hangs_up_hangs_up_the_program() -> None:
    terminal = Terminal()
    program = "import fcntl, termios, time; fcntl.ioctl(0, termios.TIOCSCTTY, 0); print('ready', flush=True); time.sleep(30)"
    with StdioRelay(terminal.fd, terminal.fd, terminal.fd) as relay:

        def hang_up() -> None:
            read_available(terminal.keyboard, lambda data: b"ready" in data)
            os.close(terminal.keyboard)

        gone = threading.Thread(target=hang_up)
        gone.start()
        assert run(relay, [sys.executable, "-c", program]) == -signal.SIGHUP
        gone.join()
    os.close(terminal.fd)
