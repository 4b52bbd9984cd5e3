"""One thread for the host services of all VMs: waits for descriptors, deadlines and errands, and ends with the last VM.

Host functions that are known to be quick run on this thread as well (`begin_here`). Should one not come back, a second thread,
which looks every few milliseconds while such calls are made, starts another in its place; the first ends with its function.

A VM's guests may have any number of messages under way. They are answered in short pieces, one of each VM after the other, and in
between it is looked who else has come: a call waits for about one piece of each other VM, whatever they have left to do.
"""

from __future__ import annotations

import math
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from callgate.bindings.turns import Party, Turns

#: Told which of `select.EPOLL*` happened; 0: it asked to be called `again`.
Handler: TypeAlias = Callable[[int], None]

_EVENTS_AT_ONCE: Final = 64
#: How often it is looked whether what runs on the loop's thread is still the same, in seconds.
_LOOK_SECONDS: Final = 0.02
#: How long VMs take turns, in seconds, before it is looked who else has something to do: that costs as much as a short call.
_TURNS_SECONDS: Final = 0.0005
_LONGEST_WAIT: Final = 86_400.0  # epoll takes no infinity


class Loop:
    """Callbacks on one thread. Made by `join`, which every user pairs with a `leave`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._handlers: dict[int, Handler] = {self._bell: lambda _: None}
        self._parties: dict[int, Party] = {}  # by descriptor
        self._turns = Turns()
        self._errands: deque[Callable[[], None]] = deque()
        self._clocks: dict[Callable[[float], float], None] = {}
        self._wakes_at = math.inf
        self._dues: deque[float] = deque()
        self._farewells: list[threading.Event] = []
        self._users = 0
        self.guests = 0  # connections of guests in all VMs, counted by those who make and end them on this thread
        self._epoll.register(self._bell, select.EPOLLIN | select.EPOLLET)
        self._over = False
        self._bell_lock = threading.RLock()
        self._begun = 0  # how often something ran here
        self._adopt: Callable[[], None] | None = None  # set while something does
        self._turn_lock = threading.Lock()
        self._look = threading.Event()  # set while things run here
        self._looking = False  # the same, and quicker to ask; what else is set before is seen by who clears it
        self._watcher: threading.Thread | None = None
        self._thread = self._new_thread()

    def _new_thread(self) -> threading.Thread:
        # A daemon: a program that forgets to close its VMs should still end.
        return threading.Thread(target=self._run, name="callgate-host-services", daemon=True)

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

    def watch(self, party: Party, fd: int, mask: int, handler: Handler) -> None:
        """Call *handler* on the loop's thread for events of *fd*, when it is the turn of *party*."""
        self._handlers[fd] = handler
        self._parties[fd] = party
        self._epoll.register(fd, mask)

    def rearm(self, fd: int, mask: int) -> None:
        """Wait for other events of *fd*, or again after EPOLLONESHOT. From any thread."""
        self._epoll.modify(fd, mask)

    def forget(self, fd: int) -> None:
        """Stop waiting for *fd*, which is about to be closed."""
        del self._handlers[fd]
        self._parties.pop(fd).waiting.pop(fd, None)
        self._epoll.unregister(fd)

    def again(self, fd: int) -> None:
        """In a handler: call the one of *fd* again, with no event, after the others whose turn it is."""
        self._turns.add(self._parties[fd], fd, 0)

    def run_soon(self, errand: Callable[[], None]) -> None:
        """Call *errand* on the loop's thread. From any thread, in a finalizer too; nothing happens once the loop has ended."""
        self._errands.append(errand)
        self._ring()

    def add_clock(self, clock: Callable[[float], float]) -> None:
        """Call *clock* with the monotonic time when something may be due; it answers when it next wants to be called."""
        self._clocks[clock] = None

    def remove_clock(self, clock: Callable[[float], float]) -> None:
        self._clocks.pop(clock, None)

    def due(self, when: float) -> None:
        """Have the clocks called at *when* at the latest. From any thread."""
        if when < self._wakes_at:
            self._dues.append(when)
            self._ring()

    def _ring(self) -> None:
        """Wake the loop's thread."""
        # Re-entrant: a garbage collection may come in between and end a VM. Held so that the number is still ours.
        with self._bell_lock:
            if not self._over:
                os.eventfd_write(self._bell, 1)

    def begin_here(self, adopt: Callable[[], None]) -> None:
        """On the loop's thread: a host function that should be quick begins. Pair with `end_here`.

        If it does not end soon, *adopt* is called, once, by the thread that watches, and the loop goes on in another.
        """
        self._begun += 1
        self._adopt = adopt
        if not self._looking:
            self._looking = True
            self._look.set()
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch_turns, name="callgate-host-services-watch", daemon=True)
                self._watcher.start()

    def end_here(self, adopt: Callable[[], None]) -> bool:
        """The function has ended. False if it was adopted: the calling thread is no longer the loop's, and must not act as it."""
        with self._turn_lock:  # an adoption that has begun is waited for
            if self._adopt is not adopt:
                return False
            self._adopt = None
            return True

    def _watch_turns(self) -> None:
        while not self._over:
            self._look.wait()
            seen = self._begun
            time.sleep(_LOOK_SECONDS)
            if self._begun != seen:
                continue
            with self._turn_lock:
                adopt = self._adopt
                if adopt is not None and self._begun == seen:
                    self._adopt = None
                    self._guarded(adopt)
                    self._thread = self._new_thread()
                    self._thread.start()
                    continue
            self._looking = False
            self._look.clear()
            if (self._begun != seen and not self._over) or self._looking:
                self._looking = True
                self._look.set()  # something began between the look and the clearing

    def _run(self) -> None:
        global _current
        this, handlers, poll, turns = threading.current_thread(), self._handlers, self._epoll.poll, self._turns
        while True:
            wait = 0.0 if turns else min(self._wakes_at - time.monotonic(), _LONGEST_WAIT)
            events = poll(wait if wait > 0 else 0, _EVENTS_AT_ONCE)
            if len(events) == 1 and not turns:  # the usual case: nobody to take turns with
                handler = handlers.get(events[0][0])
                if handler is not None:
                    try:
                        handler(events[0][1])
                    except Exception:  # noqa: BLE001 - see `_guarded`, without the cost of the call
                        sys.excepthook(*sys.exc_info())
                    if self._thread is not this:
                        return  # another one took over while a function ran here
            elif not self._take_turns(events):
                return
            while self._errands:
                self._guarded(self._errands.popleft())
            while self._dues:
                self._wakes_at = min(self._wakes_at, self._dues.popleft())
            if time.monotonic() >= self._wakes_at:
                self._wakes_at = math.inf  # before the clocks look: whoever sets a nearer time meanwhile is not lost
                for clock in list(self._clocks):
                    self._guarded(self._ask, clock)
            if self._farewells:
                with _lock:
                    over = self._users == 0
                    if over:
                        _current = None
                if over:
                    with self._bell_lock:
                        self._over = True
                        os.close(self._bell)
                    self._epoll.close()
                    self._look.set()
                while self._farewells:
                    self._farewells.pop().set()
                if over:
                    return

    def _take_turns(self, events: list[tuple[int, int]]) -> bool:
        """Deal with events, and with what is left of earlier ones, for a while. False: another thread took over meanwhile."""
        this, turns, handlers = threading.current_thread(), self._turns, self._handlers
        for fd, mask in events:
            party = self._parties.get(fd)
            if party is not None:  # not the bell
                turns.add(party, fd, mask)
        until = time.monotonic() + _TURNS_SECONDS
        while turns:
            fd, mask = turns.take()
            if fd < 0:
                continue
            try:
                handlers[fd](mask)
            except Exception:  # noqa: BLE001 - see `_guarded`
                sys.excepthook(*sys.exc_info())
            if self._thread is not this:
                return False
            if time.monotonic() > until:
                break
        return True

    def _ask(self, clock: Callable[[float], float]) -> None:
        self._wakes_at = min(self._wakes_at, clock(time.monotonic()))

    @staticmethod
    def _guarded(action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception:  # noqa: BLE001 - a defect met by one VM must not end the service of the others; it is shown
            sys.excepthook(*sys.exc_info())


_lock = threading.Lock()
_current: Loop | None = None


def _forget_after_fork() -> None:
    """The thread stayed with the parent, to which the descriptors belong as well."""
    global _current, _lock
    _current, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
