"""Denial records: their messages cannot be forged by what a guest writes, and none is lost without being counted."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from callgate.kernel.audit import Denial, DenialLog
from callgate.kernel.protocol import DenialRecord
from callgate.scopes import InternalError
from callgate.scopes.errors import denied
from callgate.scopes.operations import OPERATIONS, SCOPES

RECORD = DenialRecord(
    scope=SCOPES.index("fs"),
    operation=OPERATIONS["fs"].index("read"),
    rule=2,
    pid=17,
    time_ns=1_700_000_000_500_000_000,
    subject=b"/home/agentos/vault/key",
    requested=b"/home/agentos/alias",
    program=b"/usr/bin/cat",
    reason=b"",
)


def test_a_record_of_the_supervisor_becomes_a_denial_that_shows_what_the_guest_wrote() -> None:
    denial = Denial.from_record(RECORD)
    assert str(denial) == "EACCES: permission denied, read '/home/agentos/alias': blocked by fs.read policy"
    assert (denial.subject, denial.rule, denial.pid) == ("/home/agentos/vault/key", 2, 17)
    assert (denial.time, denial.program) == (1_700_000_000.5, "/usr/bin/cat")


@pytest.mark.parametrize(
    ("scope", "operation", "subject", "requested", "text"),
    [
        ("network", 1, b"tcp://192.0.2.1:80", b"192.0.2.1", "tcp://192.0.2.1:80: blocked by network.http policy"),
        ("childProcess", 0, b"/usr/bin/curl", b"curl", "spawn 'curl': blocked by childProcess.spawn policy"),
        ("process", 0, b"kill:42", b"", "process://kill:42: blocked by process.kill policy"),
    ],
)
def test_every_scope_has_its_message(scope: str, operation: int, subject: bytes, requested: bytes, text: str) -> None:
    record = dataclasses.replace(RECORD, scope=SCOPES.index(scope), operation=operation, subject=subject, requested=requested)
    assert Denial.from_record(record).message == f"EACCES: permission denied, {text}"


def test_bytes_a_guest_chose_stay_inside_their_quotes_and_on_their_line() -> None:
    forged = b"/x': blocked by fs.read policy\nEACCES: permission denied, read '/etc/shadow\x1b[2K\xff"
    denial = Denial.from_record(dataclasses.replace(RECORD, subject=forged, requested=forged, program=b"\xff\n"))
    assert denial.message.isprintable()
    assert denial.message.count("': blocked by") == 1 + denial.message.count("\\': blocked by")
    assert denial.subject.encode("utf-8", "surrogateescape") == forged


@pytest.mark.parametrize(
    ("rule", "name"), [(-1, "default"), (-2, "mode"), (-3, "runtime image"), (-4, "mount"), (-6, "unsupported"), (-7, "widening")]
)
def test_what_decided_beside_the_users_rules_has_a_name(rule: int, name: str) -> None:
    assert Denial.from_record(dataclasses.replace(RECORD, rule=rule)).rule == name


@pytest.mark.parametrize("change", [{"scope": 6}, {"operation": 12}, {"rule": -99}])
def test_numbers_that_mean_nothing_are_a_defect(change: dict[str, Any]) -> None:
    with pytest.raises(InternalError):
        Denial.from_record(dataclasses.replace(RECORD, **change))


def test_a_denial_and_its_error_tell_the_same() -> None:
    denial = Denial.from_record(RECORD)
    error = denial.error()
    assert str(error) == denial.message
    assert (error.scope, error.operation, error.subject, error.rule) == ("fs", "read", denial.subject, 2)
    again = Denial.from_error(denied("env", "read", "AWS_KEY", rule="default"))
    assert (again.message, again.pid) == ("EACCES: permission denied, env://AWS_KEY: blocked by env.read policy", 0)


def test_a_full_log_keeps_the_latest_and_counts_all() -> None:
    log = DenialLog(kept=3)
    for pid in range(5):
        log.add(Denial.from_record(dataclasses.replace(RECORD, pid=pid)))
    log.add_unsent(4)
    assert [denial.pid for denial in log.latest()] == [2, 3, 4]
    assert (log.total, log.dropped) == (9, 6)


def test_threads_lose_no_count() -> None:
    log = DenialLog(kept=10)
    denial = Denial.from_record(RECORD)

    def add() -> None:
        for _ in range(1000):
            log.add(denial)
            log.add_unsent(1)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (log.total, log.dropped) == (16_000, 15_990)
