"""The assembler writes what was meant, whatever the distances, and refuses what the kernel would refuse."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.kernel.confinement import bpf
from callgate.kernel.confinement.bpf import Assembler, Instruction, Label

WORDS = st.sampled_from([0, 1, 2, 3, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF]) | st.integers(0, 0xFFFF_FFFF)


class Step(NamedTuple):
    """A step of a program as one would write it down: targets are numbers of steps, far or near."""

    code: int
    k: int = 0
    then: int | None = None
    otherwise: int | None = None
    gap: int = 0  # so many instructions that change nothing follow, to push targets out of a test's reach


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Up to eleven steps with forward targets, near and far."""
    codes = draw(
        st.lists(st.sampled_from([bpf.LOAD, bpf.AND, bpf.JUMP, bpf.RETURN, *sorted(bpf.TESTS)]), min_size=1, max_size=10)
    )
    last = len(codes)
    steps: list[Step] = []
    for index, code in enumerate(codes):
        target = st.integers(index + 1, last)
        steps.append(
            Step(
                code,
                draw(st.integers(0, 15)) * 4 if code == bpf.LOAD else draw(WORDS),
                draw(target) if code == bpf.JUMP else draw(st.none() | target) if code in bpf.TESTS else None,
                draw(st.none() | target) if code in bpf.TESTS else None,
                draw(st.sampled_from([0, 0, 0, 1, 120, 252, 253, 254, 255, 256, 300])),
            )
        )
    return [*steps, Step(bpf.RETURN, draw(WORDS))]


def assemble(steps: Sequence[Step]) -> list[Instruction]:
    program = Assembler()
    labels = [Label() for _ in steps]
    for index, (code, k, then, otherwise, gap) in enumerate(steps):
        program.place(labels[index])
        if code == bpf.LOAD:
            program.load(k)
        elif code == bpf.AND:
            program.and_(k)
        elif code == bpf.RETURN:
            program.return_(k)
        elif code == bpf.JUMP:
            assert then is not None
            program.jump(labels[then])
        else:
            program.test(code, k, None if then is None else labels[then], None if otherwise is None else labels[otherwise])
        for _ in range(gap):
            program.and_(0xFFFF_FFFF)
    return program.assemble()


def follow(steps: Sequence[Step], words: Sequence[int]) -> int:
    """What the steps mean, read one by one."""
    accumulator, index = 0, 0
    while True:
        code, k, then, otherwise, _ = steps[index]
        holds = {
            bpf.EQUAL: accumulator == k,
            bpf.GREATER: accumulator > k,
            bpf.AT_LEAST: accumulator >= k,
            bpf.ANY_BIT: accumulator & k != 0,
            bpf.JUMP: True,
        }.get(code)
        index += 1
        if code == bpf.RETURN:
            return k
        if code == bpf.LOAD:
            accumulator = words[k // 4]
        elif code == bpf.AND:
            accumulator = accumulator & k
        elif holds and then is not None:
            index = then
        elif holds is False and otherwise is not None:
            index = otherwise


@given(programs(), st.lists(st.lists(WORDS, min_size=16, max_size=16), min_size=1, max_size=8))
def test_an_assembled_program_answers_what_its_steps_mean(steps: list[Step], inputs: list[list[int]]) -> None:
    program = assemble(steps)
    for words in inputs:
        assert bpf.run(program, struct.pack("<16I", *words)) == follow(steps, words)


@given(programs())
def test_an_encoded_program_decodes_to_itself(steps: list[Step]) -> None:
    program = assemble(steps)
    assert bpf.decode(bpf.encode(program)) == program


@given(programs(), st.lists(WORDS, min_size=14, max_size=14), WORDS)
def test_an_answer_proved_constant_is_the_answer_for_all_arguments(steps: list[Step], others: list[int], number: int) -> None:
    program = assemble(steps)
    proved = bpf.constant_answer(program, number)
    if proved is not None:
        assert bpf.run(program, struct.pack("<16I", number, bpf.ARCH_X86_64, *others)) == proved


@pytest.mark.parametrize("gap", [0, 1, 253, 254, 255, 256, 1000])
@pytest.mark.parametrize("both", [False, True])
def test_a_test_reaches_targets_at_any_distance(gap: int, both: bool) -> None:
    steps = [Step(bpf.LOAD, 0), Step(bpf.EQUAL, 7, 3, 4 if both else None, gap)]
    steps += [Step(bpf.RETURN, 1), Step(bpf.RETURN, 2), Step(bpf.RETURN, 3)]
    program = assemble(steps)
    assert bpf.run(program, bpf.data(7)) == 2
    assert bpf.run(program, bpf.data(8)) == (3 if both else 1)


def test_an_instruction_has_the_layout_of_struct_sock_filter() -> None:
    assert bpf.encode([Instruction(bpf.EQUAL, 2, 3, 0xC000_003E)]) == bytes.fromhex("1500 02 03 3e0000c0")


def test_seccomp_data_has_the_layout_of_the_kernel() -> None:
    packed = bpf.data(-1, [1, 2**63, 2**64 - 1], bpf.ARCH_I386, 0x1122_3344_5566)
    assert len(packed) == bpf.DATA_SIZE
    assert struct.unpack("<iIQ6Q", packed) == (-1, 0x4000_0003, 0x1122_3344_5566, 1, 2**63, 2**64 - 1, 0, 0, 0)


def test_a_label_that_was_never_placed_is_an_error() -> None:
    program = Assembler()
    program.jump(Label())
    program.return_(0)
    with pytest.raises(ValueError, match="later step"):
        program.assemble()


def test_a_backward_jump_is_an_error() -> None:
    program, start = Assembler(), Label()
    program.place(start)
    program.load(0)
    program.jump(start)
    program.return_(0)
    with pytest.raises(ValueError, match="later step"):
        program.assemble()


def test_a_label_at_the_end_leads_nowhere() -> None:
    program, end = Assembler(), Label()
    program.test(bpf.EQUAL, 0, end)
    program.return_(0)
    program.place(end)
    with pytest.raises(ValueError, match="later step"):
        program.assemble()


def test_a_label_placed_twice_is_an_error() -> None:
    program, label = Assembler(), Label()
    program.place(label)
    with pytest.raises(ValueError, match="twice"):
        program.place(label)


def test_a_program_without_an_answer_at_its_end_is_an_error() -> None:
    program = Assembler()
    program.load(0)
    with pytest.raises(ValueError, match="runs past the end"):
        program.assemble()


def test_only_tests_can_branch() -> None:
    with pytest.raises(ValueError, match="not a test"):
        Assembler().test(bpf.RETURN, 0, Label())


@pytest.mark.parametrize("offset", [-4, 1, 62, 64, 1000])
def test_only_words_of_seccomp_data_can_be_loaded(offset: int) -> None:
    with pytest.raises(ValueError, match="no word at offset"):
        Assembler().load(offset)


@pytest.mark.parametrize("k", [-1, 2**32])
def test_only_32_bit_numbers_fit_an_instruction(k: int) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        Assembler().and_(k)


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ([], "1 to 4096"),
        ([Instruction(bpf.RETURN)] * 4097, "1 to 4096"),
        ([Instruction(0x16), Instruction(bpf.RETURN)], "unknown code"),
        ([Instruction(bpf.LOAD, k=64), Instruction(bpf.RETURN)], "no word"),
        ([Instruction(bpf.LOAD, k=2), Instruction(bpf.RETURN)], "no word"),
        ([Instruction(bpf.JUMP, k=1), Instruction(bpf.RETURN)], "past the end"),
        ([Instruction(bpf.EQUAL, 0, 1), Instruction(bpf.RETURN)], "past the end"),
        ([Instruction(bpf.EQUAL, 1, 0), Instruction(bpf.RETURN)], "past the end"),
        ([Instruction(bpf.AND)], "past the end"),
    ],
)
def test_what_the_kernel_would_refuse_is_refused(program: list[Instruction], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        bpf.check(program)


def test_half_an_instruction_is_not_a_program() -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        bpf.decode(bytes(12))


def test_an_answer_that_needs_an_argument_is_not_constant() -> None:
    program = assemble([Step(bpf.LOAD, 16), Step(bpf.EQUAL, 0, None, 2), Step(bpf.RETURN, 5)])
    assert bpf.constant_answer(program, 0) is None
    assert bpf.run(program, bpf.data(0)) == 5
