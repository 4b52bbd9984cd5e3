"""The module that lies in VMs, against a service on a socket of the test's own: what it returns, raises and keeps."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from callgate.bindings.binding import Binding
from callgate.bindings.frames import MESSAGE_MAX
from callgate.guest.inside import callgate_guest as guest
from tests.bindings.conftest import Held, Serve, Served


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def count(to: int, fail: bool = False) -> Iterator[int]:
    yield from range(to)
    if fail:
        raise ValueError("enough")


@pytest.fixture
def reach(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def start(bindings: Any, **options: Any) -> Served:
        served = serve(bindings, **options)
        monkeypatch.setattr(guest, "SOCKET", str(served.path))
        return served

    yield start
    guest._forget()


def test_calls_give_results_and_reuse_their_connection(reach: Any) -> None:
    served = reach({"add": add, "math": {"add": add}, "echo": lambda value: value})
    assert guest.call("add", 2, 3) == 5
    assert guest.call("math:add", a=1, b=2) == 3
    for value in (None, True, 1.5, 'é\n"\\\u2028😀', [1, [2]], {"a": {"b": 1}}, "x" * (6 << 20)):
        assert guest.call("echo", value) == value
    assert [tool["name"] for tool in guest.bindings()] == ["add", "math:add", "echo"]
    assert len(served.service._connections) == 1


def test_every_failure_is_an_exception_of_its_kind(reach: Any, held: Held) -> None:
    def fail() -> None:
        raise ValueError("no")

    reach({"add": add, "rm": fail, "fail": fail, "bad": object, "slow": Binding(held, timeout=0.1)}, refused=frozenset({"rm"}))
    with pytest.raises(PermissionError) as refused:
        guest.call("rm")
    assert (refused.value.errno, str(refused.value)) == (13, "EACCES: rm")
    expected = {"none": "unknown", "add": "arguments", "fail": "failed", "bad": "result", "slow": "timeout"}
    for name, code in expected.items():
        with pytest.raises(guest.BindingError) as caught:
            guest.call(name)
        assert caught.value.code == code
    with pytest.raises(TimeoutError) as late:
        guest.call("slow")
    assert isinstance(late.value, guest.BindingTimeout)
    assert late.value.type == "TimeoutError"
    with pytest.raises(guest.BindingError, match="longer than a message"):
        guest.call("add", "x" * MESSAGE_MAX, 1)
    with pytest.raises(TypeError):
        guest.call("add", {1, 2}, 1)
    with pytest.raises(ValueError, match="Out of range float"):
        guest.call("add", float("nan"), 1)
    held.released.set()
    assert guest.call("add", 1, 1) == 2


def test_streams_are_iterators_and_errors_come_where_they_happen(reach: Any) -> None:
    served = reach({"count": count})
    assert list(guest.call("count", 1000)) == list(range(1000))
    stream = guest.call("count", 2, fail=True)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(guest.BindingError, match="enough"):
        next(stream)
    with pytest.raises(guest.BindingError, match="enough"):
        list(guest.call("count", 0, fail=True))
    dropped = guest.call("count", 10**9)
    assert next(dropped) == 0
    dropped.close()
    assert list(guest.call("count", 3)) == [0, 1, 2]
    assert len(served.service._connections) <= 2


def test_two_streams_and_calls_at_once_do_not_mix(reach: Any) -> None:
    reach({"count": count, "add": add})
    one, two = guest.call("count", 5), guest.call("count", 50)
    seen = []
    for a, b in zip(one, two, strict=False):
        seen.append((a, b))
        assert guest.call("add", a, b) == a + b
    assert seen == [(n, n) for n in range(5)]


def test_threads_share_the_module(reach: Any) -> None:
    reach({"add": add})
    wrong: list[int] = []

    def many(base: int) -> None:
        wrong.extend(n for n in range(200) if guest.call("add", base, n) != base + n)

    threads = [threading.Thread(target=many, args=(base,)) for base in range(0, 8000, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_service_that_ends_is_an_os_error_and_a_new_one_is_reached(reach: Any) -> None:
    served = reach({"add": add})
    assert guest.call("add", 1, 1) == 2
    served.end()
    with pytest.raises(OSError):
        guest.call("add", 1, 1)
    reach({"add": add})
    assert guest.call("add", 1, 1) == 2


def test_another_transport_takes_the_place_of_the_socket() -> None:
    sent: list[Any] = []

    class Import:
        """What one function of an embedder would do."""

        def send(self, message: bytes) -> None:
            sent.append(json.loads(message))

        def receive(self) -> bytes:
            return json.dumps({"id": sent[-1]["id"], "ok": True, "result": "by other means"}).encode()

        def close(self) -> None:
            sent.append("closed")

    before = guest._transport
    guest.use_transport(Import)
    try:
        assert guest.call("add", 1, b=2) == "by other means"
        assert sent == [{"id": 1, "kind": "call", "name": "add", "positional": [1], "arguments": {"b": 2}}]
    finally:
        guest.use_transport(before)
        guest._forget()
