"""What is executed, with what arguments and variables, changes meanwhile: what runs is what was judged (catalogue 57 to 59)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.escapes.races.racing import LENGTHS, SHORT, Control, Length, assert_never_wrong, race_in_vm

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

FLIPPERS = ("thread", "mapped", "sharer")
FilesOf = dict[str, "bytes | str"]


def without(pattern: str) -> dict[str, object]:
    return {"childProcess": {"default": "allow", "rules": [{"mode": "deny", "patterns": [pattern]}]}}


# -- a program's path ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_flipped_bytes_never_run_a_denied_program(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, length: Length
) -> None:
    vm = vm_factory(permissions=without("/w/xs"), files=race_files)
    assert_never_wrong(race_in_vm(vm, flipper, "exec", length, "/w/xa", "/w/xs"))


@pytest.mark.parametrize("flipper", FLIPPERS)
def test_control_flipped_bytes_do_run_a_denied_program(control: Control, flipper: str) -> None:
    a, s = f"{control.folder}/xa", f"{control.folder}/xs"
    assert control.race(s, 1, flipper, "exec", a, s).wrong > 0


def test_a_program_that_was_killed_for_it_leaves_a_record(vm_factory: Callable[..., VM], race_files: FilesOf) -> None:
    vm = vm_factory(permissions=without("/w/xs"), files=race_files)
    assert_never_wrong(race_in_vm(vm, "thread", "exec", SHORT, "/w/xa", "/w/xs"))
    assert {denial.scope for denial in vm.denials} == {"childProcess"}
    caught = [denial for denial in vm.denials if "changed after it was judged" in denial.reason]
    assert {denial.subject for denial in caught} == {"/w/xs"}


# -- a script's path, which is an argument of its interpreter --------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_flipped_bytes_never_run_a_denied_script_of_the_same_interpreter(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, length: Length
) -> None:
    """The image is the same for both, so only the arguments tell them apart."""
    vm = vm_factory(permissions=without("/w/ys"), files=race_files)
    assert_never_wrong(race_in_vm(vm, flipper, "exec", length, "/w/ya", "/w/ys"))


@pytest.mark.parametrize("flipper", FLIPPERS)
def test_control_flipped_bytes_do_run_a_denied_script(control: Control, flipper: str) -> None:
    a, s = f"{control.folder}/ya", f"{control.folder}/ys"
    assert control.race(s, 1, flipper, "exec", a, s).wrong > 0


# -- what a path leads to ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["/w/l1", "/w/z"], ids=["the-program", "a-scripts-interpreter"])
@pytest.mark.parametrize("length", LENGTHS)
def test_exchanged_links_never_lead_to_a_denied_program(
    vm_factory: Callable[..., VM], race_files: FilesOf, length: Length, program: str
) -> None:
    vm = vm_factory(permissions=without("/w/xs"), files=race_files)
    assert vm.run("ln -s xa /w/l1; ln -s xs /w/l2").returncode == 0
    assert_never_wrong(race_in_vm(vm, "thread", "execlinks", length, "/w/l1", "/w/l2", program))


@pytest.mark.parametrize("program", ["da/l1", "da/z"], ids=["the-program", "a-scripts-interpreter"])
def test_control_exchanged_links_do_lead_to_a_denied_program(control: Control, program: str) -> None:
    links = [f"{control.folder}/da/l1", f"{control.folder}/da/l2"]
    for link, target in zip(links, ("xa", "xs"), strict=True):
        (control.folder / link).symlink_to(f"../{target}")
    assert control.race(f"{control.folder}/xs", 1, "thread", "execlinks", *links, f"{control.folder}/{program}").wrong > 0


# -- the environment -----------------------------------------------------------------------------------------------------


def env_rules(operation: str, pattern: str) -> dict[str, object]:
    return {"env": {"default": "allow", "rules": [{"mode": "deny", "operations": [operation], "patterns": [pattern]}]}}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_a_flipped_value_of_a_name_that_may_not_be_written_never_gets_through(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, length: Length
) -> None:
    vm = vm_factory(permissions=env_rules("write", "FIX_A"), files=race_files, env={"FIX_A": "a"})
    assert_never_wrong(race_in_vm(vm, flipper, "execenv", length, "FIX_A=a", "FIX_A=b", "/w/ye"))


@pytest.mark.parametrize("flipper", FLIPPERS)
def test_control_a_flipped_value_does_get_through(control: Control, flipper: str) -> None:
    assert control.race("FIX_A=b", 1, flipper, "execenv", "FIX_A=a", "FIX_A=b", f"{control.folder}/ye").wrong > 0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("flipper", FLIPPERS)
def test_a_flipped_name_that_may_not_be_read_never_gets_through(
    vm_factory: Callable[..., VM], race_files: FilesOf, flipper: str, length: Length
) -> None:
    vm = vm_factory(permissions=env_rules("read", "HID_A"), files=race_files)
    tally = race_in_vm(vm, flipper, "execenv", length, "HID_B=x", "HID_A=x", "/w/ye")
    assert (tally.wrong, tally.refused, tally.other) == (0, 0, 0)
    assert tally.allowed == tally.rounds


@pytest.mark.parametrize("flipper", FLIPPERS)
def test_control_a_flipped_name_does_get_through(control: Control, flipper: str) -> None:
    assert control.race("HID_A=x", 1, flipper, "execenv", "HID_B=x", "HID_A=x", f"{control.folder}/ye").wrong > 0
