"""One thread for the host services of all VMs: waits for descriptors, deadlines and errands, and ends with the last VM."""

from __future__ import annotations

import math
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

#: Told which of `select.EPOLL*` happened.
Handler: TypeAlias = Callable[[int], None]

_EVENTS_AT_ONCE: Final = 64


class Loop:
    """Callbacks on one thread. Made by `join`, which every user pairs with a `leave`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._handlers: dict[int, Handler] = {self._bell: lambda _: None}
        self._errands: deque[Callable[[], None]] = deque()
        self._clocks: dict[Callable[[float], float], None] = {}
        self._wakes_at = math.inf
        self._dues: deque[float] = deque()
        self._farewells: list[threading.Event] = []
        self._users = 0
        self.guests = 0  # connections of guests in all VMs, counted by those who make and end them on this thread
        self._epoll.register(self._bell, select.EPOLLIN | select.EPOLLET)
        # A daemon: a program that forgets to close its VMs should still end.
        self._thread = threading.Thread(target=self._run, name="callgate-host-services", daemon=True)

    @staticmethod
    def join() -> Loop:
        """The process's loop, started if there is none."""
        global _current
        with _lock:
            loop = _current
            if loop is None:
                loop = _current = Loop()
                loop._users = 1
                loop._thread.start()
            else:
                loop._users += 1
            return loop

    def leave(self, done: threading.Event) -> None:
        """On the loop's thread: one user fewer. *done* is set once nothing of the user is left here."""
        self._farewells.append(done)
        with _lock:
            self._users -= 1

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the loop's."""
        return threading.current_thread() is self._thread

    def watch(self, fd: int, mask: int, handler: Handler) -> None:
        """Call *handler* on the loop's thread for events of *fd*."""
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def rearm(self, fd: int, mask: int) -> None:
        """Wait for other events of *fd*, or again after EPOLLONESHOT. From any thread."""
        self._epoll.modify(fd, mask)

    def forget(self, fd: int) -> None:
        """Stop waiting for *fd*, which is about to be closed."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def run_soon(self, errand: Callable[[], None]) -> None:
        """Call *errand* on the loop's thread. From any thread, and takes no lock: a garbage collection may do it."""
        self._errands.append(errand)
        os.eventfd_write(self._bell, 1)

    def add_clock(self, clock: Callable[[float], float]) -> None:
        """Call *clock* with the monotonic time when something may be due; it answers when it next wants to be called."""
        self._clocks[clock] = None

    def remove_clock(self, clock: Callable[[float], float]) -> None:
        self._clocks.pop(clock, None)

    def due(self, when: float) -> None:
        """Have the clocks called at *when* at the latest. From any thread."""
        if when < self._wakes_at:
            self._dues.append(when)
            os.eventfd_write(self._bell, 1)

    def _run(self) -> None:
        global _current
        while True:
            wait = self._wakes_at - time.monotonic()
            for fd, mask in self._epoll.poll(None if wait == math.inf else max(wait, 0), _EVENTS_AT_ONCE):
                handler = self._handlers.get(fd)
                if handler is not None:
                    self._guarded(lambda handler=handler, mask=mask: handler(mask))  # type: ignore[misc]
            while self._errands:
                self._guarded(self._errands.popleft())
            while self._dues:
                self._wakes_at = min(self._wakes_at, self._dues.popleft())
            if time.monotonic() >= self._wakes_at:
                self._wakes_at = math.inf  # before the clocks look: whoever sets a nearer time meanwhile is not lost
                for clock in list(self._clocks):
                    self._guarded(lambda clock=clock: self._ask(clock))  # type: ignore[misc]
            if self._farewells:
                with _lock:
                    over = self._users == 0
                    if over:
                        _current = None
                if over:
                    self._epoll.close()
                    os.close(self._bell)
                while self._farewells:
                    self._farewells.pop().set()
                if over:
                    return

    def _ask(self, clock: Callable[[float], float]) -> None:
        self._wakes_at = min(self._wakes_at, clock(time.monotonic()))

    @staticmethod
    def _guarded(action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # noqa: BLE001 - a defect met by one VM must not end the service of the others; it is shown
            sys.excepthook(*sys.exc_info())


_lock = threading.Lock()
_current: Loop | None = None


def _forget_after_fork() -> None:
    """The thread stayed with the parent, to which the descriptors belong as well."""
    global _current, _lock
    _current, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
