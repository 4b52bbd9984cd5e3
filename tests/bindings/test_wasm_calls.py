"""The import of WebAssembly guests, in wasmtime: calls as over the socket, every bad pointer and length, and how calls end."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wasmtime import Engine, Linker, Store, Trap, WasmtimeError

from callgate.bindings import service as service_module
from callgate.bindings.binding import Binding, BindingContext
from callgate.bindings.frames import MESSAGE_MAX
from callgate.guest.wasm import host_call
from callgate.guest.wasm.host_call import BADF, CHANNELS, CONNRESET, FAULT, HANG_UP, INVAL, MFILE, MSGSIZE, NOTSUP
from tests.bindings.callable_functions import add, error_of
from tests.bindings.calling import Canary
from tests.bindings.conftest import SECONDS, Held, Serve
from tests.bindings.wasm_guest import ALONE, PAGE, Guest, with_memory

ADD = b'{"id":1,"kind":"call","name":"add","arguments":{"a":2,"b":3}}'
SUM = b'{"id":1,"ok":true,"result":5}'

# -- calls -----------------------------------------------------------------------------------------


def test_a_call_is_answered_with_its_id_and_result(serve: Serve) -> None:
    guest = Guest(serve({"add": add, "math": {"add": add}}))
    assert guest.call("add", 7, a=2, b=3) == {"id": 7, "ok": True, "result": 5}
    assert guest.call("math:add", 8, a=2, b=4)["result"] == 6
    assert [tool["name"] for tool in guest.ask(id=9, kind="list")["result"]] == ["add", "math:add"]


def test_a_refused_call_never_reaches_the_function_and_is_nobodys(serve: Serve) -> None:
    canary = Canary()
    served = serve({"rm": canary}, refused=frozenset({"rm"}))
    guest = Guest(served)
    assert guest.call("rm", path="/")["error"] == {"code": "EACCES", "type": "PermissionError", "message": "EACCES: rm"}
    assert (canary.reached, served.gate.senders) == (0, [0])
    assert Guest(serve({"rm": canary})).call("rm", path="/")["result"] == "removed /"
    assert canary.reached == 1


def test_a_function_that_asks_who_calls_is_told_that_it_is_no_process(serve: Serve) -> None:
    def who(context: BindingContext) -> int:
        return context.pid

    served = serve({"who": who})
    assert Guest(served).call("who")["result"] == 0
    assert served.connect().call("who")["result"] == os.getpid()


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("unknown", {}, "unknown", "there is no binding 'unknown'"),
        ("add", {"a": 1}, "arguments", "missing: b"),
        ("add", {"a": 1, "b": "2"}, "arguments", "b: must be an integer, not string"),
        ("fail", {}, "failed", "on purpose"),
        ("bad", {}, "result", "the result cannot be sent: object is not JSON"),
        ("slow", {}, "timeout", "slow did not answer within 0.1 seconds"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(
    serve: Serve, held: Held, name: str, arguments: dict[str, Any], code: str, message: str
) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    guest = Guest(serve({"add": add, "fail": fail, "bad": object, "slow": Binding(held, timeout=0.1)}))
    told = error_of(guest.call(name, **arguments))
    assert told[0] == code
    assert told[1].startswith(message.partition(":")[0])
    assert guest.call("add", a=1, b=1)["result"] == 2
    held.released.set()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (ADD[:-1], "the message is not JSON"),
        (b"\xff\xfe", "the message is not UTF-8"),
        (b"[]", "must be a JSON object"),
        (b"\0", "JSON"),
    ],
)
def test_a_message_that_is_no_request_is_told_and_the_channel_goes_on(serve: Serve, body: bytes, message: str) -> None:
    guest = Guest(serve({"add": add}))
    code, text = error_of(json.loads(guest.exchange(0, body)))
    assert (code, message in text) == ("protocol", True)
    assert guest.call("add", a=1, b=1)["result"] == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_the_items_of_a_stream_are_fetched_one_by_one(serve: Serve, is_async: bool) -> None:
    def count(to: int) -> Iterator[int]:
        yield from range(to)

    async def count_async(to: int) -> AsyncIterator[int]:
        for n in range(to):
            await asyncio.sleep(0)
            yield n

    guest = Guest(serve({"count": count_async if is_async else count}))
    assert guest.call("count", to=2) == {"id": 1, "ok": True, "item": 0}
    assert [guest.ask(), guest.ask()] == [{"id": 1, "ok": True, "item": 1}, {"id": 1, "ok": True, "done": True}]


def test_a_stream_stands_still_while_nobody_asks(serve: Serve) -> None:
    produced = 0

    def lines() -> Iterator[str]:
        nonlocal produced
        while True:
            produced += 1
            yield "x" * 100_000

    guest = Guest(serve({"lines": lines, "add": add}))
    assert guest.call("lines")["item"].startswith("x")
    for _ in range(20):  # each takes its turn with the generator
        assert guest.call("add", channel=1, a=1, b=1)["result"] == 2
    assert produced < 100
    assert [guest.ask()["item"] for _ in range(200)] == ["x" * 100_000] * 200


# -- lengths and pointers --------------------------------------------------------------------------

END = 2 * PAGE


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ((-1, len(ADD), PAGE, PAGE), FAULT),
        ((END - 1, 2, PAGE, PAGE), FAULT),
        ((END, 1, PAGE, PAGE), FAULT),
        ((-(1 << 31), len(ADD), PAGE, PAGE), FAULT),
        ((-2, 4, PAGE, PAGE), FAULT),
        ((0, END + 1, 0, 0), FAULT),
        ((0, len(ADD), END, 1), FAULT),
        ((0, len(ADD), END + 1, 0), FAULT),
        ((0, len(ADD), PAGE, PAGE + 1), FAULT),
        ((0, len(ADD), -1, 1), FAULT),
        ((0, len(ADD), -8, 16), FAULT),
        ((0, len(ADD), 0, (1 << 31) - 1), FAULT),
        ((0, -2, PAGE, PAGE), INVAL),
        ((0, -(1 << 31), PAGE, PAGE), INVAL),
        ((0, len(ADD), PAGE, -1), INVAL),
        ((0, MESSAGE_MAX + 1, PAGE, PAGE), MSGSIZE),
        ((0, (1 << 31) - 1, PAGE, PAGE), MSGSIZE),
        ((0, 0, PAGE, PAGE), BADF),
    ],
)
def test_a_bad_pointer_or_length_is_an_answer_and_nothing_is_sent(
    serve: Serve, arguments: tuple[int, int, int, int], answer: int
) -> None:
    served = serve({"add": add})
    guest = Guest(served)
    guest.put(ADD)
    before = guest.get(0, END)
    assert guest.run("exchange", 0, *arguments) == -answer
    assert guest.get(0, END) == before
    assert (served.gate.asked, guest.calls._channels) == ([], {})
    assert guest.answer(ADD) == len(SUM)


@pytest.mark.parametrize("channel", [-1, CHANNELS, 1 << 20, -(1 << 31)])
@pytest.mark.parametrize("size", [len(ADD), 0, HANG_UP])
def test_a_channel_that_cannot_be_is_an_answer(serve: Serve, channel: int, size: int) -> None:
    guest = Guest(serve({"add": add}))
    guest.put(ADD)
    assert guest.run("exchange", channel, 0, size, PAGE, PAGE) == -BADF


def test_whatever_numbers_a_guest_passes_nothing_is_written_but_the_reply(serve: Serve) -> None:
    guest = Guest(serve({"add": add}))
    edges = st.sampled_from([0, 1, len(ADD), PAGE, END - 1, END, END + 1, (1 << 31) - 1, -(1 << 31), -1, -END])
    number = edges | st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, END)
    seen = set()

    @given(message=number, size=number, reply=number, room=number)
    @example(message=1, size=9, reply=END - 1000, room=1000)
    @example(message=END, size=1, reply=0, room=0)
    def check(message: int, size: int, reply: int, room: int) -> None:
        before = bytes(END)
        guest.put(before)
        answer = guest.run("exchange", 3, message, size, reply, room)
        seen.add(answer)
        after = guest.get(0, END)
        if 0 < answer <= room:
            assert after[:reply] + after[reply + answer :] == before[:reply] + before[reply + answer :]
            assert json.loads(after[reply : reply + answer])["ok"] is False
        else:
            assert after == before
        assert guest.run("exchange", 3, 0, HANG_UP, 0, 0) == 0

    check()
    assert -FAULT in seen
    assert max(seen) > 0


@pytest.mark.parametrize(
    "declared",
    [
        "",
        "(memory 1)",
        '(memory (export "other") 1)',
        '(func (export "memory"))',
        '(global (export "memory") i32 (i32.const 0))',
        '(memory (export "memory") i64 1)',
        '(memory (export "memory") 1 1 shared)',
    ],
)
def test_a_guest_without_a_memory_that_an_i32_reaches_is_told(serve: Serve, declared: str) -> None:
    served = serve({"add": add})
    guest = Guest(served, with_memory(declared))
    assert guest.run("exchange", 0, 0, 1, 0, 1) == -NOTSUP
    assert served.gate.asked == []
    assert Guest(served, with_memory('(memory (export "memory") 1)')).run("exchange", 0, 0, 1, 0, 1) > 1


def test_an_empty_memory_has_no_room(serve: Serve) -> None:
    guest = Guest(serve({"add": add}), with_memory('(memory (export "memory") 0)'))
    assert guest.run("exchange", 0, 0, 1, 0, 0) == -FAULT
    assert guest.run("exchange", 0, 0, 0, 0, 1) == -FAULT


def test_the_longest_message_passes_and_is_no_longer_than_that(serve: Serve) -> None:
    guest = Guest(serve({"add": add}))
    assert guest.answer(ADD + b" " * (MESSAGE_MAX - len(ADD) + 1)) == -MSGSIZE
    message = ADD + b" " * (MESSAGE_MAX - len(ADD))
    assert json.loads(guest.exchange(0, message))["result"] == 5


def test_a_reply_without_room_stays_until_there_is_some(serve: Serve) -> None:
    guest = Guest(serve({"add": add}))
    for room in (0, 1, len(SUM) - 1):
        assert guest.answer(ADD if room == 0 else b"", room=room) == len(SUM)
        assert guest.get(PAGE, PAGE) == bytes(PAGE)
    assert guest.answer(ADD.replace(b'"id":1', b'"id":2'), room=len(SUM)) == len(SUM)
    assert guest.get(PAGE, len(SUM) + 1) == SUM + b"\0"
    assert guest.answer(b"", room=len(SUM)) == len(SUM)
    assert guest.get(PAGE, len(SUM)) == SUM.replace(b'"id":1', b'"id":2')


def test_replies_that_nobody_fetches_are_kept_by_the_service_and_count_there(serve: Serve) -> None:
    served = serve({"long": lambda: "x" * (8 << 20)})
    guest = Guest(served)
    for channel in range(4):
        assert guest.answer(b'{"id":1,"kind":"call","name":"long"}', channel=channel, room=16) > 8 << 20
    assert served.service._unsent > 3 * (7 << 20)
    for channel in range(4):
        assert guest.ask(channel)["result"] == "x" * (8 << 20)


def test_a_guest_that_grows_its_memory_for_a_reply_gets_it_there(serve: Serve) -> None:
    guest = Guest(serve({"long": lambda: "x" * 300_000}), ALONE)
    length = guest.run("run")
    assert json.loads(guest.get(PAGE, length)) == {"id": 1, "ok": True, "result": "x" * 300_000}


def test_the_reply_goes_to_where_the_memory_lies_after_the_wait(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Guest(serve({"add": add}), moving=True)
    places = [_address(guest)]
    next_length = host_call._Channel.next_length

    def grow_first(channel: host_call._Channel) -> int:
        guest.memory.grow(guest.store, 1000)
        places.append(_address(guest))
        return next_length(channel)

    monkeypatch.setattr(host_call._Channel, "next_length", grow_first)
    assert guest.answer(ADD) == len(SUM)
    assert guest.get(PAGE, len(SUM)) == SUM
    assert places[0] != places[1], "the control: the memory did move"


def _address(guest: Guest) -> int:
    return ctypes.addressof(guest.memory.data_ptr(guest.store).contents)


# -- channels and guests ---------------------------------------------------------------------------


def test_every_channel_is_a_connection_of_its_own(serve: Serve) -> None:
    served = serve({"add": add})
    guest = Guest(served)
    for channel in range(CHANNELS):
        assert guest.call("add", channel=channel, a=channel, b=1)["result"] == channel + 1
    assert len(served.service._connections) == CHANNELS
    for channel in range(CHANNELS):
        assert guest.run("exchange", channel, 0, HANG_UP, 0, 0) == 0
        assert guest.run("exchange", channel, 0, HANG_UP, 0, 0) == 0
        assert guest.answer(b"", channel=channel) == -BADF
    assert guest.call("add", a=1, b=1)["result"] == 2


def test_too_many_connections_of_a_vm_are_told_so(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "CONNECTIONS_MOST", 2)
    guest = Guest(serve({"add": add}))
    assert [guest.call("add", channel=channel, a=1, b=1)["ok"] for channel in (0, 1)] == [True, True]
    assert error_of(guest.call("add", channel=2, a=1, b=1))[0] == "busy"
    assert guest.answer(b"", channel=2) == -CONNRESET
    guest.exchange(0, None)
    while not guest.call("add", channel=2, a=1, b=1)["ok"]:
        guest.exchange(2, None)  # until the service has heard that the other one hung up


def test_a_host_without_descriptors_is_an_answer() -> None:
    class Full:
        def attach(self) -> socket.socket:
            raise OSError(errno.EMFILE, "Too many open files")

    full = Full()
    assert Guest(full).answer(ADD) == -MFILE


def test_two_guests_at_once_do_not_mix(serve: Serve, held: Held) -> None:
    served = serve({"slow": held, "add": add})
    one, two = Guest(served), Guest(served)
    replies: list[Any] = []
    waiting = threading.Thread(target=lambda: replies.append(one.call("slow", 5)))
    waiting.start()
    assert held.reached.wait(SECONDS)
    assert [two.call("add", 5, a=n, b=n)["result"] for n in range(50)] == [2 * n for n in range(50)]
    assert replies == []
    held.released.set()
    waiting.join(SECONDS)
    assert replies == [{"id": 5, "ok": True, "result": "let go"}]
    assert one.call("add", a=1, b=1)["result"] == 2


def test_the_import_is_defined_once(serve: Serve) -> None:
    served = serve({})
    engine = Engine()
    linker, store = Linker(engine), Store(engine)
    host_call.define(linker, store, served)
    with pytest.raises(WasmtimeError, match="callgate"):
        host_call.define(linker, store, served)


# -- the end of guests, of waits and of the service ------------------------------------------------


def until_it_waits(guest: Guest) -> None:
    deadline = time.monotonic() + SECONDS
    while guest.calls._in_use is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Endless:
    """A stream that tells when it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def lines(self) -> Iterator[str]:
        try:
            while True:
                yield "x" * 100_000
        finally:
            self.closed.set()


def test_a_guest_that_hangs_up_cancels_the_calls_of_that_channel_alone(serve: Serve) -> None:
    one, two = Endless(), Endless()
    guest = Guest(serve({"one": one.lines, "two": two.lines}))
    assert guest.call("one", channel=1)["ok"]
    assert guest.call("two", channel=2)["ok"]
    guest.exchange(1, None)
    assert one.closed.wait(SECONDS)
    assert not two.closed.is_set()
    assert guest.ask(2)["ok"]


def test_the_calls_of_a_guest_that_is_dropped_are_cancelled(serve: Serve) -> None:
    endless = Endless()
    guest = Guest(serve({"lines": endless.lines}))
    assert guest.call("lines")["ok"]
    assert not endless.closed.is_set()
    del guest
    assert endless.closed.wait(SECONDS)


def test_the_calls_of_a_guest_that_traps_are_cancelled(serve: Serve) -> None:
    endless = Endless()
    guest = Guest(serve({"lines": endless.lines}))
    assert guest.call("lines")["ok"]
    with pytest.raises(Trap), guest.calls:
        guest.run("trap")
    assert endless.closed.wait(SECONDS)
    assert guest.answer(ADD) == -CONNRESET


def test_closing_ends_a_wait_and_cancels_the_call(serve: Serve) -> None:
    reached, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        reached.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    guest = Guest(serve({"wait": Binding(wait, timeout=None), "add": add}))
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(guest.answer(b'{"id":1,"kind":"call","name":"wait"}')))
    waiting.start()
    assert reached.wait(SECONDS)
    guest.calls.close()
    guest.calls.close()
    waiting.join(SECONDS)
    assert answers == [-CONNRESET]
    assert cancelled.wait(SECONDS)
    assert guest.answer(ADD) == -CONNRESET


def test_the_epoch_and_closing_together_stop_a_guest_that_only_waits(serve: Serve) -> None:
    guest = Guest(serve({"add": add}))
    assert guest.answer(ADD) == len(SUM)
    ended: list[BaseException] = []

    def run() -> None:
        try:
            guest.run("forever")
        except Trap as error:
            ended.append(error)

    running = threading.Thread(target=run)
    running.start()
    until_it_waits(guest)
    guest.engine.increment_epoch()
    guest.calls.close()
    running.join(SECONDS)
    assert [type(error) for error in ended] == [Trap]


class Interrupted(BaseException):
    """Raised by a signal handler, as KeyboardInterrupt is."""


def test_a_signal_that_raises_ends_the_wait_and_the_call(serve: Serve) -> None:
    cancelled = threading.Event()
    main = threading.get_ident()
    assert threading.current_thread() is threading.main_thread()

    async def interrupt() -> None:
        try:
            signal.pthread_kill(main, signal.SIGUSR1)
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    def handler(number: int, _: object) -> None:
        raise Interrupted(number)

    guest = Guest(serve({"interrupt": Binding(interrupt, timeout=None), "add": add}))
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Interrupted):
            guest.call("interrupt")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert cancelled.wait(SECONDS)
    assert guest.call("add", a=1, b=1)["result"] == 2
    guest.calls.close()  # the exception and the frames of its traceback hold each other, and the guest, until they are collected


def test_calls_that_wait_are_answered_when_the_service_ends(serve: Serve, held: Held) -> None:
    served = serve({"slow": held})
    guest = Guest(served)
    replies: list[Any] = []
    waiting = threading.Thread(target=lambda: replies.append(guest.call("slow")))
    waiting.start()
    assert held.reached.wait(SECONDS)
    served.end()
    waiting.join(SECONDS)
    assert [error_of(reply) for reply in replies] == [("cancelled", "the VM is being closed")]
    assert [guest.answer(b""), guest.answer(b""), guest.answer(ADD), guest.answer(ADD, channel=1)] == [
        -CONNRESET, -BADF, -CONNRESET, -CONNRESET,
    ]  # fmt: skip
    held.released.set()


def test_a_guest_that_waits_for_nothing_hears_of_the_end_too(serve: Serve) -> None:
    served = serve({"add": add})
    guest = Guest(served)
    assert guest.answer(ADD) == len(SUM)
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(guest.answer(b"")))
    waiting.start()
    until_it_waits(guest)
    served.end()
    waiting.join(SECONDS)
    assert answers == [-CONNRESET]


def test_the_import_does_not_keep_the_service_alive() -> None:
    class Gone:
        def attach(self) -> socket.socket:
            raise AssertionError

    guest = Guest(Gone())
    assert guest.answer(ADD) == -CONNRESET


def test_a_connection_that_is_attached_while_the_service_ends_is_at_its_end(serve: Serve) -> None:
    served = serve({"add": add})
    go_on = threading.Event()

    def hold_the_loop() -> None:
        go_on.wait(SECONDS)

    served.service._loop.run_soon(hold_the_loop)
    ending = threading.Thread(target=served.end)
    ending.start()
    while len(served.service._loop._errands) < 1:
        time.sleep(0.001)  # until the end is what the loop does next
    with served.attach() as early:
        go_on.set()
        ending.join(SECONDS)
        with served.attach() as late:
            for sock in (early, late):
                sock.settimeout(SECONDS)
                assert sock.recv(1) == b""
