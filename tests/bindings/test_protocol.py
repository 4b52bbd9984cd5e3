"""The host service on its socket: calls and streams, and what becomes of them when time is up or somebody leaves."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from callgate.bindings import service as service_module
from callgate.bindings.binding import Binding, BindingContext
from callgate.bindings.frames import MESSAGE_MAX
from tests.bindings.callable_functions import add, error_of
from tests.bindings.conftest import SECONDS, Held, Serve

# -- calls -----------------------------------------------------------------------------------------


def test_a_call_is_answered_with_its_id_and_result(serve: Serve) -> None:
    client = serve({"add": add, "math": {"add": add}}).connect()
    assert client.call("add", 7, a=2, b=3) == {"id": 7, "ok": True, "result": 5}
    assert client.call("math:add", 8, a=2, b=4)["result"] == 6
    client.send(id=9, kind="call", name="add", positional=[1], arguments={"b": 1})
    assert client.receive()["result"] == 2


def test_the_listing_describes_what_may_be_called_and_nothing_else(serve: Serve) -> None:
    served = serve({"add": add, "secret": add}, refused=frozenset({"secret"}))
    client = served.connect()
    client.send(id=1, kind="list")
    (tool,) = client.receive()["result"]
    assert (tool["name"], tool["description"]) == ("add", "Adds two integers.")
    assert tool["inputSchema"]["required"] == ["a", "b"]
    assert served.gate.asked == []


def test_a_refused_call_never_reaches_the_function(serve: Serve) -> None:
    reached = []
    served = serve({"rm": lambda path: reached.append(path)}, refused=frozenset({"rm", "unknown"}))
    client = served.connect()
    assert client.call("rm", path="/")["error"] == {"code": "EACCES", "type": "PermissionError", "message": "EACCES: rm"}
    assert error_of(client.call("rm", wrong=1)) == ("EACCES", "EACCES: rm")
    assert error_of(client.call("unknown")) == ("EACCES", "EACCES: unknown")
    assert reached == []
    allowed = serve({"rm": lambda path: reached.append(path)}).connect()
    allowed.call("rm", path="/")
    assert reached == ["/"]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("unknown", {}, "unknown", "there is no binding 'unknown'"),
        ("add", {"a": 1}, "arguments", "missing: b"),
        ("add", {"a": 1, "b": "2"}, "arguments", "b: must be an integer, not string"),
        ("add", {"a": 1, "b": 2, "c": 3}, "arguments", "there is no argument 'c'; it takes a, b"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(serve: Serve, name: str, arguments: dict[str, Any], code: str, message: str) -> None:
    client = serve({"add": add}).connect()
    assert error_of(client.call(name, **arguments)) == (code, message)
    assert client.call("add", a=1, b=1)["result"] == 2


class Shy(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raising(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def endless() -> None:
    endless()


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (raising(ValueError("three is not two")), "ValueError", "three is not two"),
        (raising(SystemExit(3)), "SystemExit", "3"),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt", ""),
        (raising(GeneratorExit()), "GeneratorExit", ""),
        (raising(Shy()), "Shy", ""),
        (
            raising(FileNotFoundError(2, "No such file or directory", "/srv/host/secret.db")),
            "FileNotFoundError",
            "No such file or directory",
        ),
        (raising(ImportError(f"cannot import name 'x' from {__file__}")), "ImportError", "cannot import name 'x' from <host>"),
        (endless, "RecursionError", "maximum recursion depth exceeded"),
    ],
)
def test_whatever_a_function_raises_is_an_error_without_the_host_in_it(
    serve: Serve, function: Callable[[], None], kind: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(os.path.dirname(__file__))  # noqa: PTH120
    client = serve({"f": function, "add": add}).connect()
    error = client.call("f")["error"]
    assert (error["code"], error["type"]) == ("failed", kind)
    assert error["message"].startswith(message)
    assert os.path.dirname(__file__) not in json.dumps(error)  # noqa: PTH120
    assert "Traceback" not in json.dumps(error)
    assert client.call("add", a=1, b=1)["result"] == 2


@pytest.mark.parametrize("value", [{1, 2}, object(), float("nan"), b"x", "\ud800", "x" * MESSAGE_MAX])
def test_a_result_that_cannot_be_sent_is_an_error(serve: Serve, value: Any) -> None:
    client = serve({"f": lambda: value, "add": add}).connect()
    code, message = error_of(client.call("f"))
    assert code == "result"
    assert message.startswith("the result cannot be sent: ")
    assert client.call("add", a=1, b=1)["result"] == 2


def test_results_and_arguments_of_megabytes_pass(serve: Serve) -> None:
    client = serve({"double": lambda text: text * 2}).connect()
    assert client.call("double", text="x" * (7 << 20))["result"] == "x" * (14 << 20)


# -- streams ---------------------------------------------------------------------------------------


def test_a_generator_streams_and_its_error_ends_the_stream(serve: Serve) -> None:
    def count(to: int, fail: bool = False) -> Iterator[int]:
        yield from range(to)
        if fail:
            raise ValueError("enough")

    client = serve({"count": count}).connect()
    client.send(id=1, kind="call", name="count", arguments={"to": 3})
    items = [client.receive() for _ in range(4)]
    assert items == [{"id": 1, "ok": True, "item": n} for n in range(3)] + [{"id": 1, "ok": True, "done": True}]
    client.send(id=2, kind="call", name="count", arguments={"to": 1, "fail": True})
    assert client.receive()["item"] == 0
    assert error_of(client.receive()) == ("failed", "enough")


def test_an_async_generator_streams_too(serve: Serve) -> None:
    async def count(to: int) -> AsyncIterator[int]:
        for n in range(to):
            await asyncio.sleep(0)
            yield n

    client = serve({"count": count}).connect()
    client.send(id=1, kind="call", name="count", arguments={"to": 2})
    assert [client.receive().get("item") for _ in range(3)] == [0, 1, None]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_slow_reader_stops_the_stream_and_nobody_else(serve: Serve, is_async: bool) -> None:
    produced = 0
    closed = threading.Event()

    def sync_lines() -> Iterator[str]:
        nonlocal produced
        try:
            while True:
                produced += 1
                yield "x" * 10_000
        finally:
            closed.set()

    async def async_lines() -> AsyncIterator[str]:
        for line in sync_lines():
            yield line

    served = serve({"lines": async_lines if is_async else sync_lines, "add": add})
    slow, other = served.connect(), served.connect()
    slow.send(id=1, kind="call", name="lines")
    seen = -1
    while seen != produced or not produced:
        seen = produced
        time.sleep(0.2)
    assert produced < 1000  # a few megabytes of socket buffer and what is kept on purpose, not an endless stream
    assert other.call("add", a=1, b=1)["result"] == 2
    for _ in range(200):
        assert slow.receive()["item"].startswith("x")
    slow.close()
    if not is_async:
        assert closed.wait(SECONDS)


# -- time, cancellation, and the end of callers ----------------------------------------------------


def test_a_function_that_takes_too_long_is_given_up(serve: Serve, held: Held) -> None:
    client = serve({"slow": Binding(held, timeout=0.2), "add": add}).connect()
    assert error_of(client.call("slow")) == ("timeout", "slow did not answer within 0.2 seconds")
    assert client.call("add", 2, a=1, b=1)["result"] == 2
    held.released.set()
    assert client.call("add", 3, a=1, b=1) == {"id": 3, "ok": True, "result": 2}  # its late result was thrown away


def test_an_async_function_that_takes_too_long_is_cancelled(serve: Serve) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    client = serve({"wait": Binding(wait, timeout=0.2)}).connect()
    assert error_of(client.call("wait"))[0] == "timeout"
    assert cancelled.wait(SECONDS)


def test_a_caller_may_cancel_its_call_while_it_runs(serve: Serve, held: Held) -> None:
    client = serve({"slow": held}).connect()
    client.send(id=5, kind="call", name="slow")
    assert held.reached.wait(SECONDS)
    client.send(id=5, kind="cancel")
    assert client.receive() == {
        "id": 5,
        "ok": False,
        "error": {"code": "cancelled", "type": "BindingError", "message": "slow was cancelled"},
    }


def test_the_call_of_a_caller_that_is_gone_is_cancelled(serve: Serve) -> None:
    reached, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        reached.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    client = serve({"wait": wait}).connect()
    client.send(id=1, kind="call", name="wait")
    assert reached.wait(SECONDS)
    assert not cancelled.is_set()
    client.close()
    assert cancelled.wait(SECONDS)


def test_a_sync_function_can_tell_that_nobody_waits_any_more(serve: Serve) -> None:
    reached, noticed = threading.Event(), threading.Event()

    def work(context: BindingContext) -> None:
        reached.set()
        deadline = time.monotonic() + SECONDS
        while not context.cancelled and time.monotonic() < deadline:
            time.sleep(0.01)
        if context.cancelled:
            noticed.set()

    client = serve({"work": work}).connect()
    client.send(id=1, kind="call", name="work")
    assert reached.wait(SECONDS)
    client.close()
    assert noticed.wait(SECONDS)


def test_who_only_stops_sending_still_gets_the_replies(serve: Serve, held: Held) -> None:
    client = serve({"slow": held}).connect()
    client.send(id=1, kind="call", name="slow")
    client.socket.shutdown(socket.SHUT_WR)
    assert held.reached.wait(SECONDS)
    held.released.set()
    assert client.receive()["result"] == "let go"
    assert client.receive() is None


def test_calls_that_wait_are_answered_when_the_service_ends(serve: Serve, held: Held) -> None:
    served = serve({"slow": held})
    client = served.connect()
    client.send(id=1, kind="call", name="slow")
    assert held.reached.wait(SECONDS)
    served.end()
    assert error_of(client.receive()) == ("cancelled", "the VM is being closed")
    assert client.receive() is None
    held.released.set()


def test_functions_that_never_return_block_their_callers_and_no_other_vm(serve: Serve, held: Held) -> None:
    stuck, other = serve({"slow": Binding(held, timeout=0.5), "add": Binding(add, timeout=0.5)}), serve({"add": add})
    clients = [stuck.connect() for _ in range(service_module.WORKERS_MOST)]
    for client in clients:
        client.send(id=1, kind="call", name="slow")
    for client in clients:
        assert error_of(client.receive())[0] == "timeout"
    assert held.calls == service_module.WORKERS_MOST
    assert error_of(stuck.connect().call("add", a=1, b=1))[0] == "timeout"
    assert other.connect().call("add", a=1, b=1)["result"] == 2
    held.released.set()
    assert stuck.connect().call("add", a=1, b=1)["result"] == 2
