"""Running a program to its end: output, input, time limits and failures, over a supervisor that confines nothing."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from callgate.guest.interface import Program
from callgate.guest.process import NativeGuest, NativeProcess, exit_code, prepare
from callgate.guest.result import Result, Timeout
from callgate.guest.streams import text_output
from callgate.kernel.audit import Denial, DenialLog
from callgate.kernel.launch import Supervisor
from callgate.kernel.protocol import ExecFailed, Exited, Started
from callgate.scopes import InternalError

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
def log() -> DenialLog:
    return DenialLog()


@pytest.fixture
def guest(supervisor: Supervisor, log: DenialLog) -> NativeGuest:
    return NativeGuest(supervisor, log.add, log.add_unsent)


def run(
    guest: NativeGuest, argv: Any, *, stdin: bytes = b"", timeout: float | None = None, env: dict[str, str] | None = None
) -> Result[bytes]:
    return guest.run(prepare(argv, {**ENV, **(env or {})}, "/"), argv, stdin=stdin, timeout=timeout, decode=bytes)


def python(*lines: str) -> list[str]:
    return [sys.executable, "-I", "-c", "\n".join(lines)]


def test_output_error_and_exit_code_are_kept_apart(guest: NativeGuest) -> None:
    result = run(guest, "echo out; echo err >&2; exit 7")
    assert (result.stdout, result.stderr, result.returncode) == (b"out\n", b"err\n", 7)
    assert result.args == "echo out; echo err >&2; exit 7"


def test_a_signal_is_a_negative_return_code(guest: NativeGuest) -> None:
    assert run(guest, "kill -TERM $$").returncode == -15


def test_what_was_used_is_told(guest: NativeGuest) -> None:
    result = run(guest, ["true"])
    assert (result.usage.user_seconds, result.usage.system_seconds, result.usage.max_rss_bytes) == (1.5, 0.25, 2 << 20)
    assert result.usage.notified_calls == 9
    assert 0 < result.duration < 60


def test_denials_are_in_the_result_and_in_the_log_and_those_not_sent_are_counted(guest: NativeGuest, log: DenialLog) -> None:
    result = run(guest, ["printf", "denied"])
    run(guest, ["printf", "%s", "x", "denied"])
    (denial,) = result.denials
    assert str(denial) == "EACCES: permission denied, read '/by/way/of/denied': blocked by fs.read policy"
    assert (denial.subject, denial.rule, denial.pid, denial.program) == ("/denied", 0, 7, "/bin/program")
    assert len(log.latest()) == 2
    assert result.denials_dropped == 3
    assert (log.total, log.dropped) == (8, 6)


def test_input_is_fed_while_output_is_read(guest: NativeGuest) -> None:
    # More than all pipes hold, in both directions at once: whoever waits for the other would wait for ever.
    data = os.urandom(1 << 20) * 3
    program = python(
        "import sys",
        "sys.stderr.write('e' * (1 << 20))",
        "sys.stdout.write('o' * (1 << 20))",
        "sys.stdout.flush()",
        "sys.stdout.buffer.write(sys.stdin.buffer.read())",
    )
    result = run(guest, program, stdin=data, timeout=120)
    assert result.stdout == b"o" * (1 << 20) + data
    assert result.stderr == b"e" * (1 << 20)


def test_no_input_is_an_empty_input(guest: NativeGuest) -> None:
    assert run(guest, ["cat"], timeout=60).stdout == b""


def test_a_program_that_does_not_read_its_input_ends_all_the_same(guest: NativeGuest) -> None:
    assert run(guest, ["true"], stdin=b"x" * (1 << 20), timeout=60).returncode == 0


def test_a_program_that_closes_its_output_early_is_waited_for(guest: NativeGuest) -> None:
    result = run(guest, "exec >&- 2>&-; sleep 0.2; exit 3", timeout=60)
    assert result.returncode == 3


def test_a_pipe_that_somebody_else_still_holds_is_not_waited_for(guest: NativeGuest) -> None:
    # As when a descriptor was passed to a program of another run: here a child that nobody kills.
    result = run(guest, "sleep 600 & echo $!", timeout=60)
    os.kill(int(result.stdout), signal.SIGKILL)  # the control: it was still there, with the pipe in its hands


def test_output_beyond_the_limit_is_thrown_away_and_said_to_be(guest: NativeGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "output_limit", 1000)
    result = run(guest, "head -c 100000 /dev/zero; echo done >&2", timeout=60)
    assert result.stdout == b"\0" * 1000
    assert (result.stderr, result.returncode, result.truncated) == (b"done\n", 0, True)
    assert not run(guest, ["printf", "x"]).truncated


def test_a_time_limit_kills_and_keeps_the_output_so_far(guest: NativeGuest, supervisor: Supervisor) -> None:
    with pytest.raises(Timeout) as expired:
        run(guest, "echo early; echo late >&2; sleep 60; echo never", timeout=0.5)
    assert (expired.value.output, expired.value.stderr) == (b"early\n", b"late\n")
    assert (expired.value.cmd, expired.value.timeout) == ("echo early; echo late >&2; sleep 60; echo never", 0.5)
    assert supervisor.stats().runs_alive == 0


def test_a_time_limit_in_the_past_kills_at_once(guest: NativeGuest) -> None:
    with pytest.raises(Timeout):
        run(guest, ["sleep", "60"], timeout=0)


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        (["no-such-program-anywhere"], 127, b"callgate: no-such-program-anywhere: command not found\n"),
        (["/no/such/program"], 127, b"callgate: /no/such/program: No such file or directory\n"),
        (["/etc/passwd"], 126, b"callgate: /etc/passwd: permission denied\n"),
    ],
)
def test_a_program_that_cannot_be_started_gives_the_codes_of_a_shell(
    guest: NativeGuest, argv: list[str], code: int, line: bytes
) -> None:
    result = run(guest, argv)
    assert (result.returncode, result.stderr, result.stdout) == (code, line, b"")


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        (errno.ENOENT, 127, "x: command not found"),
        (errno.EACCES, 126, "x: permission denied"),
        (errno.ENOEXEC, 126, "x: exec format error"),
        (errno.E2BIG, 126, "x: Argument list too long"),
    ],
)
def test_every_reason_has_its_line(supervisor: Supervisor, number: int, code: int, text: str) -> None:
    with NeverFound(supervisor, ["x"]) as process:
        assert process.exec_failure(ExecFailed(number, b"exec")) == (code, text)


def test_a_programs_name_cannot_break_the_line(supervisor: Supervisor) -> None:
    with NeverFound(supervisor, ["x\ncallgate: all is well"]) as process:
        _, text = process.exec_failure(ExecFailed(errno.ENOENT, b"lookup"))
    assert "\n" not in text


class NeverFound:
    """A process whose program was never found."""

    def __init__(self, supervisor: Supervisor, argv: list[str]) -> None:
        null = os.open("/dev/null", os.O_RDWR)
        guest = NativeGuest(supervisor, lambda _: None, lambda _: None)
        self.process = guest.start(prepare(argv, {}, "/"), (null, null, null))
        os.close(null)

    def __enter__(self) -> NativeProcess:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.close()


def test_a_missing_working_directory_is_named(guest: NativeGuest) -> None:
    with pytest.raises(FileNotFoundError) as failure:
        guest.run(prepare(["true"], ENV, "/no/such/place"), ["true"], stdin=b"", timeout=None, decode=bytes)
    assert failure.value.filename == "/no/such/place"


def test_a_started_program_tells_its_events_and_takes_signals(guest: NativeGuest) -> None:
    reader, writer = os.pipe()
    null = os.open("/dev/null", os.O_RDONLY)
    script = "trap 'exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    process = guest.start(prepare(script, ENV, "/"), (null, writer, writer))
    os.close(null)
    os.close(writer)
    assert isinstance(process.next_event(), Started)
    assert os.read(reader, 100) == b"ready\n"
    process.send_signal(10)
    ended = process.next_event()
    assert isinstance(ended, Exited)
    assert os.waitstatus_to_exitcode(ended.status) == 5
    assert process.next_event() is None
    with pytest.raises(ProcessLookupError):
        process.send_signal(10)
    process.kill_tree()
    process.close()
    os.close(reader)


def test_an_interrupted_run_leaves_no_program_behind(
    guest: NativeGuest, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: NativeProcess) -> Denial:
        raise KeyboardInterrupt

    monkeypatch.setattr(NativeProcess, "next_event", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(guest, ["sleep", "60"])
    deadline = time.monotonic() + 20
    while supervisor.stats().runs_alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert supervisor.stats().runs_alive == 0


def test_a_run_whose_vm_is_closed_meanwhile_says_so(guest: NativeGuest, tmp_path: Path) -> None:
    marker = tmp_path / "running"
    failures: list[Exception] = []

    def run_for_long() -> None:
        try:
            run(guest, f"touch {marker}; sleep 2")
        except (ValueError, InternalError) as failure:
            failures.append(failure)

    thread = threading.Thread(target=run_for_long)
    thread.start()
    while not marker.exists():
        time.sleep(0.01)
    os.kill(guest._supervisor.pid, signal.SIGKILL)
    thread.join()
    guest.close()
    assert len(failures) == 1


def test_runs_in_many_threads_do_not_mix(guest: NativeGuest) -> None:
    results: dict[int, bytes] = {}

    def one(number: int) -> None:
        results[number] = run(guest, ["cat"], stdin=str(number).encode() * 1000, timeout=60).stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: str(number).encode() * 1000 for number in range(10)}


# -- what may be run ---------------------------------------------------------------------------------------------------


def test_a_string_is_a_command_line_and_words_stay_words() -> None:
    assert prepare("a b", {}, "/").argv == (b"/bin/sh", b"-c", b"a b")
    assert prepare(["a b", b"\xff", "\udcfe"], {"K": "v"}, "/w") == Program((b"a b", b"\xff", b"\xfe"), {b"K": b"v"}, b"/w")


@pytest.mark.parametrize(
    ("argv", "text"), [([], "name a program"), ([""], "name a program"), (["a", "b\0c"], "NUL"), ("a\0b", "NUL")]
)
def test_what_execve_cannot_take_is_refused_before_anything_starts(argv: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        prepare(argv, {}, "/")


@pytest.mark.parametrize("argv", [b"ls", [1, 2], ["ls", None]])
def test_words_are_text_or_bytes(argv: Any) -> None:
    with pytest.raises(TypeError):
        prepare(argv, {}, "/")


@pytest.mark.parametrize(("status", "code"), [(0, 0), (7 << 8, 7), (9, -9), (0x8B, -11)])
def test_a_wait_status_becomes_a_return_code(status: int, code: int) -> None:
    assert exit_code(Exited(status)) == code


@pytest.mark.parametrize("status", [0x137F, 0xFFFF])
def test_a_status_that_is_no_end_is_a_defect(status: int) -> None:
    with pytest.raises(InternalError, match="wait status"):
        exit_code(Exited(status))


def test_text_has_newlines_as_subprocess_has_them_and_no_decoding_errors() -> None:
    assert text_output(b"a\r\nb\rc\nd\xff") == "a\nb\nc\nd�"


def test_programs_start_with_default_signals_whatever_the_host_program_does() -> None:
    from callgate import VM

    previous = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        with VM() as vm:
            status = vm.run(["cat", "/proc/self/status"], check=True).stdout
    finally:
        signal.signal(signal.SIGUSR1, previous)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    masks = {
        line.split(":")[0]: int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))
    }
    assert masks == {"SigBlk": 0, "SigIgn": 0}
