"""`VM.spawn`: a program beside its caller, with the promises of `subprocess.Popen` and none of the host's descriptors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from callgate import DEVNULL, PIPE, STDOUT, Timeout
from tests.contracts.host_processes import until
from tests.vm_fixtures import deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm


@pytest.fixture
def vm(vm_factory: Callable[..., VM]) -> VM:
    return vm_factory(permissions=deny("/w/**"))


def children_in(vm: VM) -> str:
    """The programs of the VM other than the one that looks."""
    return vm.run("cat /proc/[0-9]*/comm | grep -v -e cat -e sh -e grep").stdout.replace("callgate\n", "")


# -- as Popen has it -----------------------------------------------------------------------------------------------------


def test_a_program_runs_beside_its_caller_and_talks_line_by_line(vm: VM) -> None:
    with vm.spawn('while read line; do echo "<$line>"; done; exit 3') as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in ("one", "two"):
            process.stdin.write(f"{word}\n")
            assert process.stdout.readline() == f"<{word}>\n"
        assert process.poll() is None
        assert vm.run(["cat", f"/proc/{process.pid}/comm"]).stdout == "sh\n"
    assert process.returncode == process.wait() == process.poll() == 3
    assert process.usage.wall_seconds > 0


def test_communicate_feeds_reads_and_waits_as_popens_does(vm: VM) -> None:
    big = os.urandom(2 << 20)
    process = vm.spawn("tee /dev/stderr", text=False)
    assert process.communicate(big, timeout=60) == (big, big)
    assert (process.returncode, process.truncated) == (0, False)
    same = subprocess.Popen(["sh", "-c", "echo out; echo err >&2; exit 5"], stdout=PIPE, stderr=PIPE, text=True)
    ours = vm.spawn("echo out; echo err >&2; exit 5")
    assert ours.communicate() == same.communicate()
    assert ours.returncode == same.returncode


def test_a_communication_that_ran_out_of_time_loses_nothing(vm: VM) -> None:
    process = vm.spawn("echo early; read x; echo late $x")
    with pytest.raises(Timeout) as caught:
        process.wait(0)
    assert caught.value.timeout == 0
    with vm.spawn("echo early; exec sleep 999") as stuck:
        with pytest.raises(Timeout) as caught:
            stuck.communicate(timeout=1)
        assert caught.value.output == "early\n"
        stuck.kill()
    slow = vm.spawn("echo early; sleep 0.7; echo late")
    with pytest.raises(subprocess.TimeoutExpired):
        slow.communicate(timeout=0.3)
    assert slow.communicate(timeout=60) == ("early\nlate\n", "")
    assert process.communicate("now\n") == ("early\nlate now\n", "")


def test_signals_reach_the_program_alone_and_with_group_what_it_started_too(vm: VM) -> None:
    child = "(trap 'echo child; exit' USR1; while :; do sleep 0.05; done)"
    script = f"trap 'echo first' USR1; {child} & echo ready; while :; do wait; done"
    process = vm.spawn(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)  # until the child has its trap
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "first\n"
    process.send_signal(signal.SIGUSR1, group=True)
    assert {process.stdout.readline(), process.stdout.readline()} == {"first\n", "child\n"}
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    process.close()


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_an_ended_program_takes_signals_in_silence(vm: VM, how: str) -> None:
    process = vm.spawn(["sleep", "999"])
    getattr(process, how)()
    assert process.wait(30) == {"terminate": -signal.SIGTERM, "kill": -signal.SIGKILL}[how]
    getattr(process, how)()
    process.close()


def test_kill_takes_everything_that_was_started_wherever_it_went(vm: VM) -> None:
    process = vm.spawn("setsid sleep 998 & (trap '' TERM HUP; sleep 997) & echo ready; wait")
    assert process.stdout is not None
    process.stdout.readline()
    assert until(lambda: children_in(vm).count("sleep") == 2)
    process.kill()
    process.wait(60)
    assert "sleep" not in children_in(vm)
    process.close()


def test_a_block_left_by_an_exception_kills_and_a_closed_one_waits(vm: VM) -> None:
    with pytest.raises(ZeroDivisionError), vm.spawn(["sleep", "999"]) as process:
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL
    with vm.spawn("cat; exit 6") as process:
        pass  # its input ends with the block
    assert process.returncode == 6


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["no-such-program"], FileNotFoundError),
        (["/no/such/program"], FileNotFoundError),
        (["/etc/passwd"], PermissionError),
    ],
)
def test_a_program_that_is_not_there_is_an_error_as_of_popen(vm: VM, argv: list[str], error: type[OSError]) -> None:
    with pytest.raises(error) as ours:
        vm.spawn(argv)
    with pytest.raises(error) as theirs:
        subprocess.Popen(argv)
    assert ours.value.errno == theirs.value.errno
    assert ours.value.filename == theirs.value.filename == argv[0]
    with pytest.raises(FileNotFoundError) as nowhere:
        vm.spawn(["true"], cwd="/no/such/place")
    assert nowhere.value.filename == "/no/such/place"


def test_a_program_that_cannot_be_executed_after_all_says_why(vm_factory: Callable[..., VM]) -> None:
    process = vm_factory(files={"/home/agentos/garbage": b"\x7fELF and no more"}).spawn(["./garbage"])
    assert process.communicate() == ("", "")
    assert (process.returncode, process.failure) == (126, "callgate: ./garbage: exec format error")


def test_threads_may_wait_for_one_program_together(vm: VM) -> None:
    process = vm.spawn("read x; exit 4")
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(process.wait())) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert process.stdin is not None
    process.stdin.write("go\n")
    for thread in threads:
        thread.join(30)
    assert codes == [4] * 8
    process.close()


def test_refusals_of_a_spawned_program_are_the_vms_as_well(vm: VM) -> None:
    process = vm.spawn("cat /w/x; read x")
    assert process.stderr is not None
    assert "Permission denied" in process.stderr.readline()
    assert [denial.subject for denial in vm.denials] == ["/w/x"]
    assert [denial.subject for denial in process.denials] == ["/w/x"]
    process.close()


def test_a_vm_that_ends_ends_those_that_wait(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory()
    process = vm.spawn(["sleep", "999"])
    threading.Timer(0.3, vm.close).start()
    assert process.wait(30) == -signal.SIGKILL
    process.kill()
    process.close()


def test_a_forgotten_process_leaves_nothing_behind(vm: VM) -> None:
    for _ in range(3):
        process = vm.spawn(["sleep", "0.01"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        del process  # the descriptors are counted after this test


def test_two_hundred_runs_at_once_in_one_vm(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory(permissions=deny("/w/**"))
    processes = [vm.spawn(["sh", "-c", f"read go; echo {number}; exit {number % 7}"]) for number in range(200)]
    assert vm.status().programs_running == 200
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
    for number, process in enumerate(processes):
        assert process.communicate(timeout=120) == (f"{number}\n", "")
        assert process.returncode == number % 7
    assert vm.status().programs_running == 0


# -- streams -------------------------------------------------------------------------------------------------------------


def test_streams_go_where_they_are_sent(vm: VM, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("content\n")
    with (tmp_path / "in").open() as source, (tmp_path / "out").open("w") as sink:
        process = vm.spawn("cat; echo problem >&2", stdin=source, stdout=sink, stderr=STDOUT)
        assert (process.stdin, process.stdout, process.stderr) == (None, None, None)
        assert process.wait(30) == 0
    assert (tmp_path / "out").read_text() == "content\nproblem\n"
    null = vm.spawn("cat; echo x; echo y >&2", stdin=DEVNULL, stdout=DEVNULL)
    assert null.communicate() == ("", "y\n")


def test_none_is_the_callers_own_stream() -> None:
    program = "from callgate import VM\nwith VM() as vm: vm.spawn('cat; echo e >&2', stdin=None, stdout=None, stderr=None).wait()"
    done = subprocess.run([sys.executable, "-c", program], input="in", capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("in", "e\n")


@pytest.mark.parametrize("kind", ["file", "directory", "socket", "terminal", "named fifo"])
def test_a_guest_never_holds_a_descriptor_of_the_hosts(vm: VM, tmp_path: Path, kind: str) -> None:
    import pty
    import socket

    others: list[Any] = []
    if kind == "file":
        fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    elif kind == "directory":
        fd = os.open(tmp_path, os.O_RDONLY)
    elif kind == "socket":
        ours, theirs = socket.socketpair()
        others, fd = [ours], theirs.detach()
    elif kind == "terminal":
        master, fd = pty.openpty()
        others = [os.fdopen(master, "rb", buffering=0)]
    else:
        os.mkfifo(tmp_path / "fifo")
        fd = os.open(tmp_path / "fifo", os.O_RDWR)
    process = vm.spawn("readlink /proc/self/fd/0; test -t 0 && echo tty; true", stdin=fd, stderr=DEVNULL)
    assert process.stdout is not None
    assert process.stdout.read().startswith("pipe:[")
    process.close()
    # And the way that leaves descriptors to the caller takes none of these.
    with pytest.raises(ValueError, match="neither a pipe nor a terminal of the VM's"):
        vm.start(["true"], (fd, fd, fd))
    os.close(fd)
    for other in others:
        other.close()


def test_listeners_hear_of_output_as_it_arrives_and_whole_characters_only(vm: VM) -> None:
    heard: list[str] = []
    arrived = threading.Event()
    script = "printf '\\303'; sleep 0.2; printf '\\244'; read x; printf 'a\\r'; sleep 0.2; printf '\\nb'; echo e >&2"

    def listen(text: str) -> None:
        heard.append(text)
        arrived.set()

    errors: list[str] = []
    process = vm.spawn(script, on_stdout=listen, on_stderr=errors.append)
    assert arrived.wait(30)
    assert heard == ["ä"]
    assert process.stdin is not None
    process.stdin.write("\n")
    assert process.wait(30) == 0
    assert ("".join(heard), "".join(errors)) == ("äa\nb", "e\n")
    process.close()


def test_a_run_tells_its_output_while_it_runs_and_still_captures_it(vm: VM) -> None:
    pieces: list[bytes] = []
    result = vm.run("for i in 1 2 3; do echo $i; sleep 0.1; done", text=False, on_stdout=pieces.append)
    assert result.stdout == b"".join(pieces) == b"1\n2\n3\n"
    assert len(pieces) > 1


def test_a_listener_that_raises_ends_the_run_and_is_heard(vm: VM) -> None:
    def refuse(_: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        vm.run("echo x; sleep 999", on_stdout=refuse)
    deadline = time.monotonic() + 30
    while vm.status().programs_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert vm.status().programs_running == 0


@pytest.mark.parametrize(
    "streams",
    [
        {"stdin": STDOUT},
        {"stdout": STDOUT},
        {"stdin": -7},
        {"stdout": -7},
        {"on_stdout": print, "stdout": DEVNULL},
        {"on_stderr": print, "stderr": STDOUT},
        {"pty": True, "stdout": DEVNULL},
        {"pty": True, "size": (0, 80)},
        {"pty": True, "size": (24, 70000)},
    ],
)
def test_streams_that_cannot_be_are_refused_before_anything_starts(vm: VM, streams: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        vm.spawn(["true"], **streams)
    assert vm.status().programs_running == 0


# -- terminals -----------------------------------------------------------------------------------------------------------


def test_a_terminal_has_a_size_that_can_be_changed(vm: VM) -> None:
    script = "stty size; tty; trap 'stty size; exit 4' WINCH; echo set; while :; do sleep 0.05; done"
    process = vm.spawn(script, pty=True, size=(30, 100))
    assert process.stdout is not None
    assert process.stderr is None
    assert [process.stdout.readline() for _ in range(3)] == ["30 100\n", "/dev/pts/0\n", "set\n"]
    process.resize(40, 120)
    assert process.stdout.read() == "40 120\n"
    assert process.wait(30) == 4
    with pytest.raises(ValueError, match="has ended"):
        process.resize(1, 1)
    process.close()
    with vm.spawn(["true"]) as plain, pytest.raises(ValueError, match="pty=True"):
        plain.resize(1, 1)


def test_the_keys_of_a_terminal_reach_the_foreground_group(vm: VM) -> None:
    process = vm.spawn(["sh", "-i"], pty=True, text=False, env={"PS1": "$ "})
    assert process.stdin is not None
    assert process.stdout is not None

    def read_until(text: bytes) -> bytes:
        shown = b""
        while text not in shown:
            shown += os.read(process.stdout.fileno(), 4096)
        return shown

    def type_in(keys: bytes) -> None:
        os.write(process.stdin.fileno(), keys)

    read_until(b"$ ")
    type_in(b"sleep 999 | cat\n")
    read_until(b"cat\r\n")
    time.sleep(0.2)
    type_in(b"\x03")
    read_until(b"$ ")
    type_in(b"echo $((41 + 1)); exit 5\n")
    read_until(b"42\r\n")
    assert process.wait(30) == 5
    process.close()


def test_a_terminal_that_is_left_hangs_its_programs_up(vm: VM) -> None:
    with vm.spawn(["sh", "-i"], pty=True):
        pass
    with vm.spawn(["cat"], pty=True, on_stdout=lambda _: None) as listened:
        pass
    assert listened.returncode == -signal.SIGHUP


def test_output_limits_bound_what_communicate_keeps(vm_factory: Callable[..., VM]) -> None:
    process = vm_factory(limits={"output": 1000}).spawn("head -c 100000 /dev/zero; echo done >&2")
    out, err = process.communicate(timeout=60)
    assert (len(out), err, process.returncode, process.truncated) == (1000, "done\n", 0, True)
