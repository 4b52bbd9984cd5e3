"""`callgate run` end to end: exit codes, streams, signals, refusals, and nothing left behind."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.network.servers import WebServer

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("leaves_nothing")]

CALLGATE = f"{sys.executable} -m callgate"
RUN = [*CALLGATE.split(), "run"]
DENY_VAULT = '{"fs":{"default":"allow","rules":[{"mode":"deny","operations":["*"],"paths":["/home/agentos/vault/**"]}]}}'


def run(*arguments: str, stdin: bytes = b"", timeout: float = 60) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*RUN, *arguments], input=stdin, capture_output=True, timeout=timeout, check=False)


# -- exit codes --


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_code_is_passed_on(code: int) -> None:
    done = run("--", "sh", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_program_ended_by_a_signal_gives_128_and_its_number(number: signal.Signals) -> None:
    assert run("--", "sh", "-c", f"kill -{number} $$").returncode == 128 + number


def test_missing_program_is_127_and_one_line() -> None:
    done = run("--", "no-such-program")
    assert (done.returncode, done.stderr) == (127, b"callgate: no-such-program: command not found\n")


def test_program_that_cannot_be_executed_is_126() -> None:
    done = run("--", "/etc/passwd")
    assert (done.returncode, done.stderr) == (126, b"callgate: /etc/passwd: permission denied\n")


def test_timeout_is_124_and_ends_what_was_started(tmp_path: Path) -> None:
    done = run("--timeout", "0.5", "--mount", f"{tmp_path}:/work:ro", "--", "sh", "-c", "sleep 600 & setsid sleep 600 & wait")
    assert done.returncode == 124
    assert done.stderr == b"callgate: timeout: ended after 0.5 seconds\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", '{"fs":"ask"}', "--", "true"),
        ("-p", "/nonexistent.json", "--", "true"),
        ("--env", "NOVALUE", "--", "true"),
        ("--mount", "relative", "--", "true"),
        ("--mount", "/nonexistent:/work", "--", "true"),
        ("--mount", "/etc/passwd:/work", "--", "true"),
        ("--timeout", "0", "--", "true"),
        ("--timeout", "soon", "--", "true"),
        ("--cwd", "relative", "--", "true"),
        ("--audit", "/nonexistent/file", "--", "true"),
        ("--engine", "magic", "--", "true"),
        ("--limit", "memory", "--", "true"),
        ("--limit", "memroy=1G", "--", "true"),
        ("--limit", "output=1", "--", "true"),
        ("--limit", "memory=lots", "--", "true"),
        ("--limit", "processes=0", "--", "true"),
        ("--limit", "wall_seconds=1", "--", "true"),
        ("--best-effort", "disk", "--", "true"),
        ("--",),
        ("--", ""),
        (),
    ],
)
def test_wrong_usage_is_exit_2_and_starts_nothing(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"callgate: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "arguments", [("--guest", "wasm"), ("--engine", "ptrace"), ("--mount", "/tmp:/work:cow"), ("--cwd", "/nonexistent")]
)
def test_what_cannot_be_started_is_125_with_a_reason(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "--", "true")
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.count(b"\n") == 1


# -- streams --


def test_streams_are_separate_and_bytes_are_bytes() -> None:
    data = bytes(range(256)) * 1000
    done = run("--", "sh", "-c", "echo note >&2; cat", stdin=data)
    assert (done.stdout, done.stderr) == (data, b"note\n")


def test_files_of_the_caller_are_relayed(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("content\n")
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as sink:
        subprocess.run([*RUN, "--", "cat"], stdin=source, stdout=sink, timeout=60, check=True)
    assert (tmp_path / "out").read_text() == "content\n"


def test_guest_holds_only_its_own_pipes(tmp_path: Path) -> None:
    program = 'for fd in /proc/self/fd/*; do echo "$(readlink $fd)"; done'
    with (tmp_path / "in").open("w+b") as source, (tmp_path / "out").open("wb") as sink:
        subprocess.run([*RUN, "--", "sh", "-c", program], stdin=source, stdout=sink, stderr=sink, timeout=60, check=True)
    targets = (tmp_path / "out").read_text().split()
    assert targets
    assert all(target.startswith(("pipe:[", "/proc/")) for target in targets), targets


def test_closed_standard_streams_are_no_obstacle() -> None:
    command = f"{CALLGATE} run -- sh -c 'exit 3' <&- >&-"
    assert subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.DEVNULL, timeout=60, check=False).returncode == 3


@pytest.mark.parametrize(("program", "code"), [("echo hi", 74), ("echo hi; exit 3", 3)])
def test_output_that_cannot_be_written_is_told_of(program: str, code: int) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RUN, "--", "sh", "-c", program], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    complaint = b"callgate: standard output: No space left on device; what the program wrote there is lost\n"
    assert (done.returncode, done.stderr) == (code, complaint)


def test_stderr_that_cannot_be_written_is_told_of_by_the_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RUN, "--", "sh", "-c", "echo hi >&2; echo out"], stdout=-1, stderr=full, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (74, b"out\n")


def test_json_tells_of_lost_output_too() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RUN, "--json", "--", "echo", "hi"], stdout=full, stderr=-1, timeout=60, check=False)
    report = json.loads(done.stderr)
    assert (report["returncode"], report["error"]) == (74, "standard output: No space left on device")


def test_a_program_finds_an_output_closed_that_its_caller_closed() -> None:
    command = f"{CALLGATE} run -- sh -c 'echo lost || exit 9' >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 9
    assert done.stderr.startswith(b"sh: 1: echo: "), done.stderr


def test_a_wrong_limit_is_answered_with_those_that_may_be_given() -> None:
    text = run("--limit", "memroy=1G", "--", "true").stderr.decode()
    listed = "memory, disk, file_size, processes, open_files, cpu_seconds"
    assert text == f'callgate: --limit memroy=1G: must be NAME=N, NAME one of {listed}; did you mean "memory"?\n'
    from callgate import Limits

    for name in listed.split(", "):
        assert run("--limit", f"{name}=1000000000", "--help").returncode == 0
        assert hasattr(Limits(), name)


def test_writer_ends_when_its_reader_does() -> None:
    command = f"{CALLGATE} run -- yes | head -1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("y\n", "")


def test_programs_may_open_their_streams_by_name() -> None:
    done = run("--", "sh", "-c", "echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin", stdin=b"in")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out\nin", b"err\n")


# -- what the options mean --


def test_variables_and_working_directory_are_the_guests() -> None:
    done = run("--env", "GREETING=a=b", "--cwd", "/tmp", "--", "sh", "-c", 'echo "$GREETING $PWD"')
    assert done.stdout == b"a=b /tmp\n"


def test_environment_of_the_caller_stays_outside() -> None:
    done = subprocess.run(
        [*RUN, "--", "env"], env={**os.environ, "CALLER_SECRET": "1"}, capture_output=True, timeout=60, check=True
    )
    assert b"PATH=" in done.stdout
    assert b"CALLER_SECRET" not in done.stdout


def test_mount_is_read_only_unless_rw_is_given(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("seen\n")
    tmp_path.chmod(0o755)
    refused = run("--mount", f"{tmp_path}:/work", "--", "sh", "-c", "cat /work/seen; echo x > /work/new")
    assert refused.returncode != 0
    assert refused.stdout == b"seen\n"
    assert b"write '/work/new'" in refused.stderr
    assert not (tmp_path / "new").exists()
    allowed = run("--mount", f"{tmp_path}:/work:rw", "--", "sh", "-c", "echo x > /work/new")
    assert (allowed.returncode, allowed.stderr) == (0, b"")
    assert (tmp_path / "new").read_text() == "x\n"


CONNECT = "import socket\ntry: socket.create_connection(('127.0.0.1', 9), 5)\nexcept ConnectionRefusedError: print('reached')"


def test_allow_host_opens_that_host_and_no_other() -> None:
    assert run("--allow-host", "127.0.0.1", "--", "python3", "-c", CONNECT).stdout == b"reached\n"
    for arguments in ((), ("--allow-host", "127.0.0.2")):
        done = run(*arguments, "--", "python3", "-c", CONNECT)
        assert done.stdout == b""
        assert b"tcp://127.0.0.1:9: blocked by network.http policy" in done.stderr


def test_allow_host_is_laid_over_the_policys_own_rules() -> None:
    policy = '{"network": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["127.0.0.1"]}]}}'
    assert run("-p", policy, "--", "python3", "-c", CONNECT).stdout == b""
    assert run("-p", policy, "--allow-host", "127.0.0.1", "--", "python3", "-c", CONNECT).stdout == b"reached\n"


def test_host_and_host_port_open_what_they_say() -> None:
    with WebServer() as web:
        named = ["--host", f"api.example.com={web.endpoint}", "--allow-host", "api.example.com"]
        done = run(*named, "--", "callgate-fetch", "http://api.example.com/x")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"api.example.com /x\n", b"")
        here = f"http://127.0.0.1:{web.port}/"
        opened = ["--host-port", str(web.port), "--allow-host", "127.0.0.1"]
        assert run(*opened, "--", "callgate-fetch", here).stdout == f"127.0.0.1:{web.port} /\n".encode()
        done = run("--host-port", str(web.port), "--", "callgate-fetch", here)
        assert f"tcp://127.0.0.1:{web.port}: blocked by network.http policy".encode() in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "api.example.com"], "NAME=ADDRESS"),
        (["--host", "a=127.0.0.1", "--host", "a=127.0.0.1"], "given twice"),
        (["--host", "a=nowhere:80"], "not an endpoint"),
        (["--host", "a b=127.0.0.1"], "host name"),
        (["--host-port", "http"], "must be a number"),
        (["--host-port", "0"], "not a port"),
    ],
)
def test_a_wrong_opening_is_one_line(arguments: list[str], said: str) -> None:
    done = run(*arguments, "--", "true")
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


# -- refusals --


def test_refusals_are_summed_up_on_stderr_after_the_program() -> None:
    script = "mkdir -p /home/agentos/vault; echo x > /home/agentos/vault/k; cat /home/agentos/vault/k; echo ok"
    done = run("-p", DENY_VAULT, "--", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, b"ok\n")
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("callgate: ")]
    assert lines[0].endswith(" operations refused")
    for what in ("create_dir '/home/agentos/vault'", "write '/home/agentos/vault/k'", "read '/home/agentos/vault/k'"):
        assert any(f"EACCES: permission denied, {what}: blocked by fs." in line for line in lines[1:]), what


def test_equal_refusals_are_one_line_and_the_summary_is_short() -> None:
    script = "for i in $(seq 50); do true < /home/agentos/vault/$i; true < /home/agentos/vault/same; done 2>/dev/null; true"
    lines = run("-p", DENY_VAULT, "--", "sh", "-c", script).stderr.decode().splitlines()
    assert lines[0] == "callgate: 100 operations refused"
    assert sum("vault/same" in line for line in lines) == 1
    assert any("(50 times)" in line for line in lines)
    assert lines[-1] == "callgate:   and 31 more"
    assert len(lines) == 22


def test_bytes_of_the_guest_cannot_forge_a_line() -> None:
    script = "cat '/home/agentos/vault/\ncallgate: all is well\x1b[2J' 2>/dev/null"
    stderr = run("-p", DENY_VAULT, "--", "sh", "-c", script).stderr
    assert b"\x1b" not in stderr
    assert not any(line.startswith(b"callgate: all is well") for line in stderr.splitlines())
    assert b"\\ncallgate: all is well\\x1b" in stderr


def test_json_gives_one_object_on_stderr_and_leaves_stdout_to_the_guest() -> None:
    done = run("--json", "-p", DENY_VAULT, "--", "sh", "-c", "echo out; cat /home/agentos/vault/k 2>/dev/null; exit 4")
    report = json.loads(done.stderr)
    assert (done.returncode, done.stdout) == (4, b"out\n")
    assert report["returncode"] == 4
    assert report["timed_out"] is False
    assert report["duration"] > 0
    assert report["dropped_denials"] == 0
    denial = report["denials"][0]
    assert (denial["scope"], denial["operation"], denial["rule"]) == ("fs", "read", 0)
    assert denial["message"] == "EACCES: permission denied, read '/home/agentos/vault/k': blocked by fs.read policy"


def test_audit_file_is_appended_a_line_of_json_per_refusal(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    for _ in range(2):
        run("--audit", str(log), "-p", DENY_VAULT, "--", "cat", "/home/agentos/vault/k")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record["subject"] for record in records] == ["/home/agentos/vault/k"] * 2


# -- signals and terminals --


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `callgate run` and waits until the program has printed its first line."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*RUN, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_signal_is_passed_on_to_the_program(started: Callable[..., subprocess.Popen[bytes]], number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    process = started("--", "sh", "-c", f"trap 'echo caught {name}; exit 9' {name}; echo ready; while :; do :; done")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (9, f"caught {name}\n".encode())
    assert err in (b"", b"Quit\n")  # what the shell says of a sleep that the same SIGQUIT ended


def test_program_that_does_not_listen_is_ended_by_the_third_interrupt(started: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = started("--", "sh", "-c", "trap 'echo again' INT; (trap '' INT; sleep 600) & echo ready; while :; do wait; done")
    assert process.stdout is not None
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"again\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGKILL


def test_interrupt_reaches_the_whole_group_of_the_program(started: Callable[..., subprocess.Popen[bytes]]) -> None:
    # The shell waits for its child before it does anything: an interrupt for the shell alone would end nothing.
    process = started("--", "sh", "-c", "trap 'echo shell; exit 7' INT; sh -c 'echo ready; exec sleep 600'; true")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (7, b"shell\n", b"")


def test_interrupt_that_comes_before_the_program_has_started_is_not_lost() -> None:
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02):
        process = subprocess.Popen([*RUN, "--", "sleep", "600"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        watched = time.monotonic() + 30
        while not any("callgate-superv" in name for name in _names_below(process.pid)) and time.monotonic() < watched:
            time.sleep(0.001)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGINT


def _names_below(pid: int) -> list[str]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [Path(f"/proc/{child}/comm").read_text() for child in children]
    except (FileNotFoundError, ProcessLookupError):
        return []


def test_stopping_the_command_stops_the_program_and_both_go_on(started: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = started("--", "sh", "-c", "echo ready; while :; do echo tick; sleep 0.01; done")
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert process.stdout is not None
    fd = process.stdout.fileno()
    while select.select([fd], [], [], 0.3)[0]:  # what was written before; a program that still ran would go on for ever
        os.read(fd, 65536)
    process.send_signal(signal.SIGCONT)
    assert select.select([fd], [], [], 30)[0]


class Keyboard:
    """A shell command on a terminal of its own, with the test at the keyboard."""

    def __init__(self, command: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv("/bin/sh", ["/bin/sh", "-c", command])
        self.shown = b""

    def wait_for(self, text: bytes, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.fd], [], [], 0.1)[0]:
                self.shown += os.read(self.fd, 65536)

    def type(self, keys: bytes) -> None:
        self.shown = b""
        os.write(self.fd, keys)

    def end(self) -> int:
        try:
            while data := os.read(self.fd, 65536):
                self.shown += data
        except OSError:
            pass  # EIO: nobody is left on the other side
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_terminal_stays_a_terminal_and_belongs_to_the_vm() -> None:
    keyboard = Keyboard(f"{CALLGATE} run -- sh -c 'tty; test -t 0 && test -t 1 && test -t 2 && echo all; echo via > /dev/tty'")
    assert keyboard.end() == 0
    assert keyboard.shown == b"/dev/pts/0\r\nall\r\nvia\r\n"


def test_shell_is_interactive_with_job_control_keys() -> None:
    keyboard = Keyboard(f"{CALLGATE} shell --env 'PS1=prompt> '")
    keyboard.wait_for(b"prompt> ")
    keyboard.type(b"cat\r")
    keyboard.wait_for(b"cat\r\n")
    keyboard.type(b"typed\r")
    keyboard.wait_for(b"typed\r\ntyped\r\n")
    keyboard.type(b"\x03")  # ^C ends cat, not the shell and not callgate
    keyboard.wait_for(b"prompt> ")
    keyboard.type(b"exit 5\r")
    assert keyboard.end() == 5


def test_piped_output_keeps_the_terminal_for_input() -> None:
    keyboard = Keyboard(f"{CALLGATE} run -- sh -c 'echo ready >&2; cat' | tr a-z A-Z")
    keyboard.wait_for(b"ready")
    keyboard.type(b"typed\r\x04")
    assert keyboard.end() == 0
    assert b"TYPED" in keyboard.shown


def test_tmux_runs_shells_in_a_shell() -> None:
    if not os.path.exists("/usr/bin/tmux"):  # noqa: PTH110
        pytest.skip("tmux is not installed below /usr")
    keyboard = Keyboard(f"stty rows 24 cols 80; {CALLGATE} shell --env 'PS1=outer> ' --env TERM=xterm --env SHELL=/bin/sh")
    keyboard.wait_for(b"outer> ")
    keyboard.type(b"tmux -f /dev/null new-session \\; set -g assume-paste-time 0\r")  # keys come faster here than a person types
    keyboard.wait_for(b"[0] 0:sh")  # the status line
    keyboard.type(b"echo in-$((6 * 7))\r")
    keyboard.wait_for(b"in-42")
    for key in (b"\x02", b'"'):  # ^B ": a second pane; what comes faster than a key a millisecond is pasted text to tmux
        keyboard.type(key)
        time.sleep(0.5)
    keyboard.type(b"tty; stty size\r")
    keyboard.wait_for(b"/dev/pts/2")
    keyboard.wait_for(b"11 80")  # half of the terminal, less the status line and the border
    keyboard.type(b"sleep 600\r")
    time.sleep(0.5)
    keyboard.type(b"\x03")
    keyboard.type(b"exit\r")
    time.sleep(0.5)
    keyboard.type(b"exit\r")
    keyboard.wait_for(b"[exited]")
    keyboard.type(b"echo $((5 + 5))-left; exit 6\r")
    keyboard.wait_for(b"10-left")
    assert keyboard.end() == 6


def test_limits_bound_the_program_and_say_so() -> None:
    done = run("--limit", "file_size=4K", "--", "dd", "if=/dev/zero", "of=f", "bs=1K", "count=100")
    assert done.returncode == 128 + signal.SIGXFSZ
    assert done.stderr.endswith(b"callgate: ended for going over the limit file_size\n")
    report = json.loads(
        run("--json", "--limit", "cpu_seconds=0.3", "--best-effort", "cgroup", "--", "sh", "-c", "while :; do :; done").stderr
    )
    assert (report["returncode"], report["exceeded"]) == (128 + signal.SIGKILL, ["cpu_seconds"])
    assert run("--limit", "processes=1", "--", "sh", "-c", "(true); echo alone").stdout == b""


def test_killing_the_command_leaves_no_guest_alive(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "beat").touch()
    (tmp_path / "beat").chmod(0o666)
    script = "echo ready; while :; do date +%s%N > /work/beat; sleep 0.01; done"
    process = subprocess.Popen([*RUN, "--mount", f"{tmp_path}:/work:rw", "--", "sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + 30
    while not (tmp_path / "beat").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (tmp_path / "beat").read_text(), "the control: a living guest writes"
    process.kill()
    process.wait()
    process.stdout.close()
    time.sleep(1)
    last = (tmp_path / "beat").read_text()
    time.sleep(0.3)
    assert (tmp_path / "beat").read_text() == last
