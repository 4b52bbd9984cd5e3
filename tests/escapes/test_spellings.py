"""Other spellings of a denied name: the verdict is on what a name leads to (catalogue 1, 2, 4, 8 to 10, 18 to 21, 47)."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EACCES, EBADF, EFAULT, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR
from typing import TYPE_CHECKING

import pytest

from tests.escapes.three_ways import SECRET, ThreeWays
from tests.vm_fixtures import AT_FDCWD, AtPageEnd, Earlier, Out, Probe, Unterminated, call, deny, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

R, NOFOLLOW = os.O_RDONLY, os.O_NOFOLLOW
GARBAGE = (-1, 77, -100000, 0x7FFF_FFFF)


def test_by_its_plain_name(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [call("open", f"{top}/secret", R), call("read", Earlier(0), Out(64), 64)]

    three_ways.works(script, [3, len(SECRET)])
    three_ways.refused(script, [-EACCES, -EBADF], "secret")


def test_by_dots_slashes_and_detours(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        spellings = (f"{top}/./secret", f"{top}//secret", f"//{top}/secret", f"{top}/open/../secret", f"/proc/..{top}/secret")
        relative = ("../secret", "./../secret", "../open/../secret")
        opened = [call("open", spelling, R) for spelling in spellings]
        return [*opened, call("chdir", f"{top}/open"), *(call("open", spelling, R) for spelling in relative)]

    three_ways.works(script, [3, 4, 5, 6, 7, 0, 8, 9, 10])
    three_ways.refused(script, [-EACCES] * 5 + [0] + [-EACCES] * 3, "secret")


def test_above_the_root_is_the_root(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [call("open", "/../../.." + top + "/secret", R), call("open", "../" * 40 + top[1:] + "/secret", R)]

    three_ways.works(script, [3, 4])
    three_ways.refused(script, [-EACCES, -EACCES], "secret")


def test_with_a_trailing_slash_it_is_no_content(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        made = [call("symlink", "secret", f"{top}/link")]
        return [*made, call("open", f"{top}/link/", R | NOFOLLOW), call("open", f"{top}/secret/", R)]

    assert results(three_ways.on_host(script)) == [0, -ENOTDIR, -ENOTDIR]
    answers = results(three_ways.where_refused(script, "secret", preparation=1))
    assert answers[1:] == [-EACCES, -EACCES]


def test_by_a_descriptor_of_its_directory(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [
            call("open", top, R | os.O_DIRECTORY),
            call("openat", Earlier(0), "secret", R),
            call("openat", Earlier(0), "open/../vault/inner", R),
        ]

    three_ways.works(script, [3, 4, 5])
    three_ways.refused(script, [3, -EACCES, -EACCES], "secret", "vault/**")


def test_a_program_starts_with_no_descriptor_that_leads_anywhere(three_ways: ThreeWays, probe: Probe) -> None:
    vm = three_ways.vm(deny("/w/secret"))
    lines = [call("openat", number, "secret", R) for number in range(1024)]
    assert set(results(probe.in_vm(vm, lines))) == {-ENOTDIR, -EBADF}  # standard streams are no directories


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_meaningless_base_does_not_matter_to_an_absolute_name(three_ways: ThreeWays, garbage: int) -> None:
    def script(top: str) -> list[str]:
        return [call("openat", garbage, f"{top}/secret", R), call("openat", garbage, "secret", R)]

    three_ways.works(script, [3, -EBADF])
    three_ways.refused(script, [-EACCES, -EBADF], "secret")


def test_a_path_at_the_end_of_memory(three_ways: ThreeWays) -> None:
    def script(top: str) -> list[str]:
        return [
            call("open", AtPageEnd(f"{top}/secret".encode()), R),
            call("open", Unterminated(f"{top}/secret".encode()), R),
            call("open", Unterminated(b"x" * 5000), R),
            call("open", 0, R),
            call("open", 4096, R),
            call("open", 0xFFFF_FFFF_FFFF_F000, R),
            call("open", "", R),
        ]

    nothing = [-EFAULT, -ENAMETOOLONG, -EFAULT, -EFAULT, -EFAULT, -ENOENT]
    three_ways.works(script, [3, *nothing])
    three_ways.refused(script, [-EACCES, *nothing], "secret")


@pytest.mark.parametrize(("length", "answer"), [(4095, 3), (4096, -ENAMETOOLONG), (4097, -ENAMETOOLONG)])
def test_the_longest_path_is_the_kernels(three_ways: ThreeWays, length: int, answer: int) -> None:
    def script(top: str) -> list[str]:
        end = "/secret"
        return [call("open", top + "/" * (length - len(top) - len(end)) + end, R)]

    three_ways.works(script, [answer])
    three_ways.refused(script, [-EACCES if answer > 0 else answer], "secret")


@pytest.mark.parametrize("count", [39, 40, 41])
def test_a_chain_of_links(three_ways: ThreeWays, count: int) -> None:
    def script(top: str) -> list[str]:
        made = [call("symlink", f"{top}/l{n - 1}" if n else f"{top}/secret", f"{top}/l{n}") for n in range(count)]
        return [*made, call("open", f"{top}/l{count - 1}", R)]

    answer = 3 if count <= 40 else -ELOOP
    three_ways.works(script, [0] * count + [answer])
    answers = results(three_ways.where_refused(script, "secret", preparation=count))
    assert answers[-1] == (-EACCES if count <= 40 else -ELOOP)


def test_a_descriptor_is_looked_at_as_itself_and_its_path_is_judged(three_ways: ThreeWays) -> None:
    """An empty path asks what fstat(2) does of a descriptor the caller has; by its name in /proc it is a path again."""

    def script(top: str) -> list[str]:
        return [
            call("open", f"{top}/secret", os.O_WRONLY),
            call("fstat", 3, Out(144)),
            call("newfstatat", 3, "", Out(144), 0x1000),
            call("statx", 3, "", 0x1000, 0x7FF, Out(256)),
            call("newfstatat", 3, "", Out(144), 0),
            call("faccessat2", 3, "", 0, 0x1000),
            call("stat", "/proc/self/fd/3", Out(144)),
            call("stat", "", Out(144)),
        ]

    three_ways.works(script, [3, 0, 0, 0, -ENOENT, 0, 0, -ENOENT])
    three_ways.refused(script, [3, 0, 0, 0, -ENOENT, -EACCES, -EACCES, -ENOENT], "secret", operations=["stat"])


def test_a_listing_shows_names_and_can_be_gone_back_in(three_ways: ThreeWays, probe: Probe) -> None:
    """The names in a directory that may be listed are shown, denied ones too; lseek(2) on the listing is the kernel's."""

    def script(top: str) -> list[str]:
        size = 4096
        return [
            call("open", top, R | os.O_DIRECTORY),
            call("getdents64", 3, Out(size), size),
            call("getdents64", 3, Out(size), size),
            call("lseek", 3, 0, os.SEEK_SET),
            call("getdents64", 3, Out(size), size),
        ]

    names = (b"secret", b"plain", b"vault", b"open", b"outer")
    vm = three_ways.vm(deny("/w/secret", "/w/vault/**"))
    for answers in (three_ways.on_host(script), probe.in_vm(vm, script("/w"))):
        fd, first, end, start, again = answers
        assert (fd.result, end.result, start.result) == (3, 0, 0)
        assert again == first
        assert all(name + b"\0" in first.outputs[0] for name in names)
    (refused,) = results(probe.in_vm(vm, [call("open", "/w/vault", R | os.O_DIRECTORY)]))
    assert refused == -EACCES


STRANGE = {
    "newline": b"a\nb",
    "not-utf-8": b"\xff\xfe\x80",
    "control": b"\x01\x1b[31m\x7f",
    "deleted": b"x (deleted)",
    "quotes": b'it\'s "quoted"\\',
    "stars": b"*?[a-z]",
    "blank": b" ",
}


@pytest.mark.parametrize("name", STRANGE.values(), ids=STRANGE.keys())
def test_a_name_of_strange_bytes_is_matched_byte_by_byte(three_ways: ThreeWays, probe: Probe, name: bytes) -> None:
    def script(top: str) -> list[str]:
        path, beside = os.fsencode(top) + b"/vault/" + name, os.fsencode(top) + b"/open/" + name
        creating = os.O_WRONLY | os.O_CREAT
        return [call("open", path, creating, 0o600), call("open", beside, creating, 0o600), call("unlink", beside)]

    three_ways.works(script, [3, 4, 0])
    vm = three_ways.vm(deny("/w/vault/**"))
    assert results(probe.in_vm(vm, script("/w"))) == [-EACCES, 3, 0]
    (denial,) = vm.denials
    assert os.fsencode(denial.requested) == b"/w/vault/" + name
    assert not any(character < " " for character in denial.message)


def test_a_rule_on_a_strange_name_matches_just_that(vm_factory: Callable[..., VM], probe: Probe) -> None:
    vm = vm_factory(permissions=deny("/w/x (deleted)"), files=probe.files | {"/w/x (deleted)": b"", "/w/x": b""})
    assert results(probe.in_vm(vm, [call("open", "/w/x (deleted)", R), call("open", "/w/x", R)])) == [-EACCES, 3]


def test_a_removed_file_keeps_the_verdict_of_its_name(vm_factory: Callable[..., VM], probe: Probe) -> None:
    """A descriptor opened where reading was allowed; writing by /proc is judged as the name the file had."""
    permissions = deny("/w/x", operations=["write"])
    vm = vm_factory(permissions=permissions, files=probe.files | {"/w/x": b"content", "/w/y": b"content"})
    lines = [
        call("open", "/w/x", R),
        call("open", "/w/y", R),
        call("unlink", "/w/x"),
        call("unlink", "/w/y"),
        call("open", "/proc/self/fd/3", os.O_RDWR),
        call("open", "/proc/self/fd/4", os.O_RDWR),
    ]
    assert results(probe.in_vm(vm, lines)) == [3, 4, 0, 0, -EACCES, 5]


def test_a_name_is_never_probed_through_a_denied_folder(three_ways: ThreeWays) -> None:
    """What lies below a denied folder, exists or not, is one answer."""

    def script(top: str) -> list[str]:
        names = ("vault", "vault/inner", "vault/absent", "vault/inner/x", "vault/absent/x", "vault/../vault/inner")
        opened = [call("open", f"{top}/{name}", R) for name in names]
        looked = [call("newfstatat", AT_FDCWD, f"{top}/{name}", Out(144), 0) for name in names]
        made = [call("mkdir", f"{top}/{name}", 0o755) for name in names[:-1]]
        return [*opened, *looked, *made, *(call("unlink", f"{top}/{name}") for name in names)]

    answers = results(three_ways.where_refused(script, "vault/**"))
    assert answers == [-EACCES] * len(answers)
