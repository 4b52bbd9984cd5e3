"""One call of a host function, from the moment its arguments are good until its last reply, whatever comes in between."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from callgate.bindings.failure import TIMEOUT, Failure, raised
from callgate.bindings.pause import Pause
from callgate.bindings.replies import Replies, ResultError, encoded

if TYPE_CHECKING:
    from callgate.bindings.connection import Connection
    from callgate.bindings.registry import Registered
    from callgate.bindings.service import HostService

#: How long one turn of a generator may take before other calls of its VM get theirs, in seconds.
_TURN_SECONDS = 0.05

#: Types of results that are JSON at once, or no result at all: no stream and nothing to wait for.
DATA = frozenset((int, str, float, bool, dict, list, type(None)))


class Call:
    """One call. `run` is called in a worker; `abandon` from anywhere."""

    __slots__ = (
        "_arguments", "_future", "_keywords", "_owner", "_pause", "_replies", "_running", "_stream", "binding", "caller",
        "deadline", "number", "over", "reserved",
    )  # fmt: skip

    def __init__(
        self,
        owner: HostService,
        caller: Connection,
        number: int,
        binding: Registered,
        arguments: list[Any],
        keywords: dict[str, Any],
        replies: Replies,
    ) -> None:
        self._owner = owner
        self.caller = caller
        self.number = number
        self.binding = binding
        self._arguments = arguments
        self._keywords = keywords
        self._replies = replies
        self._stream: Generator[Any, None, None] | None = None
        self._future: Future[None] | None = None
        self._pause: Pause | None = None
        self._running = False
        self.over = False  # set by the owner, under its lock
        self.reserved = 0  # bytes of the owner's allowance for messages
        self.deadline = math.inf  # until it is on the owner's books

    def extend(self, seconds: float | None = None) -> None:
        """Start the binding's time anew, or *seconds* in its place."""
        timeout, before = self.binding.timeout if seconds is None else seconds, self.deadline
        self.deadline = math.inf if timeout is None else time.monotonic() + timeout
        if self.deadline < before:
            self._owner.due(self.deadline)

    def run(self) -> None:
        """Run the function, or what follows its pause, or a turn of its generator, and reply."""
        if self.is_over():
            self._close_stream()
            return
        self._running = True
        try:
            if self._pause is not None:
                pause, self._pause = self._pause, None
                self.extend()
                self.take(pause.go_on())
            elif self._stream is None:
                self.take(self.binding.function(*self._arguments, **self._keywords))
            else:
                self._turn(self._stream)
        except BaseException as error:  # noqa: BLE001 - whatever the operator's function raises is the answer to this call, no more
            self.fail(raised(error))
        finally:
            self._running = False
            if self.is_over():
                self._close_stream()

    def is_over(self) -> bool:
        """Whether the last reply is on its way, or nobody waits for it. Another thread may change that at any time."""
        return self.over

    def abandon(self, failure: Failure | None) -> None:
        """Stop waiting for the function and cancel what can be. *failure* is the reply; None: nobody is left to hear it."""
        if not self._answer(None if failure is None else self._replies.failure(failure)):
            return
        if self._future is not None:
            self._future.cancel()
        if (pause := self._pause) is not None:
            pause.give_up("the caller is gone" if failure is None else failure.message)
        if self._stream is not None and not self._running:
            self._owner.submit(self)  # its `finally` clauses are the operator's code: they run where that runs

    def out_of_time(self) -> Failure:
        """The failure for a call whose deadline has passed."""
        if (pause := self._pause) is not None:
            return Failure(TIMEOUT, pause.out_of_time(), "TimeoutError")
        return Failure(TIMEOUT, f"{self.binding.name} did not answer within {self.binding.timeout:g} seconds", "TimeoutError")

    # -- results ---------------------------------------------------------------------------------------------------------

    def take(self, value: Any) -> None:
        """Reply with what the function returned, or begin to: it may be a generator, or something to wait for."""
        if type(value) in DATA:
            self._finish(value)  # the usual case, without asking the abstract classes
        elif isinstance(value, Generator):
            self._stream = value
            self._turn(value)
        elif isinstance(value, AsyncGenerator):
            self._run_async(self._async_stream(value))
        elif isinstance(value, Awaitable):
            self._run_async(self._async_result(value))
        elif isinstance(value, Pause):
            self._wait(value)
        else:
            self._finish(value)

    def _finish(self, value: Any) -> None:
        try:
            body = self._replies.result(encoded(value))
        except ResultError as error:
            self.fail(error.failure)
            return
        self._answer(body)

    def fail(self, failure: Failure) -> None:
        """Reply that there is no result."""
        self._answer(self._replies.failure(failure))

    def _answer(self, body: bytes | None) -> bool:
        """Send the last reply, unless it was sent before (False); None: there is nobody to send it to."""
        if not self._owner.settle(self):
            return False
        if body is not None:
            self.caller.send(body)
        if self.caller.waits_for_calls:
            self.caller.look_again()
        return True

    def _send_item(self, value: Any) -> None:
        body = self._replies.item(encoded(value))
        self.extend()
        self.caller.send(body)

    def _end_stream(self) -> None:
        self._answer(self._replies.end())

    # -- pauses: no thread waits --------------------------------------------------------------------------------------------

    def _wait(self, pause: Pause) -> None:
        self._pause = pause
        self.extend(pause.seconds)
        if self.is_over():  # abandoned before it was known that there is a pause
            pause.give_up("nobody waits for the call any more")
            return
        pause.when_over(lambda: self._owner.submit(self))

    # -- generators: one turn at a time, and none while the reader is behind -----------------------------------------------

    def _turn(self, stream: Generator[Any, None, None]) -> None:
        until = time.monotonic() + _TURN_SECONDS
        self.extend()
        try:
            for value in stream:
                if self.is_over():
                    return
                self._send_item(value)
                if self.caller.is_full():
                    self.deadline = math.inf  # the time is the function's, not the reader's
                    self.caller.when_drained(lambda: self._owner.submit(self))
                    return
                if time.monotonic() > until:
                    self._owner.submit(self)
                    return
        except ResultError as error:
            self.fail(error.failure)
            return
        self._stream = None
        self._end_stream()

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(BaseException):  # an abandoned call has nobody to tell
                stream.close()

    # -- async functions ---------------------------------------------------------------------------------------------------

    def _run_async(self, coroutine: Any) -> None:
        if self.is_over():
            coroutine.close()
            return
        future = self._owner.event_loop().submit(coroutine)
        self._future = future
        if self.is_over():  # abandoned meanwhile
            future.cancel()

    async def _async_result(self, awaitable: Awaitable[Any]) -> None:
        import asyncio

        try:
            self._finish(await awaitable)
        except asyncio.CancelledError:
            self.fail(Failure("cancelled", f"{self.binding.name} was cancelled"))
            raise
        except BaseException as error:  # noqa: BLE001 - as in `run`; and a SystemExit would end the loop
            self.fail(raised(error))

    async def _drained(self) -> None:
        """Wait until the reader has caught up."""
        import asyncio

        drained = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.caller.when_drained(lambda: loop.call_soon_threadsafe(drained.set))
        await drained.wait()

    async def _async_stream(self, stream: AsyncGenerator[Any, None]) -> None:
        import asyncio

        try:
            self.extend()
            async for value in stream:
                if self.is_over():
                    break
                self._send_item(value)
                if self.caller.is_full():
                    self.deadline = math.inf
                    await self._drained()
                    self.extend()
            else:
                self._end_stream()
        except asyncio.CancelledError:
            self.fail(Failure("cancelled", f"{self.binding.name} was cancelled"))
            raise
        except ResultError as error:
            self.fail(error.failure)
        except BaseException as error:  # noqa: BLE001 - as above
            self.fail(raised(error))
        finally:
            await stream.aclose()
