"""WebAssembly guests for tests: modules written as text, whose memory the tests fill and read, and their one import."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from wasmtime import Config, Engine, Instance, Linker, Memory, Module, Store, wat2wasm

from callgate.guest.wasm import host_call
from callgate.guest.wasm.host_call import Attaching

PAGE = 1 << 16

_IMPORT = '(import "callgate" "exchange" (func $exchange (param i32 i32 i32 i32 i32) (result i32)))'

#: Does what the test asks for: `exchange` is the import itself. `trap` traps. `forever` asks without end.
TOLD = f"""(module {_IMPORT}
  (memory (export "memory") 2)
  (func (export "exchange") (param i32 i32 i32 i32 i32) (result i32)
    (call $exchange (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4)))
  (func (export "trap") unreachable)
  (func (export "forever") (loop
    (drop (call $exchange (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
    (br 0))))
"""

#: Makes one call by itself: asks with little room, grows its memory by what the answer says, and fetches the reply there.
ALONE = f"""(module {_IMPORT}
  (memory (export "memory") 1)
  (data (i32.const 0) "{{\\"id\\":1,\\"kind\\":\\"call\\",\\"name\\":\\"long\\"}}")
  (func (export "run") (result i32) (local $length i32) (local $place i32)
    (local.set $length (call $exchange (i32.const 0) (i32.const 0) (i32.const 36) (i32.const 1024) (i32.const 8)))
    (local.set $place (i32.mul (i32.const 65536)
      (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get $length) (i32.const 65536))))))
    (if (i32.ne (local.get $length)
        (call $exchange (i32.const 0) (i32.const 0) (i32.const 0) (local.get $place) (local.get $length))) (then unreachable))
    (local.get $length)))
"""


def with_memory(declared: str) -> str:
    """A module that calls the import with zeros, whatever its memory is."""
    return f"""(module {_IMPORT} {declared}
      (func (export "exchange") (param i32 i32 i32 i32 i32) (result i32)
        (call $exchange (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4))))"""


@lru_cache
def _engine(moving: bool) -> Engine:
    config = Config()
    config.parallel_compilation = False  # no threads that a test would seem to have left
    config.memory_init_cow = False  # nor a descriptor of a module that is kept for the next test
    config.epoch_interruption = True
    config.shared_memory = True
    config.wasm_memory64 = True
    if moving:
        config.memory_reservation = 0
        config.memory_reservation_for_growth = 0
        config.memory_guard_size = 0
    return Engine(config)


@lru_cache
def _module(text: str, moving: bool) -> Module:
    return Module(_engine(moving), bytes(wat2wasm(text)))


class Guest:
    """One instance in a store of its own. `moving`: its memory lies elsewhere after it has grown."""

    def __init__(self, service: Attaching, text: str = TOLD, *, moving: bool = False) -> None:
        self.engine = _engine(moving)
        self.store = Store(self.engine)
        self.store.set_epoch_deadline(1)
        linker = Linker(self.engine)
        self.calls = host_call.define(linker, self.store, service)
        self._instance: Instance = linker.instantiate(self.store, _module(text, moving))

    def run(self, name: str, *arguments: int) -> Any:
        """Call an export."""
        function: Any = self._instance.exports(self.store)[name]
        return function(self.store, *arguments)

    @property
    def memory(self) -> Memory:
        memory = self._instance.exports(self.store)["memory"]
        assert isinstance(memory, Memory)
        return memory

    def put(self, data: bytes, where: int = 0) -> None:
        """Write into the memory, which grows as needed."""
        self.have(where + len(data))
        self.memory.write(self.store, data, where)

    def get(self, where: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, where, where + size))

    def have(self, size: int) -> None:
        """Let the memory be *size* bytes at least."""
        missing = size - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // PAGE))

    def answer(self, body: bytes, channel: int = 0, room: int = PAGE) -> int:
        """The import's answer to a message at the memory's beginning; b"": none is sent. The reply goes to the second page."""
        self.put(body)
        self.have(PAGE + room)
        answer: int = self.run("exchange", channel, 0, len(body), PAGE, room)
        return answer

    def exchange(self, channel: int, message: bytes | None) -> bytes:
        """What the extension module `_callgate` has to do: ask with little room first, then with as much as is needed."""
        if message is None:
            assert self.run("exchange", channel, 0, host_call.HANG_UP, 0, 0) == 0
            return b""
        place, room = max(PAGE, len(message)), 40
        self.put(message)
        self.have(place + room)
        length = self.run("exchange", channel, 0, len(message), place, room)
        if length > room:
            self.have(place + length)
            assert self.run("exchange", channel, 0, 0, place, length) == length
        if length < 0:
            raise OSError(-length, "the host could not")
        return self.get(place, length)

    def ask(self, channel: int = 0, **fields: Any) -> Any:
        """The reply to a message of the plain protocol; without fields the next reply."""
        return json.loads(self.exchange(channel, json.dumps(fields).encode() if fields else b""))

    def call(self, name: str, number: int = 1, channel: int = 0, **arguments: Any) -> Any:
        return self.ask(channel, id=number, kind="call", name=name, arguments=arguments)
