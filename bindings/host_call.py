"""Calls a binding from the host itself, with the checks that a guest's call meets."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callgate.bindings.binding import BindingContext
from callgate.bindings.json_text import JsonError, decode, encode
from callgate.bindings.pause import Pause

if TYPE_CHECKING:
    from callgate.bindings.registry import Registered


def call_here(binding: Registered, args: Sequence[Any], kwargs: Mapping[str, Any], vm: Callable[[], Any]) -> Any:
    """The result as plain JSON data, or an iterator over results. The function's own exceptions pass through.

    A sync function runs in the calling thread, so its timeout does not count; an async one in the thread of those. A pause is
    waited for in the calling thread, and not longer than the call may take.
    """
    positional, named = _plain(list(args)), _plain(dict(kwargs))
    arguments, keywords = binding.parameters.bind(positional, named)
    if binding.parameters.context is not None:
        keywords[binding.parameters.context] = BindingContext(vm, binding=binding.name)
    value = binding.function(*arguments, **keywords)
    while isinstance(value, Pause):
        value = _wait(value, binding)
    if isinstance(value, Generator):
        return map(_plain, value)
    if isinstance(value, AsyncGenerator):
        return _iterate(value, binding.timeout)
    if isinstance(value, Awaitable):
        return _plain(_await(value, binding.timeout, binding.name))
    return _plain(value)


def _plain(value: Any) -> Any:
    try:
        return decode(encode(value))
    except JsonError as error:
        raise TypeError(f"not JSON data: {error}") from None


def _wait(pause: Pause, binding: Registered) -> Any:
    loops = sys.modules.get("callgate.bindings.event_loop")
    if loops is not None and loops.is_async_thread():
        pause.give_up("the call came from where it cannot wait")
        raise RuntimeError(f"{binding.name} has to wait, and would hold all async bindings; use asyncio.to_thread(vm.call, ...)")
    over = threading.Event()
    pause.when_over(over.set)
    try:
        in_time = over.wait(binding.timeout if pause.seconds is None else min(pause.seconds, threading.TIMEOUT_MAX))
    except BaseException:  # Ctrl-C, say
        pause.give_up("the call was interrupted")
        raise
    if not in_time:
        pause.give_up("the time is up")
        raise TimeoutError(pause.out_of_time())
    return pause.go_on()


def _await(awaitable: Awaitable[Any], timeout: float | None, name: str) -> Any:
    from callgate.bindings.event_loop import EventLoop

    async def result() -> Any:
        return await awaitable

    loop = EventLoop.join()
    try:
        if loop.is_here:
            raise RuntimeError("an async binding cannot be called from another one through vm.call; await it")
        future = loop.submit(result())
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                raise  # the function's own
            raise TimeoutError(f"{name} did not answer within {timeout:g} seconds") from None
        finally:
            future.cancel()
    finally:
        loop.leave()


def _iterate(stream: AsyncGenerator[Any, None], timeout: float | None) -> Iterator[Any]:
    from callgate.bindings.event_loop import EventLoop

    async def step() -> tuple[bool, Any]:
        try:
            return True, await anext(stream)
        except StopAsyncIteration:
            return False, None

    loop = EventLoop.join()
    try:
        while True:
            more, value = loop.submit(step()).result(timeout)
            if not more:
                return
            yield _plain(value)
    finally:
        loop.submit(stream.aclose()).result(timeout)
        loop.leave()
