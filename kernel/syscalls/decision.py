"""What the filter may answer a system call, and the tests on argument registers that choose between the answers.

A decision is plain data: `kernel/confinement/filter.py` turns it into BPF. Only registers are looked at, because they cannot
change between the filter and the call; memory can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

ALL_BITS = 0xFFFF_FFFF


class Outcome(NamedTuple):
    """An answer; use ALLOW, NOTIFY or Errno()."""

    kind: str
    errno: int = 0


ALLOW = Outcome("allow")  # the kernel carries the call out as it stands
NOTIFY = Outcome("notify")  # the supervisor is asked, and carries the call out itself or refuses it


def Errno(number: int) -> Outcome:
    """The call fails with this errno and has no effect. ValueError outside 1 to 4095, which is all a filter can return."""
    if not 0 < number < 4096:
        raise ValueError(f"not an errno: {number}")
    return Outcome("errno", number)


class Word(NamedTuple):
    """One 32-bit half of an argument register (0 to 5)."""

    argument: int
    high: bool = False


class Bits(NamedTuple):
    """`then` if any bit of the mask is set in the word, else `otherwise`."""

    word: Word
    mask: int
    then: Decision
    otherwise: Decision


class Switch(NamedTuple):
    """The decision of the case that equals the word under the mask, or the default."""

    word: Word
    cases: tuple[tuple[int, Decision], ...]  # sorted by value, no value twice
    default: Decision
    mask: int = ALL_BITS


Decision: TypeAlias = Outcome | Bits | Switch


def bits(word: Word, mask: int, then: Decision, otherwise: Decision) -> Decision:
    """A `Bits` test, or simply the answer when both sides give the same one (which lets the kernel cache it)."""
    return then if then == otherwise else Bits(word, mask, then, otherwise)


def switch(word: Word, cases: Mapping[int, Decision], default: Decision, mask: int = ALL_BITS) -> Decision:
    """A `Switch` without the cases that answer what the default answers; just the default when none is left."""
    telling = tuple((value, cases[value]) for value in sorted(cases) if cases[value] != default)
    return Switch(word, telling, default, mask) if telling else default


def equals(argument: int, value: int, then: Decision, otherwise: Decision) -> Decision:
    """Compares a whole 64-bit register: for arguments the kernel takes as a long or a pointer."""
    low = switch(Word(argument), {value & ALL_BITS: then}, otherwise)
    return switch(Word(argument, high=True), {value >> 32: low}, otherwise)
