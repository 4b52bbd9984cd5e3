"""Calls a binding from the host itself, with the checks that a guest's call meets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callgate.bindings.binding import BindingContext
from callgate.bindings.json_text import JsonError, decode, encode

if TYPE_CHECKING:
    from callgate.bindings.registry import Registered


def call_here(binding: Registered, args: Sequence[Any], kwargs: Mapping[str, Any], vm: Callable[[], Any]) -> Any:
    """The result as plain JSON data, or an iterator over results. The function's own exceptions pass through.

    A sync function runs in the calling thread, so its timeout does not count; an async one in the thread of those.
    """
    positional, named = _plain(list(args)), _plain(dict(kwargs))
    arguments, keywords = binding.parameters.bind(positional, named)
    if binding.parameters.context is not None:
        keywords[binding.parameters.context] = BindingContext(vm)
    value = binding.function(*arguments, **keywords)
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
