"""Approvals of guests' calls, without a VM: no thread waits, and what is given up is withdrawn."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate.bindings.approval_requests import (
    ApprovalAnswerError,
)
from callgate.bindings.approvals import Approvals
from callgate.bindings.binding import Binding
from callgate.bindings.service import WORKERS_MOST
from tests.bindings.approving import answering, call, eventually, told
from tests.bindings.callable_functions import add, error_of
from tests.bindings.calling import Canary
from tests.bindings.conftest import SECONDS, Client, Held, Serve, Served


def asked(broker: Approvals, count: int = 1) -> list[int]:
    eventually(lambda: len(broker.pending()) == count)
    return [request.id for request in broker.pending()]


def start(served: Served, name: str, **arguments: Any) -> Client:
    client = served.connect()
    client.send(id=1, kind="call", name=name, arguments=arguments)
    return client


def where(n: int = 0) -> list[Any]:
    return [threading.current_thread().name, n]


async def later(n: int = 0) -> int:
    await asyncio.sleep(0)
    return n


def count(n: int = 0) -> Iterator[int]:
    yield from range(n)


async def count_later(n: int = 0) -> AsyncIterator[int]:
    for number in range(n):
        await asyncio.sleep(0)
        yield number


@pytest.mark.parametrize("policy", ["allow_all", "ask"])
def test_every_sort_of_function_runs_where_it_would_without_a_guard(serve: Serve, policy: Any) -> None:
    broker = Approvals(policy)
    functions: dict[str, Any] = {"where": where, "later": later, "count": count, "count_later": count_later}
    served = serve({name: broker.guard(function) for name, function in functions.items()})
    expected: dict[str, list[Any]] = {
        "where": [{"result": ["callgate-binding", 2]}],
        "later": [{"result": 2}],
        "count": [{"item": 0}, {"item": 1}, {"done": True}],
        "count_later": [{"item": 0}, {"item": 1}, {"done": True}],
    }
    for name, replies in expected.items():
        client = start(served, name, n=2)
        if policy == "ask":
            (number,) = asked(broker)
            assert broker.pending()[0].pid == os.getpid()
            broker.answer(number, "allow_once")
        assert [client.receive() for _ in replies] == [{"id": 1, "ok": True, **reply} for reply in replies]


@pytest.mark.parametrize("name", ["where", "later", "count", "count_later"])
def test_a_guest_learns_of_a_rejection_as_of_an_error(serve: Serve, name: str) -> None:
    reached: list[int] = []
    functions: dict[str, Any] = {"where": where, "later": later, "count": count, "count_later": count_later}

    def spy(n: int = 0) -> Any:
        reached.append(n)
        return functions[name](n)

    broker = answering("reject_once")
    reply = serve({name: broker.guard(spy)}).connect().call(name)
    assert reply["error"] == {
        "code": "failed",
        "type": "ApprovalRejected",
        "message": f"{name} was rejected, in answer to request 1",
    }
    assert reached == []


def test_calls_that_wait_hold_no_thread(serve: Serve) -> None:
    broker = Approvals("ask")
    served = serve({"where": broker.guard(where), "add": add})
    threads = threading.active_count()
    clients = [start(served, "where", n=n) for n in range(3 * WORKERS_MOST)]
    asked(broker, len(clients))
    assert threading.active_count() <= threads + WORKERS_MOST
    assert served.connect().call("add", a=1, b=2)["result"] == 3
    for request in broker.pending():
        broker.answer(request.id, "allow_once")
    assert [client.receive()["result"][1] for client in clients] == list(range(3 * WORKERS_MOST))


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("timeout", "nobody answered request 1, for rm, within 0.3 seconds"),
        ("cancel", "rm was cancelled"),
        ("gone", "the caller is gone"),
        ("closed", "the VM is being closed"),
    ],
)
def test_a_call_that_is_given_up_withdraws_its_request(serve: Serve, tmp_path: Path, ending: str, why: str) -> None:
    journal, canary = tmp_path / "journal", Canary()
    broker = Approvals("ask", journal=journal)
    served = serve({"rm": broker.guard(Binding(canary, timeout=0.3 if ending == "timeout" else SECONDS))})
    client = start(served, "rm", path="/x")
    if ending == "timeout":
        eventually(broker.records)
    else:
        asked(broker)
    if ending == "cancel":
        client.send(id=1, kind="cancel")
    elif ending == "gone":
        client.close()
    elif ending == "closed":
        served.end()
    if ending != "gone":
        code = "cancelled" if ending == "closed" else "cancelled" if ending == "cancel" else "timeout"
        assert error_of(client.receive()) == (code, why)
    eventually(lambda: broker.records()[0].state == "withdrawn")
    assert broker.records()[0].why == why
    assert broker.pending() == ()
    with pytest.raises(ApprovalAnswerError, match="request 1 was withdrawn"):
        broker.answer(1, "allow_once")
    broker.close()
    assert told(journal) == [("request", 1), ("withdrawal", 1)]
    assert canary.reached == 0


def test_the_time_for_an_answer_is_not_the_functions(serve: Serve, held: Held) -> None:
    broker = Approvals("ask")
    patient = broker.guard(Binding(where, timeout=1.0), answer_within=SECONDS)
    client = start(serve({"where": patient}), "where")
    asked(broker)
    time.sleep(1.2)
    broker.answer(1, "allow_once")
    assert client.receive()["ok"]
    stuck = broker.guard(Binding(held, timeout=0.2), answer_within=SECONDS)
    client = start(serve({"stuck": stuck}), "stuck")
    asked(broker)
    broker.answer(2, "allow_once")
    assert error_of(client.receive()) == ("timeout", "stuck did not answer within 0.2 seconds")


def test_an_answer_and_the_end_of_its_call_may_cross(serve: Serve) -> None:
    canary, broker = Canary(), Approvals("ask")
    client = serve({"rm": broker.guard(canary)}).connect()
    for number in range(1, 101):
        before = canary.reached
        client.send(id=number, kind="call", name="rm", arguments={"path": "/x"})
        asked(broker)
        cancel = threading.Thread(target=client.send, kwargs={"id": number, "kind": "cancel"})
        cancel.start()
        answered = True
        try:
            broker.answer(number, "allow_once")
        except ApprovalAnswerError:
            answered = False
        cancel.join(SECONDS)
        reply = client.receive()
        assert reply["ok"] or error_of(reply)[0] == "cancelled"
        eventually(lambda number=number: broker.records()[number - 1].state != "pending")  # type: ignore[misc]
        assert broker.records()[number - 1].state == ("answered" if answered else "withdrawn")
        if reply["ok"]:
            assert answered
            assert canary.reached == before + 1
        if not answered:
            assert canary.reached == before


def test_what_the_policy_refuses_or_the_schema_does_not_take_is_never_asked(serve: Serve) -> None:
    canary, broker = Canary(), Approvals("ask")
    served = serve({"rm": broker.guard(canary), "add": broker.guard(add)}, refused=frozenset({"rm"}))
    assert error_of(served.connect().call("rm", path="/x"))[0] == "EACCES"
    assert error_of(served.connect().call("add", a="1", b=2))[0] == "arguments"
    assert broker.records() == ()
    assert canary.reached == 0


def test_a_call_from_an_async_function_that_would_wait_fails_instead(serve: Serve) -> None:
    canary, broker = Canary(), Approvals("ask")
    guarded = broker.guard(canary)

    async def outer() -> Any:
        return call(guarded, path="/x")

    code, message = error_of(serve({"outer": outer}).connect().call("outer"))
    assert (code, message.partition(",")[0]) == ("failed", "rm has to wait")
    eventually(lambda: [record.why for record in broker.records()] == ["the call came from where it cannot wait"])
    assert canary.reached == 0


def test_a_guarded_function_that_is_quick_is_asked_about_every_time(serve: Serve) -> None:
    broker = answering("allow_once")
    client = serve({"add": broker.guard(add)}).connect()
    for number in range(20):
        assert client.call("add", number, a=number, b=1)["result"] == number + 1
    assert [record.request.pid for record in broker.records()] == [os.getpid()] * 20
    assert {record.by for record in broker.records()} == {"answer"}
