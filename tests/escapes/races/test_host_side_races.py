"""`vm.fs` against a guest that changes what a name leads to meanwhile: the host gets the file that was judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from callgate import PermissionDenied
from tests.escapes.races.racing import RACE
from tests.vm_fixtures import deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

READS = 3000


@contextmanager
def exchanging_links(vm: VM) -> Iterator[None]:
    """A guest that exchanges /w/l1, which leads to an allowed file, with /w/l2, which leads to a denied one, all the time."""
    assert vm.run("ln -s a /w/l1; ln -s s /w/l2").returncode == 0
    reader, writer = os.pipe()
    process = vm.start([RACE, "thread", "links", "1000000000", "600", "/w/l1", "/w/l2"], (reader, writer, writer))
    try:
        yield
    finally:
        process.kill_tree()
        while process.next_event() is not None:
            pass
        process.close()
        os.close(reader)
        os.close(writer)


def test_reading_from_the_host_never_gives_denied_content(
    vm_factory: Callable[..., VM], race_files: dict[str, bytes | str]
) -> None:
    vm = vm_factory(permissions=deny("/w/s"), files=race_files)
    seen: set[bytes | None] = set()
    with exchanging_links(vm):
        for _ in range(READS):
            try:
                seen.add(vm.fs.read_bytes("/w/l1"))
            except PermissionDenied:
                seen.add(None)
    assert seen == {b"public", None}


def test_control_looking_first_and_reading_then_does_give_it(
    vm_factory: Callable[..., VM], race_files: dict[str, bytes | str]
) -> None:
    """The same race against the mistake: judge what the link leads to, then read by the link's name."""
    vm = vm_factory(permissions=deny("/w/s"), files=race_files)
    files = vm.fs.unchecked
    seen: set[bytes] = set()
    with exchanging_links(vm):
        for _ in range(READS):
            if files.readlink("/w/l1") == "a":
                seen.add(files.read_bytes("/w/l1"))
            if b"secret" in seen:
                break
    assert b"secret" in seen
