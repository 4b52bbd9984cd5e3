"""A name that ends as the kernel marks removed files, removed while it is judged: the verdict is on the name it had."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

import pytest

from tests.escapes.races.damaged import Mistakes
from tests.vm_fixtures import deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

FILES: Final = 600  # each can be removed once
NAME: Final = "/w/{} (deleted)"
PROGRAM: Final = """
import os, sys, threading
names = sys.argv[1].split("|")
at, read, refused, gone = -1, 0, 0, 0
def remove():
    for number, name in enumerate(names):
        while at < number: os.sched_yield()
        os.unlink(name)
thread = threading.Thread(target=remove)
thread.start()
os.chdir("/w")
for at, name in enumerate(names):
    for _ in range(8):
        try: fd = os.open(os.path.basename(name), os.O_RDONLY)
        except PermissionError: refused += 1
        except FileNotFoundError: gone += 1
        else: read += os.read(fd, 6) == b"SECRET"; os.close(fd)
thread.join()
print(read, refused, gone)
"""


def race(vm_factory: Callable[..., VM]) -> tuple[int, int]:
    """How often a file was read, and reading was refused."""
    names = [NAME.format(number) for number in range(FILES)]
    files = dict.fromkeys(names, b"SECRET")
    vm = vm_factory(permissions=deny("/w/* (deleted)", operations=["read"]), files=files)
    result = vm.run(["python3", "-c", PROGRAM, "|".join(names)], timeout=120)
    assert result.stderr == ""
    read, refused, _ = map(int, result.stdout.split())
    return read, refused


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_it_is_not_read(vm_factory: Callable[..., VM], times: int) -> None:
    for _ in range(times):
        read, refused = race(vm_factory)
        assert read == 0
        assert refused >= FILES


def test_a_supervisor_that_looks_once_is_found_out(
    vm_factory: Callable[..., VM], damaged: Callable[[Mistakes], AbstractContextManager[None]]
) -> None:
    with damaged({"resolve.c": ("const int settled = ", "const int settled = 1 | ")}):
        assert any(race(vm_factory)[0] for _ in range(10))
