"""Whose turn it is on the loop's thread: one piece of work of each VM after the other, so that none waits for all of one's."""

from __future__ import annotations

from collections import OrderedDict, deque


class Party:
    """One VM: its descriptors that wait to be dealt with, and for what, in the order in which they came."""

    __slots__ = ("in_line", "waiting")

    def __init__(self) -> None:
        self.waiting: OrderedDict[int, int] = OrderedDict()  # by descriptor: the bits of `select.EPOLL*`
        self.in_line = False


class Turns:
    """The parties with something to do, in a row. Used by the loop's thread alone.

    Turns rather than an allowance of time, as the resolver has it (kernel/egress/resolver.py): a VM that calls a lot is meant to,
    and may have the whole thread while nobody else wants it. Pieces are short, so that to count them is as good as to time them.
    """

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: deque[Party] = deque()

    def __bool__(self) -> bool:
        """Whether there may be something to do."""
        return bool(self._line)

    def add(self, party: Party, fd: int, mask: int) -> None:
        """Something is to be done for *fd*: *mask* says what, 0 that more is left to do. It keeps the place that it has."""
        waiting = party.waiting
        waiting[fd] = waiting.get(fd, 0) | mask
        if not party.in_line:
            party.in_line = True
            self._line.append(party)

    def take(self) -> tuple[int, int]:
        """The next piece of work, a descriptor and its mask; its party is then the last. -1: nobody wants that any more."""
        party = self._line.popleft()
        if not party.waiting:
            party.in_line = False
            return -1, 0
        # All is in order before the work begins: another thread may take over while it is done.
        piece = party.waiting.popitem(last=False)
        if party.waiting:
            self._line.append(party)
        else:
            party.in_line = False
        return piece
