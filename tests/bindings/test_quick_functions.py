"""Functions that have proved quick run on the thread that serves all VMs, and cannot hold it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import pytest

from callgate.bindings.binding import Binding, BindingContext
from callgate.bindings.frames import MESSAGE_MAX
from tests.bindings.callable_functions import add, error_of
from tests.bindings.conftest import SECONDS, Client, Held, Serve


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


def test_a_quick_function_learns_who_calls_every_time(serve: Serve) -> None:
    def whoami(context: BindingContext) -> int:
        return context.pid

    client = serve({"whoami": whoami}).connect()
    for number in range(20):
        assert client.call("whoami", number).get("result") == os.getpid()


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
