"""A path that changes while the call is judged: what is opened, made or executed is what was judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.escapes.races.racing import HEADLINE, LENGTHS, Control, Length, assert_never_wrong, race_in_vm
from tests.vm_fixtures import deny, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

FLIPPERS = ("thread", "mapped", "sharer")
FilesOf = dict[str, "bytes | str"]


# -- a path's bytes ------------------------------------------------------------------------------------------------------


def test_a_racing_thread_never_reads_denied_content_in_100_000_rounds(vm_factory: Callable[..., VM], race_files: FilesOf) -> None:
    vm = vm_factory(permissions=deny("/w/s"), files=race_files)
    tally = race_in_vm(vm, "thread", "read", HEADLINE, "/w/a", "/w/s")
    assert tally.rounds == HEADLINE.rounds
    assert_never_wrong(tally)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_flipped_bytes_never_read_denied_content(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, length: Length
) -> None:
    vm = vm_factory(permissions=deny("/w/s"), files=race_files)
    before = tree_of(vm, "/w")
    assert_never_wrong(race_in_vm(vm, flipper, "read", length, "/w/a", "/w/s"))
    assert tree_of(vm, "/w") == before


@pytest.mark.parametrize("flipper", FLIPPERS)
def test_control_flipped_bytes_do_read_denied_content(control: Control, flipper: str) -> None:
    a, s = f"{control.folder}/a", f"{control.folder}/s"
    assert control.race(s, 1, flipper, "read", a, s).wrong > 0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_flipped_bytes_never_make_a_file_in_a_denied_folder(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, length: Length
) -> None:
    vm = vm_factory(permissions=deny("/w/ds/**", operations=["write"]), files=race_files)
    assert_never_wrong(race_in_vm(vm, flipper, "create", length, "/w/da/new", "/w/ds/new"))
    assert set(tree_of(vm, "/w/ds")) == {"/w/ds", "/w/ds/f"}
    assert "/w/da/new" in tree_of(vm, "/w/da")


def test_control_flipped_bytes_do_make_a_file_in_a_denied_folder(control: Control) -> None:
    denied = f"{control.folder}/ds"
    assert control.race(denied, 1, "thread", "create", f"{control.folder}/da/new", f"{denied}/new").wrong > 0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_flipped_flags_never_open_for_writing_or_truncate(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, length: Length
) -> None:
    vm = vm_factory(permissions=deny("/w/a", operations=["write", "truncate"]), files=race_files)
    before = tree_of(vm, "/w")
    assert_never_wrong(race_in_vm(vm, flipper, "flags", length, "/w/a"))
    assert tree_of(vm, "/w") == before


def test_control_flipped_flags_do_truncate(control: Control) -> None:
    assert control.race("/nowhere", 1, "thread", "flags", f"{control.folder}/a").wrong > 0


# -- what a path leads to ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_exchanged_links_never_lead_to_denied_content(vm_factory: Callable[..., VM], race_files: FilesOf, length: Length) -> None:
    vm = vm_factory(permissions=deny("/w/s"), files=race_files)
    assert vm.run("ln -s a /w/l1; ln -s s /w/l2").returncode == 0
    assert_never_wrong(race_in_vm(vm, "thread", "links", length, "/w/l1", "/w/l2"))


def test_control_exchanged_links_do_lead_to_denied_content(control: Control) -> None:
    (control.folder / "da/l1").symlink_to("../a")
    (control.folder / "da/l2").symlink_to("../s")
    links = [f"{control.folder}/da/l1", f"{control.folder}/da/l2"]
    assert control.race(f"{control.folder}/s", 1, "thread", "links", *links).wrong > 0


@pytest.mark.parametrize("operation", ["dirfd", "cwd"])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_changing_base_directory_never_leads_to_denied_content(
    vm_factory: Callable[..., VM], race_files: FilesOf, operation: str, length: Length
) -> None:
    vm = vm_factory(permissions=deny("/w/ds/f"), files=race_files)
    assert_never_wrong(race_in_vm(vm, "thread", operation, length, "/w/da", "/w/ds"))


@pytest.mark.parametrize("operation", ["dirfd", "cwd"])
def test_control_a_changing_base_directory_does_lead_to_denied_content(control: Control, operation: str) -> None:
    folders = [f"{control.folder}/da", f"{control.folder}/ds"]
    assert control.race(f"{control.folder}/ds/f", 1, "thread", operation, *folders).wrong > 0
