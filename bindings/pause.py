"""What a host function may give in place of a result when its call has to wait: no thread is held meanwhile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Pause(ABC):
    """A call that goes on later: the caller of the function waits for `when_over`, and then takes what `go_on` gives.

    *seconds* is how long it may last; None: as long as the call itself.
    """

    seconds: float | None = None

    @abstractmethod
    def when_over(self, callback: Callable[[], object]) -> None:
        """Call *callback* once, when the pause is over; at once if it is. In any thread, so it must not block."""

    @abstractmethod
    def go_on(self) -> Any:
        """Once it is over: what the function gives, as if it had been called now, its exceptions included."""

    @abstractmethod
    def give_up(self, why: str) -> None:
        """Nobody waits for the call any more, and `go_on` is not called. From any thread, more than once; does not block."""

    @abstractmethod
    def out_of_time(self) -> str:
        """What to tell the caller of a pause that lasted too long."""
