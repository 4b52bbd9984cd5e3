"""The journal of approvals: nothing takes effect before it is on record, and crashes are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.bindings.approval_requests import (
    DEFAULT_OPTIONS,
    ApprovalAnswerError,
    ApprovalError,
    ApprovalJournalError,
    ApprovalRejected,
    ApprovalRequest,
)
from callgate.bindings.approvals import Approvals
from callgate.bindings.json_text import DEPTH_MAX
from tests.bindings.approving import Caller, answering, call, eventually, lines, told
from tests.bindings.calling import Canary
from tests.bindings.conftest import SECONDS


def test_each_step_is_in_the_journal_before_it_takes_effect(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    seen: list[Any] = []

    def look() -> int:
        seen.append(told(journal))
        return 1

    def ask(request: ApprovalRequest) -> None:
        seen.append(told(journal))
        broker.answer(request.id, "allow_always")

    with Approvals("ask", journal=journal, on_request=ask) as broker:
        guarded = broker.guard(look)
        assert call(guarded, "look") + call(guarded, "look") == 2
    first = [("request", 1), ("answer", 1)]
    assert seen == [first[:1], first, [*first, ("request", 2), ("answer", 2)]]
    request, answer, _, again = lines(journal)
    assert request["options"] == [asdict(option) for option in DEFAULT_OPTIONS]
    assert (request["binding"], request["arguments"]) == ("look", {})
    assert (answer["option"], answer["by"], again["by"]) == ("allow_always", "answer", "always")
    assert journal.stat().st_mode & 0o777 == 0o600


def test_what_is_written_is_synced_before_the_function_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    write, fsync = os.write, os.fsync

    def noted_write(fd: int, data: bytes) -> int:
        steps.append("written")
        return write(fd, data)

    def noted_fsync(fd: int) -> None:
        steps.append("synced")
        fsync(fd)

    with Approvals(journal=tmp_path / "journal") as broker:
        guarded = broker.guard(lambda: steps.append("reached"))
        monkeypatch.setattr(os, "write", noted_write)
        monkeypatch.setattr(os, "fsync", noted_fsync)
        call(guarded)
        monkeypatch.undo()
    assert steps == ["written", "synced", "reached"]


def test_a_journal_is_continued_by_the_next_session(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    canary = Canary()
    with answering("allow_always", journal=journal) as first:
        call(first.guard(canary), path="/x")
    second = Approvals("ask", journal=journal)
    caller = Caller(second.guard(canary), path="/y")
    eventually(second.pending)  # what lasted, lasted for a session
    assert [record.request.id for record in second.records()] == [1, 2]
    second.close()
    assert isinstance(caller.result(), ApprovalError)
    with Approvals(journal=journal) as third:
        assert third.records() == second.records()
        assert [(record.state, record.by, record.why) for record in third.records()] == [
            ("answered", "answer", ""),
            ("withdrawn", "", "the approvals were closed"),
        ]
        call(third.guard(canary), path="/z")
    assert told(journal) == [
        ("request", 1), ("answer", 1), ("request", 2), ("withdrawal", 2), ("request", 3), ("answer", 3),
    ]  # fmt: skip
    assert canary.reached == 2


CRASHING = """
import os, signal, sys
from callgate import Approvals
from callgate.bindings.host_call import call_here
from callgate.bindings.registry import BindingRegistry
broker = Approvals("ask", journal=sys.argv[1], on_request=lambda request: os.kill(os.getpid(), signal.SIGKILL))
call_here(BindingRegistry({"rm": broker.guard(lambda path: path)})["rm"], (), {"path": "/x"}, lambda: None)
"""


def test_requests_of_a_session_that_crashed_are_withdrawn_once(tmp_path: Path, project: Path) -> None:
    journal = tmp_path / "journal"
    environment = os.environ | {"PYTHONPATH": str(project / "src")}
    done = subprocess.run([sys.executable, "-c", CRASHING, journal], timeout=SECONDS, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert told(journal) == [("request", 1)]
    for _ in range(2):
        with Approvals("ask", journal=journal) as broker:
            assert broker.pending() == ()
            (record,) = broker.records()
            assert (record.state, record.why) == ("withdrawn", "the session that asked has ended")
            assert record.request.arguments == {"path": "/x"}
            with pytest.raises(ApprovalAnswerError, match="request 1 was withdrawn: the session that asked has ended"):
                broker.answer(1, "allow_once")
    assert told(journal) == [("request", 1), ("withdrawal", 1)]


@given(cut=st.integers(min_value=1, max_value=60))
def test_half_a_line_at_the_end_is_taken_out_and_told(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    journal = tmp_path_factory.mktemp("torn") / "journal"
    with Approvals(journal=journal) as broker:
        call(broker.guard(Canary()), path="/x")
    whole = journal.read_bytes()
    answer = whole.splitlines()[1]
    cut = min(cut, len(answer))
    journal.write_bytes(whole[:-cut])
    with pytest.warns(RuntimeWarning, match="half a line, as a crash leaves it. That step had not taken effect"):
        torn = Approvals(journal=journal)
    with torn:
        assert [(record.request.id, record.state) for record in torn.records()] == [(1, "withdrawn")]
        call(torn.guard(Canary()), path="/y")
    assert told(journal) == [("request", 1), ("torn", 0), ("withdrawal", 1), ("request", 2), ("answer", 2)]
    assert lines(journal)[1]["text"] == answer.decode()[: len(answer) + 1 - cut]
    Approvals(journal=journal).close()  # says no more of it


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello\n", "line 1: it is not JSON"),
        ("[]\n", "line 1: it records no event"),
        ('{"event": "request", "id": "1"}\n', "line 1: it has no id"),
        ('{"event": "request", "id": 1}\n', "the request of id 1 is not as it is written here"),
        ('{"event": "answer", "id": 1, "option": "x", "by": "", "time": 0}\n', "the answer of id 1 is not"),
    ],
)
def test_a_file_of_somebody_else_is_no_journal_and_stays_as_it_is(tmp_path: Path, content: str, message: str) -> None:
    journal = tmp_path / "journal"
    journal.write_text(content)
    for _ in range(2):  # and the lock is let go of
        with pytest.raises(ApprovalJournalError, match=message):
            Approvals(journal=journal)
    assert journal.read_text() == content


def test_what_is_no_file_or_cannot_be_opened_is_no_journal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ApprovalJournalError, match="is not a regular file"):
        Approvals(journal=tmp_path / "fifo")
    with pytest.raises(ApprovalJournalError, match="cannot be opened: No such file or directory"):
        Approvals(journal=tmp_path / "none" / "journal")


def test_a_journal_is_of_one_process_at_a_time(tmp_path: Path, project: Path) -> None:
    journal = tmp_path / "journal"
    program = "import sys; from callgate import Approvals; Approvals(journal=sys.argv[1]).close(); print('opened')"
    command = [sys.executable, "-c", program, str(journal)]
    environment = os.environ | {"PYTHONPATH": str(project / "src")}

    def elsewhere() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment)

    with Approvals(journal=journal):
        with pytest.raises(ApprovalJournalError, match="is in use, by another process or other Approvals of this one"):
            Approvals(journal=journal)
        assert "is in use, by another process" in elsewhere().stderr
    assert elsewhere().stdout == "opened\n"


def test_a_forked_child_does_not_write_into_its_parents_journal(tmp_path: Path) -> None:
    journal, canary = tmp_path / "journal", Canary()
    broker = Approvals(journal=journal)
    guarded = broker.guard(canary)
    child = os.fork()
    if child == 0:
        try:
            call(guarded, path="/x")
        except ApprovalJournalError as error:
            os._exit(0 if canary.reached == 0 and "belongs to the process that opened it" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert told(journal) == []
    call(guarded, path="/x")
    broker.close()
    assert told(journal) == [("request", 1), ("answer", 1)]


def test_a_number_that_was_used_before_is_not_used_again(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with Approvals(journal=journal) as broker:
        call(broker.guard(Canary()), path="/x")
    journal.write_bytes(journal.read_bytes() * 2)
    with pytest.raises(ApprovalJournalError, match=r"the request of id 1 is not .* used before"):
        Approvals(journal=journal)


@pytest.mark.parametrize("text", ["\u2028\n\0", "\U0001f600", '"}\n{"event": "answer"'])
def test_no_argument_of_a_guests_makes_a_journal_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    journal = tmp_path / "journal"
    value: Any = text
    for _ in range(DEPTH_MAX - 1):
        value = [value]
    with Approvals(journal=journal) as broker:
        call(broker.guard(lambda path: len(path)), path=value)
    with Approvals(journal=journal) as again:
        assert again.records() == broker.records()
        assert again.records()[0].request.arguments == {"path": value}


@pytest.mark.parametrize("policy", ["allow_all", "ask"])
@pytest.mark.parametrize("trouble", ["full", "nearly full"])
def test_a_call_that_cannot_be_recorded_fails_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Any, trouble: str
) -> None:
    journal, canary, write = tmp_path / "journal", Canary(), os.write

    def refuse(fd: int, data: bytes) -> int:
        if trouble == "nearly full":
            return write(fd, data[:10])
        raise OSError(28, "No space left on device")

    with Approvals(policy, journal=journal) as broker:
        guarded = broker.guard(canary)
        monkeypatch.setattr(os, "write", refuse)
        with pytest.raises(ApprovalJournalError, match="the journal of approvals cannot be written: ") as caught:
            call(guarded, path="/x")
        monkeypatch.undo()
        assert str(tmp_path) not in str(caught.value)
        assert (canary.reached, journal.read_bytes()) == (0, b"")
        assert broker.records() == ()
        assert broker.pending() == ()
        caller = Caller(guarded, path="/y")  # there is room again
        if policy == "ask":
            eventually(broker.pending)
            broker.answer(1, "allow_once")
        assert caller.result() == "removed /y"
    assert told(journal) == [("request", 1), ("answer", 1)]


def test_a_journal_that_failed_to_reach_the_disk_is_not_trusted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(5, "Input/output error")

    journal, canary = tmp_path / "journal", Canary()
    broker = Approvals(journal=journal)
    guarded = broker.guard(canary)
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ApprovalJournalError, match="failed to reach the disk: Input/output error; open it anew"):
        call(guarded, path="/x")
    monkeypatch.undo()
    with pytest.raises(ApprovalJournalError, match="failed to reach the disk"):
        call(guarded, path="/x")
    assert canary.reached == 0
    broker.close()
    with Approvals(journal=journal) as anew:
        assert call(anew.guard(canary), path="/x") == "removed /x"


def test_an_answer_that_cannot_be_recorded_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    canary = Canary()
    with Approvals("ask", journal=tmp_path / "journal") as broker:
        caller = Caller(broker.guard(canary), path="/x")
        eventually(broker.pending)
        monkeypatch.setattr(os, "write", refuse)
        with pytest.raises(ApprovalJournalError, match="No space left"):
            broker.answer(1, "allow_always")
        monkeypatch.undo()
        assert len(broker.pending()) == 1
        assert canary.reached == 0
        broker.answer(1, "reject_once")
        assert isinstance(caller.result(), ApprovalRejected)
