"""The filter gives every number the answer of its row, and foreign numbers none at all."""

from __future__ import annotations

import ctypes
import errno
import tempfile
from collections.abc import Iterable
from itertools import combinations

import pytest

from callgate.kernel.confinement import bpf
from callgate.kernel.confinement.filter import (
    RET_ALLOW,
    RET_ERRNO,
    RET_KILL_PROCESS,
    RET_USER_NOTIF,
    build_filter,
    filter_program,
)
from callgate.kernel.syscalls.decision import ALLOW, Outcome
from callgate.kernel.syscalls.row import ANY_FS, FS_TRIGGERS, TRIGGERS
from callgate.kernel.syscalls.table import SYSCALLS, by_name, by_number

BOUNDARIES = (0, 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
ENOSYS_ANSWER = RET_ERRNO | errno.ENOSYS
NUMBERS = (*range(600), 1023, 4096, 9999, 2**30 - 1)

NOTIFIED = [
    frozenset[str](),
    frozenset(TRIGGERS),
    frozenset({"network"}),
    frozenset({"childProcess"}),
    frozenset({"process"}),
    frozenset({"setid"}),
    frozenset({"network", "process", "childProcess"}),
    frozenset({"fs.read", "fs.readdir"}),
    frozenset({"fs.write", "fs.truncate", "fs.rm", "fs.create_dir"}),
    *(frozenset({trigger}) for trigger in FS_TRIGGERS),
]


def name_of(notified: Iterable[str]) -> str:
    return "+".join(sorted(notified)) or "nothing"


def constant_row_answer(number: int, notified: frozenset[str]) -> int | None:
    """What the row of a number says, without the code under test; None where arguments decide."""
    if number not in by_number:
        return ENOSYS_ANSWER
    row = by_number[number]
    if not isinstance(row.otherwise, Outcome):
        return None
    held = set(notified) | ({ANY_FS} if any(trigger.startswith("fs.") for trigger in notified) else set())
    if held.intersection(row.judged):
        return RET_USER_NOTIF
    return RET_ALLOW if row.otherwise == ALLOW else RET_ERRNO | row.otherwise.errno


@pytest.mark.parametrize("notified", NOTIFIED, ids=name_of)
def test_every_number_gets_the_answer_of_its_row_whatever_the_arguments(notified: frozenset[str]) -> None:
    program = bpf.decode(build_filter(notified))
    for number in NUMBERS:
        expected = constant_row_answer(number, notified)
        if expected is None:
            continue
        for value in BOUNDARIES:
            assert bpf.run(program, bpf.data(number, [value] * 6)) == expected, (number, value)


@pytest.mark.parametrize("notified", NOTIFIED, ids=name_of)
def test_what_is_always_allowed_is_provable_to_the_kernel(notified: frozenset[str]) -> None:
    program = filter_program(notified)
    for number in NUMBERS:
        if constant_row_answer(number, notified) == RET_ALLOW:
            assert bpf.constant_answer(program, number) == RET_ALLOW, number


def test_a_rule_without_a_question_left_is_provable_too() -> None:
    program = filter_program(frozenset())
    for name in ("open", "openat", "creat", "chmod", "fchmod", "mknod", "memfd_create"):
        assert bpf.constant_answer(program, by_name[name].number) == RET_ALLOW, name


def test_a_writable_host_directory_costs_nothing_but_where_a_mode_is_given() -> None:
    without, program = filter_program(frozenset()), filter_program(frozenset({"setid"}))
    looked_at = {
        row.name for row in SYSCALLS if bpf.constant_answer(program, row.number) != bpf.constant_answer(without, row.number)
    }
    modes = {"creat", "mknod", "mknodat", "chmod", "fchmod", "fchmodat", "fchmodat2"}
    assert looked_at == {"open", "openat", "openat2", *modes}
    assert bpf.constant_answer(program, by_name["openat2"].number) == RET_USER_NOTIF


@pytest.mark.parametrize("notified", NOTIFIED, ids=name_of)
def test_calls_of_a_foreign_architecture_kill_the_process(notified: frozenset[str]) -> None:
    program = filter_program(notified)
    foreign = (bpf.ARCH_I386, 0, 0xFFFF_FFFF, 0xC000_00B7, bpf.ARCH_X86_64 ^ 1, bpf.ARCH_X86_64 & ~0x8000_0000)
    for arch in foreign:
        for number in (*NUMBERS, 2**30, 2**30 + 1, 2**31, 2**32 - 1):
            assert bpf.run(program, bpf.data(number, arch=arch)) == RET_KILL_PROCESS


@pytest.mark.parametrize("notified", NOTIFIED, ids=name_of)
def test_x32_and_negative_numbers_fail_with_enosys(notified: frozenset[str]) -> None:
    program = filter_program(notified)
    for base in (0x4000_0000, 0x8000_0000, 0xC000_0000):
        for number in (*range(600), 0x3FFF_FFFF):
            assert bpf.run(program, bpf.data(base + number, BOUNDARIES[1:])) == ENOSYS_ANSWER
    assert bpf.run(program, bpf.data(-1)) == ENOSYS_ANSWER


def test_unknown_numbers_are_never_allowed() -> None:
    for notified in NOTIFIED:
        program = filter_program(notified)
        for number in (*range(337, 424), *range(472, 1100), 9999, 2**30 - 1):
            assert bpf.constant_answer(program, number) == ENOSYS_ANSWER


def test_the_only_answers_are_those_of_the_design() -> None:
    for notified in NOTIFIED:
        answers = {one.k for one in filter_program(notified) if one.code == bpf.RETURN}
        assert {answer for answer in answers if answer & 0xFFFF_0000 != RET_ERRNO} <= {
            RET_ALLOW,
            RET_USER_NOTIF,
            RET_KILL_PROCESS,
        }
        assert all(answer & 0xFFFF for answer in answers if answer & 0xFFFF_0000 == RET_ERRNO)
        assert (RET_USER_NOTIF in answers) == bool(notified)


def test_any_set_of_triggers_makes_a_program_the_kernel_takes() -> None:
    for size in range(3):
        for some in combinations(sorted(TRIGGERS), size):
            encoded = build_filter(frozenset(some))
            bpf.check(bpf.decode(encoded))
            assert len(encoded) // 8 < 1500  # far below 4096: the longest way stays short


def test_the_longest_way_through_the_program_is_short() -> None:
    program = filter_program(frozenset(TRIGGERS))
    longest = [0] * len(program)  # instructions from this one to an answer, itself included
    for index, one in reversed(list(enumerate(program))):
        if one.code == bpf.RETURN:
            after = 0
        elif one.code == bpf.JUMP:
            after = longest[index + 1 + one.k]
        else:
            after = max(longest[index + 1 + one.jt], longest[index + 1 + one.jf])  # both are 0 in LOAD and AND
        longest[index] = 1 + after
    assert longest[0] <= 40


def test_fs_as_a_whole_follows_from_any_of_its_operations() -> None:
    assert build_filter(frozenset({"fs.chmod"})) == build_filter(frozenset({"fs.chmod", "fs.*"}))


def test_a_name_that_is_no_trigger_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown triggers"):
        build_filter(frozenset({"fs.execute", "network"}))


def test_the_table_is_the_only_source() -> None:
    named = {row.number for row in SYSCALLS}
    program = filter_program(frozenset(TRIGGERS))
    assert {n for n in range(600) if bpf.constant_answer(program, n) != ENOSYS_ANSWER} <= named


def libseccomp_is_missing() -> bool:
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return True
    return False


@pytest.mark.skipif(libseccomp_is_missing(), reason="libseccomp.so.2 is not installed")
@pytest.mark.parametrize("notified", NOTIFIED, ids=name_of)
def test_libseccomp_decides_every_number_alike(notified: frozenset[str]) -> None:
    import pyseccomp

    theirs = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    theirs.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    actions = {RET_ALLOW: pyseccomp.ALLOW, RET_USER_NOTIF: pyseccomp.NOTIFY}
    compared = []
    for row in SYSCALLS:
        answer = constant_row_answer(row.number, notified)
        if answer is None:
            continue
        compared.append(row.number)
        if answer != ENOSYS_ANSWER:  # what is the default cannot be said again
            action = actions.get(answer, pyseccomp.ERRNO(answer & 0xFFFF))
            theirs.add_rule_exactly(action, row.number)
    with tempfile.TemporaryFile() as file:
        theirs.export_bpf(file)
        file.seek(0)
        program = bpf.decode(file.read())
    ours = filter_program(notified)
    for number in (*compared, *range(337, 424), *range(472, 600)):
        for arch in (bpf.ARCH_X86_64, bpf.ARCH_I386):
            call = bpf.data(number, arch=arch)
            assert bpf.run(ours, call) == bpf.run(program, call), (number, arch)


@pytest.mark.skipif(libseccomp_is_missing(), reason="libseccomp.so.2 is not installed")
def test_libseccomp_knows_the_numbers_under_the_same_names() -> None:
    import pyseccomp

    known = {}
    for row in SYSCALLS:
        try:
            known[row.name] = pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, row.name)
        except ValueError:
            continue  # newer than the library
    assert len(known) > 340
    assert {name: number for name, number in known.items() if number >= 0} == {
        name: by_name[name].number for name, number in known.items() if number >= 0
    }
