"""The threads in which one VM's host functions run: started as they are needed, never many, never waited for at exit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

Task: TypeAlias = Callable[[], None]


class Workers:
    """A bounded pool. A function that never returns keeps its thread; the pool then has one fewer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._spare = 0  # threads that wait for a task, minus tasks that wait for a thread
        self._stopped = False

    def submit(self, task: Task) -> None:
        """Run *task* in a thread of the pool; in none once it is stopped."""
        with self._lock:
            if self._stopped:
                return
            self._spare -= 1
            if self._spare < 0 and len(self._threads) < self._most:
                # A daemon: a program does not stay because a host function does.
                thread = threading.Thread(target=self._work, name="callgate-binding", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._queue.put(task)

    def stop(self) -> None:
        """Let idle threads end, and busy ones after what they do now."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            while True:
                try:
                    self._queue.get_nowait()
                except Empty:
                    break
            for _ in self._threads:
                self._queue.put(None)

    def wait(self, seconds: float) -> None:
        """Wait until every thread has ended, *seconds* at most."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0))

    def _work(self) -> None:
        while True:
            with self._lock:
                self._spare += 1
            task = self._queue.get()
            if task is None:
                return
            task()
            del task  # what it holds should not wait for the next
