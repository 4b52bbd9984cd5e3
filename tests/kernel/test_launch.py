"""The host's end of the control socket, against a supervisor that speaks the protocol and runs nothing confined."""

from __future__ import annotations

import ast
import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from callgate.kernel import supervisor_process
from callgate.kernel.launch import Refused, Run, Supervisor
from callgate.kernel.launch_failure import launch_error
from callgate.kernel.plan import Plan, compile_plan
from callgate.kernel.protocol import Event, Exited, FsCall, LaunchFailed, Started
from callgate.scopes import InternalError, Policy, Unsupported
from tests.kernel import fake_supervisor

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return replace(compile_plan(Policy.parse()), listeners=())  # the supervisor here makes no VM, so it has no sockets in one


@pytest.fixture
def supervisor(tmp_path: Path, plan: Plan) -> Iterator[Supervisor]:
    started = Supervisor.start(plan, executable=fake_supervisor.executable(tmp_path, fake_supervisor.proper))
    yield started
    started.close()


def events(run: Run) -> list[Event]:
    told: list[Event] = []
    while (event := run.next_event()) is not None:
        told.append(event)
    run.close()
    return told


def run_with_pipe(supervisor: Supervisor, *argv: bytes, env: dict[bytes, bytes] | None = None) -> tuple[Run, int]:
    """A run whose standard output is the returned pipe."""
    reader, writer = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    try:
        run = supervisor.run(list(argv), env or {}, b"/", null, writer, null)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
        os.close(null)
    return run, reader


def output(reader: int) -> bytes:
    with open(reader, "rb") as stream:
        return stream.read()


def test_a_started_supervisor_is_ready(supervisor: Supervisor) -> None:
    assert supervisor.init_pid == fake_supervisor.READY.init_pid
    assert supervisor.features == fake_supervisor.READY.features
    assert supervisor.stats().notified == 1


def test_a_program_runs_and_its_end_is_told(supervisor: Supervisor) -> None:
    run, reader = run_with_pipe(supervisor, b"/bin/sh", b"-c", b'printf %s "$A-$0"', b"zero", env={b"A": b"x=y"})
    assert output(reader) == b"x=y-zero"
    told = events(run)
    assert [type(event) for event in told] == [Started, Exited]
    assert told[-1] == Exited(0, 1_500_000, 250_000, 2048, 9, 3)


def test_arguments_longer_than_a_packet_travel_in_a_memfd(supervisor: Supervisor) -> None:
    words = [b"w" * 40_000] * 4
    run, reader = run_with_pipe(supervisor, b"/usr/bin/printf", b"%s", *words)
    assert output(reader) == b"".join(words)
    events(run)


def test_a_signal_reaches_the_program_and_a_run_that_is_over_has_none(supervisor: Supervisor) -> None:
    run, reader = run_with_pipe(supervisor, b"/bin/sleep", b"60")
    supervisor.signal(run, signal.SIGTERM)
    assert events(run)[-1] == Exited(signal.SIGTERM, 1_500_000, 250_000, 2048, 9, 3)
    os.close(reader)
    with pytest.raises(ProcessLookupError):
        supervisor.signal(run, signal.SIGTERM)
    supervisor.kill_tree(run)


def test_an_error_of_the_filesystem_is_an_oserror_with_the_guests_path(supervisor: Supervisor, tmp_path: Path) -> None:
    missing = os.fsencode(tmp_path / "missing")
    with pytest.raises(FileNotFoundError) as failure:
        supervisor.fs(FsCall.STAT, missing)
    assert failure.value.filename == os.fsdecode(missing)
    with pytest.raises(OSError) as two:
        supervisor.fs(FsCall.RENAME, missing, missing + b"2")
    assert (two.value.filename, two.value.filename2) == (os.fsdecode(missing), os.fsdecode(missing) + "2")


def test_a_refusal_carries_its_record_and_unchecked_is_not_refused(supervisor: Supervisor, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "denied")
    with pytest.raises(Refused) as refusal:
        supervisor.fs(FsCall.MKDIR, path, b=0o755)
    assert refusal.value.record.requested == path
    supervisor.fs(FsCall.MKDIR, path, b=0o755, unchecked=True)
    assert Path(os.fsdecode(path)).is_dir()


def test_an_opened_descriptor_is_the_file_and_closes_on_exec(supervisor: Supervisor, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    reply = supervisor.fs(FsCall.OPEN, os.fsencode(path), a=os.O_RDONLY)
    assert reply.fd is not None
    assert not os.get_inheritable(reply.fd)
    assert output(reply.fd) == b"content"


def test_many_threads_may_ask_at_once(supervisor: Supervisor, tmp_path: Path) -> None:
    names = [tmp_path / f"file-{number}" for number in range(8)]
    for number, name in enumerate(names):
        name.write_bytes(str(number).encode())
    wrong: list[str] = []

    def ask(name: Path, expected: bytes) -> None:
        for _ in range(50):
            reply = supervisor.fs(FsCall.OPEN, os.fsencode(name), a=os.O_RDONLY)
            if reply.fd is None or output(reply.fd) != expected:
                wrong.append(str(name))

    threads = [threading.Thread(target=ask, args=(name, str(number).encode())) for number, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_answer_nobody_waited_for_is_thrown_away_and_its_program_killed(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Exception):
        pass

    def interrupted(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "_await_reply", interrupted)
        with pytest.raises(Interrupted):
            run_with_pipe(supervisor, b"/bin/sleep", b"60")
    deadline = time.monotonic() + 20
    while supervisor.stats().runs_alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert supervisor.stats().runs_alive == 0


def test_closing_twice_is_closing_once_and_a_closed_vm_says_so(supervisor: Supervisor) -> None:
    pid = supervisor.pid
    supervisor.close()
    supervisor.close()
    assert supervisor.closed
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ValueError, match="closed"):
        supervisor.stats()


def test_a_forgotten_vm_ends_with_its_last_reference(tmp_path: Path, plan: Plan) -> None:
    supervisor = Supervisor.start(plan, executable=fake_supervisor.executable(tmp_path, fake_supervisor.proper))
    pid = supervisor.pid
    del supervisor
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_forked_child_cannot_use_the_parents_vm_and_closing_it_there_changes_nothing(supervisor: Supervisor) -> None:
    child = os.fork()
    if child == 0:
        try:
            supervisor.stats()
        except ValueError:
            supervisor.close()
            os._exit(42)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert supervisor.stats().notified == 1


def test_a_supervisor_that_will_not_go_is_killed(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_process, "CLOSE_SECONDS", 0.1)
    supervisor = Supervisor.start(plan, executable=fake_supervisor.executable(tmp_path, fake_supervisor.will_not_go))
    pid = supervisor.pid
    supervisor.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_supervisor_starts_with_two_descriptors_no_environment_and_a_session_of_its_own(tmp_path: Path, plan: Plan) -> None:
    program = fake_supervisor.executable(tmp_path, fake_supervisor.describes_itself)
    with pytest.raises(InternalError, match="description") as failure:
        Supervisor.start(plan, executable=program)
    described = str(failure.value)
    seen = ast.literal_eval(described[described.index("{") : described.rindex("}") + 1])
    seen["environ"].pop("LC_CTYPE", None)  # set by the interpreter that plays the supervisor
    assert seen == {"environ": {}, "sid": True, "fds": [3, 4]}


_START_WITH_DESCRIPTORS_TAKEN = """
import dataclasses, os, sys
held = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(sys.argv[2]))]
from pathlib import Path
from callgate.kernel.launch import Supervisor
from callgate.kernel.plan import compile_plan
from callgate.scopes import Policy
plan = dataclasses.replace(compile_plan(Policy.parse()), listeners=())
supervisor = Supervisor.start(plan, executable=Path(sys.argv[1]))
print(supervisor.stats().notified)
supervisor.close()
"""


@pytest.mark.parametrize("taken", range(5))
def test_it_does_not_matter_which_descriptors_are_free(taken: int, tmp_path: Path) -> None:
    # From taking both fixed numbers themselves, in either order, to lying beyond them.
    program = fake_supervisor.executable(tmp_path, fake_supervisor.proper)
    done = subprocess.run(
        [sys.executable, "-c", _START_WITH_DESCRIPTORS_TAKEN, program, str(taken)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(
    ("behaviour", "error", "text"),
    [
        ("cannot_make_namespaces", Unsupported, r"kernel\.unprivileged_userns_clone=1"),
        ("ends_at_once", InternalError, "exit status 3"),
        ("speaks_another_version", InternalError, "version 2 of the protocol and this package version 1"),
        ("talks_nonsense", InternalError, "cannot be read"),
    ],
)
def test_a_launch_that_fails_says_why(behaviour: str, error: type[Exception], text: str, tmp_path: Path, plan: Plan) -> None:
    program = fake_supervisor.executable(tmp_path, getattr(fake_supervisor, behaviour))
    with pytest.raises(error, match=text):
        Supervisor.start(plan, executable=program)


def test_a_missing_supervisor_asks_for_a_reinstallation(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(InternalError, match="reinstall callgate"):
        Supervisor.start(plan, executable=tmp_path / "absent")


def test_a_supervisor_that_dies_is_reported_with_its_signal(tmp_path: Path, plan: Plan) -> None:
    supervisor = Supervisor.start(plan, executable=fake_supervisor.executable(tmp_path, fake_supervisor.dies_when_asked))
    with pytest.raises(InternalError, match="killed by SIGKILL"):
        supervisor.stats()
    supervisor.close()


def test_a_run_whose_supervisor_is_gone_has_no_more_events() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    run = Run(1, ours)
    theirs.close()
    assert run.next_event() is None
    run.close()


@pytest.mark.parametrize(
    ("step", "number", "error", "text"),
    [
        ("namespaces", errno.EPERM, Unsupported, "user namespace"),
        ("namespaces", errno.ENOSPC, Unsupported, "max_user_namespaces"),
        ("id maps", errno.EPERM, Unsupported, "apparmor_restrict_unprivileged_userns"),
        ("filter", errno.EBUSY, Unsupported, "listener already"),
        ("filter", errno.EINVAL, Unsupported, "Linux 5.19"),
        ("proc", errno.EPERM, Unsupported, "systempaths=unconfined"),
        ("root", errno.EEXIST, InternalError, r"root \(/x\) failed: File exists \(EEXIST\)"),
        ("filter", errno.EFAULT, InternalError, "EFAULT"),
    ],
)
def test_what_the_host_lacks_is_told_apart_from_our_own_defects(
    step: str, number: int, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        raise launch_error(LaunchFailed(step.encode(), number, b"/x"), frozenset())


def test_a_mount_the_operator_may_not_make_names_the_directory() -> None:
    failure = LaunchFailed(b"mount", errno.EACCES, b"/srv/private")
    assert "cannot be mounted with the rights" in str(launch_error(failure, frozenset((b"/srv/private",))))
    assert "cannot be mounted with the rights" not in str(launch_error(failure, frozenset()))
