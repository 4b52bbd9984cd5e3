"""Assembles classic BPF programs for seccomp, and interprets them the way the Linux kernel does.

Only what seccomp(2) accepts and this project needs is here: load a word of `struct seccomp_data`, AND, four comparisons, jumps
and return. Jumps go forward only, so that a program always ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, starmap
from typing import NamedTuple

MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS
ARCH_X86_64 = 0xC000_003E  # AUDIT_ARCH_X86_64
ARCH_I386 = 0x4000_0003  # AUDIT_ARCH_I386
NUMBER_OFFSET, ARCH_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16  # in struct seccomp_data
DATA_SIZE = 64
_SOCK_FILTER = struct.Struct("<HBBI")


# The `code` field of an instruction (linux/bpf_common.h).
LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS: A = the word at offset k
AND = 0x54  # BPF_ALU | BPF_AND | BPF_K: A &= k
JUMP = 0x05  # BPF_JMP | BPF_JA: skip k instructions
EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K: A == k; like the next three it skips jt instructions if true, jf if not
GREATER = 0x25  # BPF_JMP | BPF_JGT | BPF_K: A > k
AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K: A >= k
ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K: A & k
RETURN = 0x06  # BPF_RET | BPF_K: the answer is k

TESTS = frozenset({EQUAL, GREATER, AT_LEAST, ANY_BIT})
CODES = TESTS | {LOAD, AND, JUMP, RETURN}


class Instruction(NamedTuple):
    """One `struct sock_filter`."""

    code: int
    jt: int = 0
    jf: int = 0
    k: int = 0


def encode(program: Iterable[Instruction]) -> bytes:
    """The program as the kernel reads it, eight bytes an instruction."""
    return b"".join(starmap(_SOCK_FILTER.pack, program))


def decode(program: bytes) -> list[Instruction]:
    """The instructions of an encoded program. ValueError if its length is not a multiple of eight."""
    if len(program) % 8:
        raise ValueError("a BPF program is a multiple of 8 bytes")
    return list(starmap(Instruction, _SOCK_FILTER.iter_unpack(program)))


class Label:
    """A place in a program, known only once `Assembler.place` has been called with it."""

    __slots__ = ()


class _Step:
    """An instruction whose targets are still labels; None means the instruction after it."""

    __slots__ = ("code", "far", "k", "otherwise", "then")

    def __init__(self, code: int, k: int = 0, then: Label | None = None, otherwise: Label | None = None) -> None:
        self.code = code
        self.k = k
        self.then = then
        self.otherwise = otherwise
        self.far = False  # a test whose targets lie out of reach skips to unconditional jumps behind it

    def size(self) -> int:
        if not self.far:
            return 1
        return 2 if self.otherwise is None else 3


class Assembler:
    """Collects the steps of a program from top to bottom and resolves its jumps.

    The targets of a test must lie within 255 instructions. `assemble` finds out which do not, and puts an unconditional jump,
    which reaches everywhere, between.
    """

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._places: dict[Label, int] = {}  # label -> index of the step it stands before

    def load(self, offset: int) -> None:
        """A = the 32-bit word at this offset of `struct seccomp_data`."""
        if offset % 4 or not 0 <= offset < DATA_SIZE:
            raise ValueError(f"no word at offset {offset}")
        self._add(_Step(LOAD, offset))

    def and_(self, mask: int) -> None:
        """A &= mask."""
        self._add(_Step(AND, mask))

    def return_(self, answer: int) -> None:
        """End with this answer."""
        self._add(_Step(RETURN, answer))

    def jump(self, target: Label) -> None:
        """Go on at the target."""
        self._add(_Step(JUMP, then=target))

    def test(self, code: int, k: int, then: Label | None, otherwise: Label | None = None) -> None:
        """Compare A with k and go on at `then` or `otherwise`; None means the next step."""
        if code not in TESTS:
            raise ValueError(f"not a test: {code:#x}")
        self._add(_Step(code, k, then, otherwise))

    def place(self, label: Label) -> None:
        """The label stands before the next step. ValueError if it is placed twice."""
        if label in self._places:
            raise ValueError("label placed twice")
        self._places[label] = len(self._steps)

    def assemble(self) -> list[Instruction]:
        """The finished program. ValueError if a label is missing, a jump goes backward or past the end, or it is too long."""
        for index, step in enumerate(self._steps):
            for label in (step.then, step.otherwise):
                if label is not None and not index < self._places.get(label, -1) < len(self._steps):
                    raise ValueError(f"step {index}: the target of a jump must be a later step")
        while self._lengthen():
            pass
        positions = self._positions()
        program = [one for index, step in enumerate(self._steps) for one in self._resolve(index, step, positions)]
        check(program)
        return program

    def _add(self, step: _Step) -> None:
        if not 0 <= step.k <= 0xFFFF_FFFF:
            raise ValueError(f"not a 32-bit number: {step.k}")
        self._steps.append(step)

    def _positions(self) -> list[int]:
        """Where each step starts in the finished program, and where the program ends."""
        return [0, *accumulate(step.size() for step in self._steps)]

    def _lengthen(self) -> bool:
        """Give every test that cannot reach its targets its jumps; whether there was one. No step ever gets shorter again."""
        positions = self._positions()
        short = [step for index, step in enumerate(self._steps) if self._reach(index, step, positions) > 255]
        for step in short:
            step.far = True
        return bool(short)

    def _reach(self, index: int, step: _Step, positions: Sequence[int]) -> int:
        if step.code not in TESTS or step.far:
            return 0
        return max(self._skip(label, index, 1, positions) for label in (step.then, step.otherwise))

    def _skip(self, label: Label | None, index: int, done: int, positions: Sequence[int]) -> int:
        """How many instructions lie between the `done`-th of this step and the label."""
        return 0 if label is None else positions[self._places[label]] - positions[index] - done

    def _resolve(self, index: int, step: _Step, positions: Sequence[int]) -> Iterator[Instruction]:
        if step.code == JUMP:
            yield Instruction(JUMP, k=self._skip(step.then, index, 1, positions))
        elif step.code not in TESTS:
            yield Instruction(step.code, k=step.k)
        elif not step.far:
            then, otherwise = (self._skip(label, index, 1, positions) for label in (step.then, step.otherwise))
            yield Instruction(step.code, then, otherwise, step.k)
        else:
            # then -> the first jump (or past both), otherwise -> the second (or past both, which is where the first ends)
            size = step.size()
            yield Instruction(step.code, 0 if step.then else size - 1, 1, step.k)
            yield Instruction(JUMP, k=self._skip(step.then, index, 2, positions))
            if step.otherwise is not None:
                yield Instruction(JUMP, k=self._skip(step.otherwise, index, 3, positions))


def check(program: Sequence[Instruction]) -> None:
    """ValueError unless the kernel would take the program: known instructions, no jump past the end, an answer on every way."""
    if not 0 < len(program) <= MAX_INSTRUCTIONS:
        raise ValueError(f"a program has 1 to {MAX_INSTRUCTIONS} instructions, not {len(program)}")
    for index, one in enumerate(program):
        if one.code not in CODES:
            raise ValueError(f"instruction {index}: unknown code {one.code:#x}")
        if one.code == LOAD and (one.k % 4 or one.k >= DATA_SIZE):
            raise ValueError(f"instruction {index}: no word at offset {one.k}")
        if one.code == RETURN:
            continue
        skip = one.k if one.code == JUMP else max(one.jt, one.jf) if one.code in TESTS else 0
        if index + 1 + skip >= len(program):
            raise ValueError(f"instruction {index}: runs past the end")


def data(number: int, arguments: Sequence[int] = (), arch: int = ARCH_X86_64, instruction_pointer: int = 0) -> bytes:
    """A `struct seccomp_data` of a little-endian machine; missing arguments are 0."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    return struct.pack("<IIQ6Q", number & 0xFFFF_FFFF, arch, instruction_pointer, *padded)


def run(program: Sequence[Instruction], seccomp_data: bytes) -> int:
    """The answer of a checked program for one call."""
    accumulator = 0
    index = 0
    while True:
        one = program[index]
        index += 1
        if one.code == RETURN:
            return one.k
        if one.code == LOAD:
            (accumulator,) = struct.unpack_from("<I", seccomp_data, one.k)
        elif one.code == AND:
            accumulator &= one.k
        elif one.code == JUMP:
            index += one.k
        else:
            index += one.jt if _holds(one, accumulator) else one.jf


def constant_answer(program: Sequence[Instruction], number: int, arch: int = ARCH_X86_64) -> int | None:
    """The answer if it depends on nothing but number and architecture, else None.

    This follows `seccomp_is_const_allow` of the kernel (5.11 and newer), which emulates a filter when it is attached and from
    then on lets calls that are constantly allowed pass without running it.
    """
    index = 0
    accumulator = 0
    while True:
        one = program[index]
        index += 1
        if one.code == RETURN:
            return one.k
        if one.code == LOAD:
            if one.k not in (NUMBER_OFFSET, ARCH_OFFSET):
                return None
            accumulator = number & 0xFFFF_FFFF if one.k == NUMBER_OFFSET else arch
        elif one.code == AND:
            accumulator &= one.k
        elif one.code == JUMP:
            index += one.k
        else:
            index += one.jt if _holds(one, accumulator) else one.jf


def _holds(one: Instruction, accumulator: int) -> bool:
    if one.code == EQUAL:
        return accumulator == one.k
    if one.code == GREATER:
        return accumulator > one.k
    if one.code == AT_LEAST:
        return accumulator >= one.k
    if one.code == ANY_BIT:
        return bool(accumulator & one.k)
    raise ValueError(f"not a test: {one.code:#x}")
