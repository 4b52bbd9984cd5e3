"""The guests' Python module over the import of a WebAssembly instance: the same as over the socket, case by case; and in VMs."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from callgate.bindings.binding import Binding
from callgate.bindings.frames import MESSAGE_MAX
from callgate.guest.inside import callgate_guest as guest_module
from callgate.guest.wasm.host_call import CONNRESET
from tests.bindings.callable_functions import error_of
from tests.bindings.calling import Canary, add, only
from tests.bindings.conftest import SECONDS, Held, Serve
from tests.bindings.wasm_guest import PAGE, Guest

if TYPE_CHECKING:
    from callgate import VM

Factory = Callable[..., "VM"]


def count(to: int, fail: bool = False) -> Iterator[int]:
    yield from range(to)
    if fail:
        raise ValueError("enough")


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Takes a guest whose import becomes the module's transport, or None for the socket."""

    def choose(guest: Guest | None) -> None:
        if guest is None:
            guest_module.use_transport(guest_module.UnixSocket)
        else:
            monkeypatch.setitem(sys.modules, "_callgate", SimpleNamespace(exchange=guest.exchange))
            guest_module.use_transport(guest_module.HostImport)

    yield choose
    guest_module.use_transport(guest_module.UnixSocket)


# -- the same as over the socket -------------------------------------------------------------------


def outcome(ask: Callable[[], Any]) -> Any:
    """What came back, or what was raised, in a form that can be compared."""
    try:
        return ask()
    except guest_module.BindingError as error:
        return type(error).__name__, error.code, error.type, str(error)
    except OSError as error:
        return type(error).__name__, error.errno, str(error)
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error)


def items(*arguments: Any, **named: Any) -> list[Any]:
    """A stream's items, with what it raises as the last."""
    found: list[Any] = []
    stream = outcome(lambda: guest_module.call(*arguments, **named))
    if isinstance(stream, tuple):
        return [stream]
    while (item := outcome(lambda: next(stream, "over"))) != "over":
        found.append(item)
        if isinstance(item, tuple):
            break
    return found


call = guest_module.call
LONG = "x" * (6 << 20)
CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "positional": (lambda: call("add", 2, 3), 5),
    "named": (lambda: call("math:add", a=2, b=4), 6),
    "null": (lambda: call("echo", None), None),
    "text": (lambda: call("echo", 'é\n"\\\u2028😀'), 'é\n"\\\u2028😀'),
    "nested": (lambda: call("echo", {"a": [1, {"b": 1.5}]}), {"a": [1, {"b": 1.5}]}),
    "megabytes": (lambda: call("echo", LONG) == LONG, True),
    "listing": (lambda: [tool["name"] for tool in guest_module.bindings()][:2], ["add", "math:add"]),
    "refused": (lambda: call("rm", path="/"), ("Refused", 13, "EACCES: rm")),
    "unknown": (lambda: call("none"), ("BindingError", "unknown", "BindingError", "there is no binding 'none'")),
    "missing": (lambda: call("add", 1), ("BindingError", "arguments", "TypeError", "missing: b")),
    "failing": (
        lambda: call("count", 1, "no"),
        ("BindingError", "arguments", "TypeError", "fail: must be true or false, not string"),
    ),
    "timeout": (
        lambda: call("slow"),
        ("BindingTimeout", "timeout", "TimeoutError", "slow did not answer within 0.1 seconds"),
    ),
    "no JSON": (lambda: call("add", {1}, 2), ("TypeError", "Object of type set is not JSON serializable")),
    "too long": (
        lambda: call("echo", "x" * MESSAGE_MAX),
        (
            "BindingError",
            "arguments",
            "ValueError",
            "the arguments are longer than a message may be (16777216 bytes)",
        ),
    ),
    "stream": (lambda: items("count", 1000), list(range(1000))),
    "empty stream": (lambda: items("count", 0), []),
    "failing stream": (lambda: items("count", 2, fail=True), [0, 1, ("BindingError", "failed", "ValueError", "enough")]),
    "two streams": (lambda: list(zip(call("count", 3), call("count", 9), strict=False)), [(0, 0), (1, 1), (2, 2)]),
    "calls within a stream": (lambda: [call("add", n, n) for n in call("count", 4)], [0, 2, 4, 6]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_import_gives_what_the_socket_gives(
    serve: Serve, held: Held, transports: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    canary = Canary()
    bindings = {
        "add": add,
        "math": {"add": add},
        "echo": lambda value: value,
        "rm": canary,
        "slow": Binding(held, timeout=0.1),
        "count": count,
    }
    ask, expected = CASES[case]
    one, other = (serve(bindings, refused=frozenset({"rm"})) for _ in range(2))  # each learns anew which functions are quick
    monkeypatch.setattr(guest_module, "SOCKET", str(one.path))
    transports(None)
    by_socket = outcome(ask)
    transports(Guest(other))
    assert (outcome(ask), set(other.gate.asked)) == (by_socket, set(one.gate.asked))
    assert by_socket == expected
    assert canary.reached == 0
    assert outcome(lambda: call("add", 1, 1)) == 2
    held.released.set()


def test_the_end_of_the_service_is_an_os_error(serve: Serve, transports: Callable[[Any], None]) -> None:
    served = serve({"add": add})
    transports(Guest(served))
    assert call("add", 1, 1) == 2
    served.end()
    with pytest.raises(OSError) as caught:
        call("add", 1, 1)
    assert caught.value.errno == CONNRESET
    transports(Guest(serve({"add": add})))
    assert call("add", 1, 1) == 2


def test_channels_are_used_again_and_a_stream_that_is_dropped_gives_its_own_back(
    serve: Serve, transports: Callable[[Any], None]
) -> None:
    closed = threading.Semaphore(0)

    def lines() -> Iterator[str]:
        try:
            while True:
                yield "x" * 10_000
        finally:
            closed.release()

    served = serve({"lines": lines, "add": add})
    transports(Guest(served))
    free = len(guest_module._numbers)
    for begun in (True, False) * 100:
        stream = call("lines")
        if begun:
            assert next(stream)
        del stream
        assert closed.acquire(timeout=SECONDS)
    assert call("add", 1, 1) == 2
    assert len(served.service._connections) == 1
    transports(None)
    assert len(guest_module._numbers) == free


def test_more_streams_than_channels_are_an_error_and_no_harm(serve: Serve, transports: Callable[[Any], None]) -> None:
    transports(Guest(serve({"count": count, "add": add})))
    streams = [call("count", 10**6) for _ in range(len(guest_module._numbers))]
    with pytest.raises(OSError, match="too many calls") as caught:
        call("add", 1, 1)
    assert caught.value.errno == errno.EMFILE
    streams.pop().close()
    assert call("add", 1, 1) == 2
    assert [next(stream) for stream in streams] == [0] * len(streams)
    for stream in streams:
        stream.close()


# -- an interpreter that lacks what Linux has ------------------------------------------------------


@pytest.fixture
def bare_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as an interpreter without sockets and fork imports it."""
    monkeypatch.setitem(sys.modules, "socket", None)
    monkeypatch.delattr(os, "register_at_fork")
    monkeypatch.delitem(sys.modules, "_callgate", raising=False)
    assert guest_module.__file__ is not None
    spec = importlib.util.spec_from_file_location("bare_callgate_guest", guest_module.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_sockets_the_import_is_the_way(serve: Serve, bare_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="neither Unix sockets nor the module _callgate") as caught:
        bare_module.call("add", 1, 2)
    assert caught.value.errno == errno.ENOSYS
    guest = Guest(serve({"add": add, "count": count}))
    monkeypatch.setitem(sys.modules, "_callgate", SimpleNamespace(exchange=guest.exchange))
    assert bare_module.call("add", 1, 2) == 3
    assert list(bare_module.call("count", 3)) == [0, 1, 2]
    bare_module._forget()


# -- with VMs --------------------------------------------------------------------------------------


@pytest.mark.vm
def test_a_vm_judges_and_records_what_such_a_guest_calls(vm_factory: Factory, transports: Callable[[Any], None]) -> None:
    canary = Canary()
    vm = vm_factory(only("add"), bindings={"add": add, "rm": canary})
    transports(Guest(vm._service))
    assert call("add", 2, 3) == 5
    with pytest.raises(PermissionError) as refused:
        call("rm", path="/")
    with pytest.raises(PermissionError) as on_the_host:
        vm.call("rm", path="/")
    assert str(refused.value) == str(on_the_host.value)
    assert canary.reached == 0
    by_guest, by_host = vm.denials
    assert (by_guest.subject, by_guest.message, by_guest.pid, by_guest.program) == ("rm", str(refused.value), 0, "")
    assert by_guest.message == by_host.message
    native = vm.run(["callgate-bindings", "call", "add", "--a", "1", "--b", "1"])
    assert (native.stdout, native.denials) == ('{"ok": true, "result": 2}\n', ())
    assert vm.run(["callgate-bindings", "call", "rm"]).returncode == 126


@pytest.mark.vm
def test_closing_a_vm_answers_a_guest_that_waits(vm_factory: Factory, held: Held) -> None:
    vm = vm_factory(bindings={"slow": held})
    guest = Guest(vm._service)
    replies: list[Any] = []
    waiting = threading.Thread(target=lambda: replies.append(guest.call("slow")))
    waiting.start()
    assert held.reached.wait(SECONDS)
    vm.close()
    waiting.join(SECONDS)
    assert [error_of(reply) for reply in replies] == [("cancelled", "the VM is being closed")]
    assert guest.answer(b"") == -CONNRESET
    assert guest.answer(json.dumps({"id": 1, "kind": "list"}).encode(), room=PAGE) == -CONNRESET


@pytest.mark.vm
def test_a_vm_that_was_closed_before_anybody_called_serves_no_guest(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"add": add})
    guest = Guest(vm._service)
    vm.close()
    assert guest.answer(b'{"id":1,"kind":"list"}') == -CONNRESET
