"""One thread that waits for the sockets and timers of all VMs of this process; it lives as long as somebody needs it."""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

Call = Callable[[], None]


class Loop:
    """Calls back when a socket is readable, when a time has come, or when another thread asks for it.

    Everything but `post`, `enter` and `leave` is for calls that the loop itself makes.
    """

    def __init__(self) -> None:
        # Reentrant: a finalizer may post from whatever this very thread is doing, what is locked included.
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._users = 0
        self._thread: threading.Thread | None = None
        self._posted: deque[Call] = deque()
        self._timers: list[tuple[float, int, Call]] = []
        self._numbers = itertools.count()
        self._watched: dict[int, Call] = {}
        self._selector: selectors.BaseSelector | None = None
        self._wake = -1

    # -- from any thread ---------------------------------------------------------------------------------------------

    def enter(self, first: Call) -> None:
        """One user more: the thread is started if there is none, and calls *first*."""
        with self._lock:
            self._users += 1
            if self._thread is None:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self._selector = selectors.DefaultSelector()
                self._selector.register(self._wake, selectors.EVENT_READ)
                # A daemon: a program that forgets to close its VMs still ends.
                self._thread = threading.Thread(target=self._run, name="callgate-resolver", daemon=True)
                self._thread.start()
        self.post(first)

    def post(self, call: Call) -> None:
        """Have *call* made by the loop's thread; dropped if that has ended. Never waits: also for finalizers."""
        if os.getpid() != self._owner:
            return  # a fork has neither the thread nor, perhaps, a lock that anybody will release
        with self._lock:
            if self._thread is not None:
                self._posted.append(call)
                os.eventfd_write(self._wake, 1)

    def leave(self, last: Call, *, wait: bool) -> None:
        """One user less: *last* is called in the thread, which then ends if nobody is left; *wait* until that is done."""
        if os.getpid() != self._owner:
            return
        done = threading.Event()

        def gone() -> None:
            last()
            self._users -= 1
            done.set()

        thread = self._thread
        self.post(gone)
        if wait and thread is not None and thread is not threading.current_thread():
            done.wait()

    # -- in the loop's thread ----------------------------------------------------------------------------------------

    def watch(self, sock: socket.socket, readable: Call) -> None:
        """Call *readable* as long as there is something to read."""
        assert self._selector is not None
        self._selector.register(sock, selectors.EVENT_READ)
        self._watched[sock.fileno()] = readable

    def unwatch(self, sock: socket.socket) -> None:
        """No longer watch *sock*; must come before it is closed."""
        assert self._selector is not None
        self._selector.unregister(sock)
        del self._watched[sock.fileno()]

    def at(self, moment: float, call: Call) -> None:
        """Call *call* once, when `time.monotonic` has reached *moment*."""
        heapq.heappush(self._timers, (moment, next(self._numbers), call))

    def _run(self) -> None:
        selector = self._selector
        assert selector is not None
        while True:
            for key, _ in selector.select(self._seconds_to_wait()):
                if key.fd == self._wake:
                    os.eventfd_read(self._wake)
                elif (readable := self._watched.get(key.fd)) is not None:  # not closed by a call before it
                    readable()
            for _ in range(len(self._posted)):  # what is posted meanwhile has its turn after the sockets
                self._posted.popleft()()
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            with self._lock:
                if self._users == 0 and not self._posted:
                    self._timers.clear()
                    selector.close()
                    os.close(self._wake)
                    self._thread = None
                    return

    def _seconds_to_wait(self) -> float | None:
        if self._posted:
            return 0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None


_loops: dict[int, Loop] = {}


def shared_loop() -> Loop:
    """The loop of this process. A fork has none of its parent's threads, and gets a loop of its own."""
    pid = os.getpid()
    loop = _loops.get(pid)
    if loop is None:
        # What a parent's loop holds stays as it is: its descriptors are shared with the parent.
        loop = _loops.setdefault(pid, Loop())
    return loop
