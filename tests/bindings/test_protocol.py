"""The host service on its socket: calls, and what is no proper call: one clear error each, and no harm to others."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from callgate.bindings import service as service_module
from callgate.bindings.binding import Binding, BindingContext
from callgate.bindings.frames import MESSAGE_MAX
from tests.bindings.conftest import SECONDS, Client, Held, Serve


def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


def error_of(reply: Any) -> tuple[str, str]:
    assert reply["ok"] is False
    return reply["error"]["code"], reply["error"]["message"]


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


# -- what is no request ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "number", "message"),
    [
        (b"\xff\xfe", None, "the message is not UTF-8"),
        (b"{", None, "the message is not JSON"),
        (b"[]", None, "a message must be a JSON object"),
        (b"[" * 100_000, None, "the message is nested more than 128 deep"),
        (b"{}", None, "a message needs an id"),
        (b'{"id":-1,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":1.5,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":true,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":1e400,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":9007199254740993,"kind":"list"}', None, "a message needs an id"),
        (b'{"id":3}', 3, "a message needs a kind"),
        (b'{"id":3,"kind":"exec"}', 3, "'exec' is not a kind of request"),
        (b'{"id":3,"kind":"call"}', 3, "a request of kind 'call' needs 'name' to be of type string"),
        (b'{"id":3,"kind":"call","name":"add","arguments":[1,2]}', 3, "needs 'arguments' to be of type object"),
        (b'{"id":3,"kind":"call","name":"add","positional":{}}', 3, "needs 'positional' to be of type array"),
    ],
)
def test_a_message_that_is_no_request_is_told_and_the_connection_goes_on(
    serve: Serve, body: bytes, number: int | None, message: str
) -> None:
    client = serve({"add": add}).connect()
    client.write(len(body).to_bytes(4, "big") + body)
    reply = client.receive()
    assert reply["id"] == number
    code, text = error_of(reply)
    assert code == "protocol"
    assert message in text
    assert client.call("add", a=1, b=1)["result"] == 2


@pytest.mark.parametrize("length", [0, MESSAGE_MAX + 1, 1 << 31, (1 << 32) - 1])
def test_a_length_that_cannot_be_ends_the_connection_and_no_other(serve: Serve, length: int) -> None:
    served = serve({"add": add})
    bad, other = served.connect(), served.connect()
    bad.write(length.to_bytes(4, "big") + b"x" * 1000)
    assert error_of(bad.receive()) == ("protocol", f"a message of {length} bytes; the length must be 1 to {MESSAGE_MAX}")
    assert bad.receive() is None
    assert other.call("add", a=1, b=1)["result"] == 2


def test_a_message_that_is_cut_short_is_told(serve: Serve) -> None:
    client = serve({"add": add}).connect()
    client.write(b"\0\0\0\x10half")
    client.socket.shutdown(socket.SHUT_WR)
    assert error_of(client.receive()) == ("protocol", "the stream ended within a message")
    assert client.receive() is None


def test_an_id_that_is_in_use_is_refused_and_the_call_goes_on(serve: Serve, held: Held) -> None:
    client = serve({"slow": held}).connect()
    client.send(id=1, kind="call", name="slow")
    assert held.reached.wait(SECONDS)
    client.send(id=1, kind="call", name="slow")
    assert error_of(client.receive()) == ("protocol", "the id 1 is that of a call that still runs")
    held.released.set()
    assert client.receive()["result"] == "let go"


def test_messages_arrive_one_byte_at_a_time_and_many_at_once(serve: Serve) -> None:
    client = serve({"add": add}).connect()
    one = json.dumps({"id": 1, "kind": "call", "name": "add", "arguments": {"a": 1, "b": 2}}).encode()
    for byte in len(one).to_bytes(4, "big") + one:
        client.write(bytes([byte]))
    assert client.receive()["result"] == 3
    bodies = [json.dumps({"id": n, "kind": "call", "name": "add", "arguments": {"a": n, "b": 0}}).encode() for n in range(500)]
    writer = threading.Thread(target=client.write, args=(b"".join(len(body).to_bytes(4, "big") + body for body in bodies),))
    writer.start()
    replies = {reply["id"]: reply["result"] for reply in (client.receive() for _ in bodies)}
    writer.join()
    assert replies == {n: n for n in range(500)}


def test_random_bytes_never_disturb_another_connection(serve: Serve) -> None:
    served = serve({"add": add})
    steady = served.connect()
    noise = random.Random(1)
    for round_number in range(200):
        bad = served.connect()
        valid = json.dumps({"id": 1, "kind": noise.choice(["call", "list", "cancel", "command"]), "name": "add"}).encode()
        content = bytearray(len(valid).to_bytes(4, "big") + valid)
        for _ in range(noise.randrange(4)):
            content[noise.randrange(len(content))] = noise.randrange(256)
        bad.write(bytes(content[: noise.randrange(1, len(content) + 1)]) + noise.randbytes(noise.randrange(20)))
        bad.socket.shutdown(socket.SHUT_WR)
        while (reply := bad.receive()) is not None:
            assert "id" in reply
        bad.close()
        assert steady.call("add", round_number, a=round_number, b=1)["result"] == round_number + 1


# -- many callers ----------------------------------------------------------------------------------


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


def test_another_kind_of_request_can_be_added(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "_HANDLERS", dict(service_module._HANDLERS))
    service_module.add_kind("echo", lambda _, connection, request: connection.send(json.dumps(request.fields).encode()))
    client = serve({}).connect()
    client.send(id=1, kind="echo", text="hello")
    assert client.receive()["text"] == "hello"
    with pytest.raises(ValueError, match="answered already"):
        service_module.add_kind("call", lambda *_: None)


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
    assert not Client(served.path).call("add", a=1, b="x")["ok"]


# -- quick functions, which run on the loop's own thread -------------------------------------------


def warmed(client: Client, name: str, **arguments: Any) -> None:
    """Has a function called until it is known to be quick."""
    for number in range(20):
        assert client.call(name, number, **arguments)["ok"]


def test_a_quick_function_runs_without_a_change_of_threads_and_a_slow_one_does_not(serve: Serve) -> None:
    def where(pause: float = 0) -> str:
        time.sleep(pause)
        return threading.current_thread().name

    client = serve({"quick": where, "slow": where}).connect()
    assert client.call("quick")["result"] == "callgate-binding"
    warmed(client, "quick")
    assert client.call("quick")["result"] == "callgate-host-services"
    for _ in range(6):
        assert client.call("slow", pause=0.03)["result"] == "callgate-binding"


def test_quick_functions_fail_and_are_refused_like_others(serve: Serve) -> None:
    mood: list[Any] = [1]

    def moody(n: int = 0) -> Any:  # noqa: ARG001 - for callers to get wrong
        value = mood[0]
        if isinstance(value, BaseException):
            raise value
        return value

    served = serve({"moody": moody})
    client = served.connect()
    warmed(client, "moody")
    for value, code in ((SystemExit(1), "failed"), ({1}, "result"), ("x" * MESSAGE_MAX, "result"), ("\ud800", "result")):
        mood[0] = value
        assert error_of(client.call("moody"))[0] == code
    mood[0] = 2
    assert error_of(client.call("moody", n="x"))[0] == "arguments"
    assert error_of(client.call("moody", m=1))[0] == "arguments"
    assert client.call("moody")["result"] == 2
    served.gate.refused = frozenset({"moody"})
    assert error_of(client.call("moody"))[0] == "EACCES"


def test_a_quick_function_may_turn_into_a_stream_or_a_coroutine(serve: Serve) -> None:
    kind = ["plain"]

    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    def some() -> Any:
        if kind[0] == "stream":
            return (n for n in range(2))
        return later() if kind[0] == "async" else (1, 2) if kind[0] == "tuple" else "plain"

    client = serve({"some": some}).connect()
    for name, expected in (("async", "later"), ("tuple", [1, 2])):
        kind[0] = "plain"
        client_again = serve({"some": some}).connect()
        warmed(client_again, "some")
        kind[0] = name
        assert client_again.call("some")["result"] == expected
    kind[0] = "plain"
    warmed(client, "some")
    kind[0] = "stream"
    assert client.call("some")["item"] == 0
    assert [client.receive().get("item"), client.receive().get("done")] == [1, True]


@pytest.mark.parametrize("ending", ["result", "error", "timeout", "cancel", "gone"])
def test_a_quick_function_that_blocks_stops_nobody_else(serve: Serve, held: Held, ending: str) -> None:
    blocks = [False]

    def some() -> str:
        if not blocks[0]:
            return "quick"
        held()
        if ending == "error":
            raise ValueError("after all")
        return "after all"

    stuck, other = serve({"some": Binding(some, timeout=0.5 if ending == "timeout" else SECONDS)}), serve({"add": add})
    client, neighbour, same_vm = stuck.connect(), other.connect(), stuck.connect()
    warmed(client, "some")
    blocks[0] = True
    client.send(id=5, kind="call", name="some")
    assert held.reached.wait(SECONDS)
    assert neighbour.call("add", a=1, b=1)["result"] == 2
    blocks[0] = False
    assert same_vm.call("some")["result"] == "quick"
    if ending == "timeout":
        assert error_of(client.receive())[0] == "timeout"
    elif ending == "cancel":
        client.send(id=5, kind="cancel")
        assert error_of(client.receive())[0] == "cancelled"
    elif ending == "gone":
        client.close()
        deadline = time.monotonic() + SECONDS
        while stuck.service._calls and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not stuck.service._calls
    held.released.set()
    if ending == "result":
        assert client.receive() == {"id": 5, "ok": True, "result": "after all"}
    elif ending == "error":
        assert error_of(client.receive()) == ("failed", "after all")
    if ending != "gone":
        assert client.call("some", 6)["result"] == "quick"
    assert neighbour.call("add", a=2, b=1)["result"] == 3


def test_a_quick_function_may_wait_for_another_call_of_its_own_service(serve: Serve) -> None:
    deeper = [False]
    served: Any = None

    def some() -> str:
        if not deeper[0]:
            return "quick"
        deeper[0] = False
        return "through " + str(served.connect().call("some")["result"])

    served = serve({"some": some})
    client = served.connect()
    warmed(client, "some")
    deeper[0] = True
    assert client.call("some")["result"] == "through quick"
