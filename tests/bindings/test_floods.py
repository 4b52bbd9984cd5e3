"""Floods of messages and connections: all are answered, in order, and nobody else waits for more than a few of them."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from callgate.bindings import kinds
from callgate.bindings import loop as loop_module
from callgate.bindings import service as service_module
from callgate.bindings.call import Call
from callgate.bindings.connection import CALLS_MOST, FULL, IN_A_ROW, SMALL, Connection
from callgate.bindings.frames import frame
from callgate.bindings.requests import Request
from callgate.bindings.service import HostService
from tests.bindings.callable_functions import add, error_of
from tests.bindings.conftest import SECONDS, Held, Serve, Served

MANY = 1000


def request(number: int, kind: str, **fields: Any) -> bytes:
    return frame(json.dumps({"id": number, "kind": kind, **fields}).encode())


@contextmanager
def held_loop(served: Served) -> Iterator[None]:
    """The thread that serves all VMs stands still: what is sent meanwhile is there all at once when it goes on."""
    entered, go = threading.Event(), threading.Event()

    def stand_still() -> None:
        entered.set()
        go.wait(SECONDS)

    served.service._loop.run_soon(stand_still)
    assert entered.wait(SECONDS)
    try:
        yield
    finally:
        go.set()


Noted = list[tuple[str, int]]


@pytest.fixture
def noted() -> Iterator[Noted]:
    """What requests of kind `note` said, in the order in which they were answered."""
    notes: Noted = []

    def note(_: HostService, connection: Connection, request: Request) -> None:
        notes.append((request.get("who", "string"), request.number))
        connection.send(b'{"id":%d}' % request.number)

    kinds.add_kind("note", note)
    yield notes
    del kinds.HANDLERS["note"]


def flood(who: str = "flood") -> bytes:
    return b"".join(request(n, "note", who=who) for n in range(MANY))


def place(noted: Noted, who: str) -> int:
    """How many were answered before."""
    return [name for name, _ in noted].index(who)


def test_messages_that_arrive_at_once_are_all_answered_and_in_order(serve: Serve) -> None:
    client = serve({"add": add}).connect()
    client.write(b"".join(frame(b'{"id":%d}' % n) for n in range(MANY)))
    assert [client.receive()["id"] for _ in range(MANY)] == list(range(MANY))
    assert client.call("add", a=1, b=1)["result"] == 2


@pytest.mark.parametrize("connections", [1, 8])
def test_a_call_of_another_vm_waits_for_one_piece_of_a_flood(serve: Serve, noted: Noted, connections: int) -> None:
    flooded, other = serve({}), serve({})
    clients, neighbour = [flooded.connect() for _ in range(connections)], other.connect()
    assert neighbour.call("none")["ok"] is False
    with held_loop(flooded):
        for client in clients:
            client.write(flood())
        neighbour.write(request(1, "note", who="neighbour"))
    assert neighbour.receive() == {"id": 1}
    for client in clients:
        assert [client.receive()["id"] for _ in range(MANY)] == list(range(MANY))
    assert place(noted, "neighbour") <= IN_A_ROW


def test_a_call_of_the_same_vm_waits_for_one_piece_of_each_connection(serve: Serve, noted: Noted) -> None:
    served = serve({})
    clients, neighbour = [served.connect() for _ in range(4)], served.connect()
    assert neighbour.call("none")["ok"] is False
    with held_loop(served):
        for client in clients:
            client.write(flood())
        neighbour.write(request(1, "note", who="neighbour"))
    assert neighbour.receive() == {"id": 1}
    assert place(noted, "neighbour") <= 4 * IN_A_ROW


def test_who_comes_while_a_flood_is_answered_is_seen(serve: Serve, noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_TURNS_SECONDS", 0.0)
    flooded, other = serve({}), serve({})
    client, neighbour = flooded.connect(), other.connect()
    assert neighbour.call("none")["ok"] is False

    calling = request(1, "note", who="neighbour")

    def come(*_: object) -> None:
        noted.append(("comes", 1))
        neighbour.write(calling)

    monkeypatch.setitem(kinds.HANDLERS, "come", come)
    client.write(flood() + request(1, "come") + flood("after"))
    assert neighbour.receive() == {"id": 1}
    assert place(noted, "neighbour") - place(noted, "comes") <= 2 * IN_A_ROW
    assert [client.receive()["id"] for _ in range(2 * MANY)] == [*range(MANY), *range(MANY)]


def test_connections_that_pour_in_are_taken_one_at_a_turn(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    stormed, other = serve({}), serve({})
    neighbour = other.connect()
    assert neighbour.call("none")["ok"] is False
    taken: list[int] = []
    monkeypatch.setitem(kinds.HANDLERS, "look", lambda *_: taken.append(len(stormed.service._connections)))
    with held_loop(stormed):
        clients = [stormed.connect() for _ in range(100)]
        neighbour.write(request(1, "look") + request(2, "none"))
    assert neighbour.receive()["id"] == 2
    assert taken[0] <= 1
    for client in clients:
        assert client.call("none")["ok"] is False


def test_who_is_one_connection_too_many_and_gone_already_disturbs_nobody(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(service_module, "CONNECTIONS_MOST", 1)
    served = serve({"add": add})
    kept = served.connect()
    assert kept.call("add", a=1, b=1)["result"] == 2
    with held_loop(served):
        for _ in range(10):
            served.connect().close()
    assert error_of(served.connect().receive())[0] == "busy"
    assert kept.call("add", a=1, b=2)["result"] == 3
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("good", [0, 1, IN_A_ROW - 1, IN_A_ROW, IN_A_ROW + 1, 3 * IN_A_ROW])
@pytest.mark.parametrize(
    ("rest", "complaint"),
    [
        (b"\0\0\0\0", "a message of 0 bytes"),
        (b"\0\0\0\x10half", "the stream ended within a message"),
        (b"\0\0", "the stream ended within a message"),
        (b"", None),
    ],
)
def test_the_end_comes_after_the_messages_before_it(serve: Serve, good: int, rest: bytes, complaint: str | None) -> None:
    client = serve({}).connect()
    client.write(b"".join(frame(b'{"id":%d}' % n) for n in range(good)) + rest)
    client.socket.shutdown(socket.SHUT_WR)
    assert [client.receive()["id"] for _ in range(good)] == list(range(good))
    if complaint is not None:
        assert error_of(client.receive())[1].startswith(complaint)
    assert client.receive() is None


@pytest.mark.parametrize("before", [1, IN_A_ROW, 3 * IN_A_ROW])
def test_long_messages_among_short_ones_take_and_give_back_their_allowance(serve: Serve, before: int) -> None:
    served = serve({"size": lambda text: len(text)})
    client = served.connect()
    long = [request(MANY + n, "call", name="size", arguments={"text": "x" * (4 * SMALL)}) for n in range(3)]
    short = b"".join(frame(b'{"id":%d}' % n) for n in range(before))
    client.write(b"".join(short + each for each in long))
    replies = [client.receive() for _ in range(3 * (before + 1))]
    assert [reply["id"] for reply in replies if not reply["ok"]] == [*range(before)] * 3
    assert [reply["result"] for reply in replies if reply["ok"]] == [4 * SMALL] * 3
    assert served.service._allowance == service_module.ALLOWANCE


def test_who_does_not_read_is_not_answered_without_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    text = b"x" * (FULL // 4)

    def tell(_: HostService, connection: Connection, request: Request) -> None:
        asked.append(request.number)
        connection.send(b'{"id":%d,"text":"%b"}' % (request.number, text))

    monkeypatch.setitem(kinds.HANDLERS, "tell", tell)
    served = serve({"add": add})
    client, neighbour = served.connect(), served.connect()
    client.write(b"".join(request(n, "tell") for n in range(200)))
    for number in range(100):
        assert neighbour.call("add", number, a=number, b=1)["result"] == number + 1
    assert len(asked) < 100
    assert [client.receive()["id"] for _ in range(200)] == list(range(200))


def test_reading_goes_on_when_all_calls_that_it_waits_for_end_at_the_same_moment(
    serve: Serve, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, settle = threading.Barrier(CALLS_MOST), HostService.settle

    def settle_together(service: HostService, call: Call) -> bool:
        settled = settle(service, call)
        if call.number < CALLS_MOST:
            together.wait(SECONDS)
        return settled

    monkeypatch.setattr(HostService, "settle", settle_together)
    client = serve({"slow": held, "add": add}).connect()
    client.write(b"".join(request(n, "call", name="slow") for n in range(CALLS_MOST)))
    deadline = time.monotonic() + SECONDS
    while held.calls < CALLS_MOST and time.monotonic() < deadline:
        time.sleep(0.01)
    held.released.set()
    assert sorted(client.receive()["id"] for _ in range(CALLS_MOST)) == list(range(CALLS_MOST))
    assert client.call("add", CALLS_MOST, a=1, b=1)["result"] == 2
