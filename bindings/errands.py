"""Things to be done one after the other in a thread that is there only while there is something to do."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable


class Errands:
    """`add` returns at once; what an errand raises is shown, and the next is done all the same."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._busy = False

    def add(self, errand: Callable[[], object]) -> None:
        """Have *errand* called after those before it."""
        with self._lock:
            self._waiting.append(errand)
            if self._busy:
                return
            self._busy = True
        try:
            # A daemon: a program does not stay because a person has not answered.
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:  # the interpreter is ending, or the host has no thread left
            self._run()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy = False
                    return
                errand = self._waiting.popleft()
            try:
                errand()
            except BaseException as error:  # noqa: BLE001 - there is nobody else to tell
                sys.excepthook(type(error), error, error.__traceback__)
            del errand  # what it holds should not wait for the next
