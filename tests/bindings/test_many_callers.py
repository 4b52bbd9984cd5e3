"""Many callers at once, long messages, and the bounds of what a VM may cost the host."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

import pytest

from callgate.bindings import kinds
from callgate.bindings import service as service_module
from callgate.bindings.binding import BindingContext
from tests.bindings.callable_functions import add, error_of
from tests.bindings.conftest import SECONDS, Held, Serve


def test_calls_from_many_connections_do_not_mix(serve: Serve) -> None:
    served = serve({"add": add})
    wrong: list[Any] = []

    def caller(number: int) -> None:
        client = served.connect()
        for n in range(50):
            reply = client.call("add", n, a=number, b=n)
            if reply != {"id": n, "ok": True, "result": number + n}:
                wrong.append(reply)

    threads = [threading.Thread(target=caller, args=(n * 1000,)) for n in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_connections_beyond_the_most_are_told_so(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "CONNECTIONS_MOST", 3)
    served = serve({"add": add})
    kept = [served.connect() for _ in range(3)]
    for client in kept:
        assert client.call("add", a=1, b=1)["result"] == 2
    assert error_of(served.connect().receive())[0] == "busy"
    kept[0].close()
    deadline = time.monotonic() + SECONDS
    while served.connect().call("add", a=1, b=1)["ok"] is False:
        assert time.monotonic() < deadline


def test_long_messages_wait_for_their_turn_instead_of_filling_the_hosts_memory(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "ALLOWANCE", 20 << 20)
    served = serve({"size": lambda text: len(text)})
    clients = [served.connect() for _ in range(6)]
    body = json.dumps({"id": 1, "kind": "call", "name": "size", "arguments": {"text": "x" * (12 << 20)}}).encode()
    writers = [threading.Thread(target=client.write, args=(len(body).to_bytes(4, "big") + body,)) for client in clients]
    for writer in writers:
        writer.start()
    assert [client.receive()["result"] for client in clients] == [12 << 20] * 6
    for writer in writers:
        writer.join()
    assert served.service._allowance == 20 << 20
    assert not served.service._waiting


def test_a_message_that_is_begun_and_abandoned_gives_its_place_back(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "ALLOWANCE", 20 << 20)
    served = serve({"size": lambda text: len(text)})
    for _ in range(4):
        client = served.connect()
        client.write((15 << 20).to_bytes(4, "big") + b"x" * 100_000)
        client.close()
    assert served.connect().call("size", text="x" * (15 << 20))["result"] == 15 << 20


def test_only_the_two_questions_of_the_fetch_program_are_answered(serve: Serve) -> None:
    served = serve({}, refused=frozenset({"tcp://evil.example:80"}))
    client = served.connect()

    def ask(**fields: Any) -> Any:
        client.send(id=1, kind="authorize", **fields)
        return client.receive()

    assert ask(scope="network", operation="fetch", subject="tcp://good.example:80") == {"id": 1, "ok": True, "result": True}
    assert error_of(ask(scope="network", operation="http", subject="tcp://evil.example:80")) == (
        "EACCES",
        "EACCES: tcp://evil.example:80",
    )
    for scope, operation in (("fs", "read"), ("network", "dns"), ("network", "listen"), ("binding", "*"), ("env", "read")):
        assert error_of(ask(scope=scope, operation=operation, subject="/etc/shadow"))[0] == "protocol"
    assert error_of(ask(scope="network", operation="fetch", subject="x" * 5000))[0] == "protocol"
    assert [subject for _, _, subject in served.gate.asked] == ["tcp://good.example:80", "tcp://evil.example:80"]


def test_another_kind_of_request_can_be_added(serve: Serve) -> None:
    kinds.add_kind("echo", lambda _, connection, request: connection.send(json.dumps(request.fields).encode()))
    try:
        client = serve({}).connect()
        client.send(id=1, kind="echo", text="hello")
        assert client.receive()["text"] == "hello"
    finally:
        del kinds.HANDLERS["echo"]
    with pytest.raises(ValueError, match="answered already"):
        kinds.add_kind("call", lambda *_: None)


def test_the_kernel_says_who_wrote_and_a_forked_writer_is_told_apart(serve: Serve) -> None:
    def whoami(context: BindingContext) -> int:
        return context.pid

    client = serve({"whoami": whoami}).connect()
    assert client.call("whoami")["result"] == os.getpid()
    child = os.fork()
    if child == 0:
        client.send(id=2, kind="call", name="whoami")
        os._exit(0)
    os.waitpid(child, 0)
    assert client.receive()["result"] == child


@pytest.mark.slow
def test_a_hundred_thousand_calls_leave_nothing_behind(serve: Serve) -> None:
    served = serve({"add": add})
    client = served.connect()
    for n in range(100_000):
        assert client.call("add", n, a=n, b=1)["result"] == n + 1
    assert not served.service._calls
    assert not served.connect().call("add", a=1, b="x")["ok"]


def test_a_service_that_has_ended_touches_no_descriptor_of_others(serve: Serve, held: Held) -> None:
    served = serve({"slow": held})
    client = served.connect()
    client.send(id=1, kind="call", name="slow")
    assert held.reached.wait(SECONDS)
    served.end()
    numbers = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]  # the loop's descriptors were among these
    try:
        served.service.due(0.0)
        served.service.end()
        for number in numbers:
            with pytest.raises(BlockingIOError):
                os.eventfd_read(number)
    finally:
        for number in numbers:
            os.close(number)
