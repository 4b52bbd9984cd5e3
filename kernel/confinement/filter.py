"""Makes the seccomp filter of a VM from the system call table and the triggers its policy leaves to the supervisor.

The program first settles what is no x86-64 call, then finds the number by binary search, and only then, where a row asks for
it, looks at arguments. So a call that is always allowed is decided by number and architecture alone: the kernel notices that
when the filter is attached and never runs the filter for such a call (`seccomp_is_const_allow`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from errno import ENOSYS

from ..syscalls.decision import ALL_BITS, ALLOW, Bits, Decision, Errno, Outcome, Switch, Word
from ..syscalls.row import complete_triggers
from ..syscalls.table import by_number
from . import bpf
from .bpf import Assembler, Instruction, Label

RET_KILL_PROCESS = 0x8000_0000
RET_USER_NOTIF = 0x7FC0_0000
RET_ALLOW = 0x7FFF_0000
RET_ERRNO = 0x0005_0000

X32_BIT = 0x4000_0000
LINEAR_CASES = 3  # up to here comparing one after the other is shorter than splitting
UNKNOWN = Errno(ENOSYS)


def build_filter(notified: frozenset[str]) -> bytes:
    """The filter as `struct sock_filter[]`, at most 4096 instructions, for these notified triggers (see `row.TRIGGERS`).

    ValueError for a name that is no trigger.
    """
    return bpf.encode(filter_program(notified))


def filter_program(notified: frozenset[str]) -> list[Instruction]:
    """The filter as instructions."""
    triggers = complete_triggers(notified)
    program = Assembler()
    native, known_abi = Label(), Label()
    program.load(bpf.ARCH_OFFSET)
    program.test(bpf.EQUAL, bpf.ARCH_X86_64, native)
    program.return_(RET_KILL_PROCESS)  # int 0x80 and 32-bit programs have other numbers: nothing below would be true of them
    program.place(native)
    program.load(bpf.NUMBER_OFFSET)
    program.test(bpf.AT_LEAST, X32_BIT, None, known_abi)
    program.return_(answer(UNKNOWN))  # x32, and -1 as left by a tracer
    program.place(known_abi)
    rules: dict[Decision, Label] = {}
    _find_number(program, _ranges(triggers), rules)
    for decision, label in rules.items():
        program.place(label)
        _decide(program, decision)
    return program.assemble()


def answer(outcome: Outcome) -> int:
    """The value a filter returns for this outcome."""
    return RET_ERRNO | outcome.errno if outcome.errno else RET_ALLOW if outcome == ALLOW else RET_USER_NOTIF


def _ranges(triggers: frozenset[str]) -> list[tuple[int, Decision]]:
    """The first number of each run of numbers with the same decision, from 0 on; numbers without a row are unknown."""
    ranges: list[tuple[int, Decision]] = []
    for number in range(max(by_number) + 2):
        decision = by_number[number].decide(triggers) if number in by_number else UNKNOWN
        if not ranges or ranges[-1][1] != decision:
            ranges.append((number, decision))
    return ranges


def _find_number(program: Assembler, ranges: Sequence[tuple[int, Decision]], rules: dict[Decision, Label]) -> None:
    """Binary search with the number in A; rules are left to labels, so that the search stays short."""
    if len(ranges) > 1:
        middle = len(ranges) // 2
        upper = Label()
        program.test(bpf.AT_LEAST, ranges[middle][0], upper)
        _find_number(program, ranges[:middle], rules)
        program.place(upper)
        _find_number(program, ranges[middle:], rules)
        return
    decision = ranges[0][1]
    if isinstance(decision, Outcome):
        program.return_(answer(decision))
    else:
        program.jump(rules.setdefault(decision, Label()))


def _decide(program: Assembler, decision: Decision) -> None:
    """A decision with everything it leads to; its answers stand at the end and are shared."""
    waiting: deque[tuple[Label | None, Decision]] = deque([(None, decision)])
    answers: dict[Outcome, Label] = {}

    def target(of: Decision) -> Label:
        if isinstance(of, Outcome):
            return answers.setdefault(of, Label())
        label = Label()
        waiting.append((label, of))
        return label

    while waiting:
        label, tested = waiting.popleft()
        if label is not None:
            program.place(label)
        if isinstance(tested, Bits):
            program.load(_offset(tested.word))
            program.test(bpf.ANY_BIT, tested.mask, target(tested.then), target(tested.otherwise))
        elif isinstance(tested, Switch):
            program.load(_offset(tested.word))
            if tested.mask != ALL_BITS:
                program.and_(tested.mask)
            cases = [(value, target(case)) for value, case in tested.cases]
            _find_case(program, cases, target(tested.default))
        else:
            raise TypeError(f"an answer is no test: {tested}")
    for outcome, place in answers.items():
        program.place(place)
        program.return_(answer(outcome))


def _find_case(program: Assembler, cases: Sequence[tuple[int, Label]], default: Label) -> None:
    """Binary search with the word in A."""
    if len(cases) > LINEAR_CASES:
        middle = len(cases) // 2
        upper = Label()
        program.test(bpf.AT_LEAST, cases[middle][0], upper)
        _find_case(program, cases[:middle], default)
        program.place(upper)
        _find_case(program, cases[middle:], default)
        return
    for index, (value, label) in enumerate(cases):
        program.test(bpf.EQUAL, value, label, default if index == len(cases) - 1 else None)


def _offset(word: Word) -> int:
    return bpf.ARGUMENTS_OFFSET + 8 * word.argument + (4 if word.high else 0)
