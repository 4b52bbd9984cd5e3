"""The one thread in which async host functions run: asyncio is loaded and the thread started with the first of them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class EventLoop:
    """An asyncio loop in a thread of its own. Made by `join`, which every user pairs with a `leave`."""

    def __init__(self) -> None:
        self._users = 0
        self.asyncio = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="callgate-async-bindings", daemon=True)

    @staticmethod
    def join() -> EventLoop:
        """The process's loop, started if there is none."""
        global _current
        with _lock:
            loop = _current
            if loop is None:
                loop = _current = EventLoop()
                loop._thread.start()
            loop._users += 1
            return loop

    def leave(self) -> None:
        """One user fewer; with the last the thread cancels what is left and ends."""
        global _current
        with _lock:
            self._users -= 1
            if self._users:
                return
            _current = None
        self.asyncio.call_soon_threadsafe(self.asyncio.stop)

    def wait_if_over(self, seconds: float) -> None:
        """Wait for the thread to end, *seconds* at most, if its last user has left."""
        if self._users == 0 and not self.is_here:
            self._thread.join(seconds)

    def submit(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run *coroutine*; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.asyncio)

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the loop's."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.asyncio)
        try:
            self.asyncio.run_forever()
            left = asyncio.all_tasks(self.asyncio)
            for task in left:
                task.cancel()
            if left:
                self.asyncio.run_until_complete(asyncio.wait(left, timeout=1.0))
            self.asyncio.run_until_complete(self.asyncio.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self.asyncio.close()


def is_async_thread() -> bool:
    """Whether the calling thread is the one of async host functions."""
    loop = _current
    return loop is not None and loop.is_here


_lock = threading.Lock()
_current: EventLoop | None = None


def _forget_after_fork() -> None:
    """The thread stayed with the parent."""
    global _current, _lock
    _current, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
