"""Calls a binding from the host itself, with the checks that a guest's call meets."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callgate.bindings.binding import BindingContext
from callgate.bindings.json_text import JsonError, decode, encode
from callgate.bindings.pause import Pause

if TYPE_CHECKING:
    from callgate.bindings.registry import Registered


def call_here(binding: Registered, args: Sequence[Any], kwargs: Mapping[str, Any], vm: Callable[[], Any]) -> Any:
    """The result as plain JSON data, or an iterator over results. The function's own exceptions pass through.

    A sync function with a timeout runs in a thread of its own, as a guest's call does in one of the VM's: Python cannot stop
    it, so the caller goes on without it and its result is thrown away. Without a timeout it runs in the calling thread, and
    also where that is the one of async functions, which must not wait for a thread that may wait for it. An async function runs
    in the thread of those. A pause is waited for in the calling thread, and not longer than the call may take.
    """
    positional, named = _plain(list(args)), _plain(dict(kwargs))
    arguments, keywords = binding.parameters.bind(positional, named)
    over = threading.Event()
    if binding.parameters.context is not None:
        keywords[binding.parameters.context] = BindingContext(vm, cancelled=over.is_set, binding=binding.name)
    value = _in_time(lambda: binding.function(*arguments, **keywords), binding, over)
    while isinstance(value, Pause):
        _wait(value, binding)
        value = _in_time(value.go_on, binding, over)
    if isinstance(value, Generator):
        return _items(value, binding, over)
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


def _in_time(step: Callable[[], Any], binding: Registered, given_up: threading.Event) -> Any:
    """What *step* gives or raises; `TimeoutError` where that takes longer than the binding's time, and then *given_up* is set."""
    if binding.timeout is None or _in_async_thread():
        return step()
    outcome: list[tuple[bool, Any]] = []  # whether it returned, and what it returned or raised
    done = threading.Event()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append((True, context.run(step)))
        except BaseException as error:  # noqa: BLE001 - raised again by who waits, a SystemExit as well
            outcome.append((False, error))
        done.set()

    # A daemon: a program does not stay because a host function does.
    threading.Thread(target=run, name="callgate-call", daemon=True).start()
    try:
        in_time = done.wait(min(binding.timeout, threading.TIMEOUT_MAX))
    except BaseException:  # Ctrl-C, say
        given_up.set()
        raise
    if not in_time:
        given_up.set()
        raise TimeoutError(f"{binding.name} did not answer within {binding.timeout:g} seconds")
    returned, value = outcome.pop()
    if returned:
        return value
    try:
        raise value
    finally:
        del value  # its traceback holds this frame


def _items(stream: Generator[Any, None, None], binding: Registered, given_up: threading.Event) -> Iterator[Any]:
    end = object()
    try:
        while (value := _in_time(lambda: next(stream, end), binding, given_up)) is not end:
            yield _plain(value)
    finally:
        if not getattr(stream, "gi_running", False):  # else out of time, and it cannot be closed before its thread is done
            stream.close()


def _in_async_thread() -> bool:
    loops = sys.modules.get("callgate.bindings.event_loop")
    return loops is not None and bool(loops.is_async_thread())


def _wait(pause: Pause, binding: Registered) -> None:
    if _in_async_thread():
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


def _await(awaitable: Awaitable[Any], timeout: float | None, name: str) -> Any:
    from callgate.bindings.event_loop import EventLoop

    async def result() -> Any:
        return await awaitable

    loop = EventLoop.join()
    try:
        if loop.is_here:
            if isinstance(awaitable, Coroutine):
                awaitable.close()  # it is known that nobody is going to await it
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
