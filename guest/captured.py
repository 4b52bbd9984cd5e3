"""A program run to its end with its output captured: waited for in a thread, or moved on by an event loop."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Generic, TypeVar

from callgate.guest.interface import Listeners, Program
from callgate.guest.process import NativeGuest
from callgate.guest.result import Command, Result, Timeout
from callgate.guest.streams import Capture, Pump, guest_pipe
from callgate.scopes.errors import InternalError

_Output = TypeVar("_Output")

#: How long a killed run may take to be gone before its `Timeout` is raised all the same, in seconds.
KILL_GRACE = 60.0


class CapturedRun(Generic[_Output]):
    """One run from its start to its `Result`; `close` gives back its descriptors whatever happened.

    An event loop waits for `fileno` and calls `step` until that returns True, then `result`.
    """

    def __init__(
        self,
        guest: NativeGuest,
        program: Program,
        shown: Command,
        *,
        stdin: bytes,
        decode: Callable[[bytes], _Output],
        listeners: Listeners = (None, None),
        selector: selectors.EpollSelector | None = None,
    ) -> None:
        self._began = time.monotonic()
        self._shown = shown
        self._decode = decode
        self._wall_seconds = guest.wall_seconds
        self._out, self._err = (Capture(guest.output_limit, listener) for listener in listeners)
        self._pump = Pump(selector)
        with ExitStack() as failed, ExitStack() as theirs:
            failed.callback(self._pump.close)
            stdin_reader, writer = guest_pipe()
            theirs.callback(os.close, stdin_reader)
            self._pump.feed(writer, stdin)
            writers = []
            for capture in (self._out, self._err):
                reader, writer = guest_pipe()
                theirs.callback(os.close, writer)
                writers.append(writer)
                self._pump.collect(reader, capture)
            self._process = guest.start(program, (stdin_reader, writers[0], writers[1]), watched=True)
            failed.pop_all()
        self._outcome = guest.outcome(self._process)
        self._pump.watch(self._process.fileno(), self._outcome.take)
        guest.notice_callers(self._pump)

    def fileno(self) -> int:
        """Readable when `step` has something to do."""
        return self._pump.fileno()

    def step(self) -> bool:
        """Do what can be done without waiting; True once the run is over."""
        return self._pump.step()

    def kill(self) -> None:
        """Kill everything the run started; it is over some moments later. Nothing happens if its VM is gone."""
        with suppress(InternalError, ValueError):
            self._process.kill_tree()

    def abandon(self) -> None:
        """Kill as `kill` does, and tell the listeners nothing more: one of them raised, or nobody waits for the result."""
        self._out.tell_nobody()
        self._err.tell_nobody()
        self.kill()

    def to_the_end(self, timeout: float | None) -> Result[_Output]:
        """Wait for the end, or for *timeout* seconds and then kill; what was started is gone however this returns."""
        try:
            if self._pump.run(None if timeout is None else self._began + timeout):
                return self.result()
            self._process.kill_tree()
            self._pump.run(time.monotonic() + KILL_GRACE)
        except BaseException:
            # Ctrl-C in the host program, say, or a listener that raised: whoever started the run is not going to hear of its end.
            self.abandon()
            self._pump.run(time.monotonic() + KILL_GRACE)
            raise
        return self.result(timeout)

    def result(self, timed_out_after: float | None = None) -> Result[_Output]:
        """What the run came to. Raises `Timeout` if its time was up, and the VM's error if that ended first."""
        self._pump.drain()
        outcome = self._outcome
        if outcome.failure_line:
            self._err.add(outcome.failure_line)
        self._out.end()
        self._err.end()
        out, err = self._decode(self._out.content()), self._decode(self._err.content())
        if timed_out_after is None and "wall_seconds" in outcome.exceeded:
            timed_out_after = self._wall_seconds
        if timed_out_after is not None:
            raise Timeout(self._shown, timed_out_after, out, err, outcome.denials)
        if outcome.returncode is None:
            raise self._process.gone()
        return Result(
            self._shown,
            outcome.returncode,
            out,
            err,
            denials=outcome.denials,
            denials_dropped=outcome.denials_dropped,
            duration=time.monotonic() - self._began,
            usage=outcome.usage,
            truncated=self._out.truncated or self._err.truncated,
            exceeded=outcome.exceeded,
        )

    def close(self) -> None:
        """Give back the descriptors; what still runs goes on, unheard."""
        self._pump.close()
        self._process.close()
