"""Fixtures every folder of tests may use: VMs that are closed again, small C programs, and a look for leftovers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from hypothesis import settings

from tests.built_once import built_once

if TYPE_CHECKING:
    from callgate import VM

# Examples are not kept between runs: the clone may belong to somebody else, and a failure prints how to repeat it.
settings.register_profile("callgate", database=None, deadline=None, print_blob=True)
settings.load_profile("callgate")

__all__ = ["built_once"]

PROJECT: Final = Path(__file__).resolve().parents[1]
SETTLE_SECONDS: Final = 5.0  # how long the kernel may take to be done with what was just ended


@pytest.fixture(scope="session")
def project() -> Path:
    """The top of the source tree."""
    return PROJECT


class Leftovers(NamedTuple):
    """What a test could leave behind in this process and on this host."""

    descriptors: Counter[str]
    threads: int
    mounts: tuple[str, ...]
    children: frozenset[int]


def _descriptors() -> Counter[str]:
    targets: Counter[str] = Counter()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue  # the listing's own descriptor
        # The number in "pipe:[4242]" tells nothing about whether there is one more than before.
        targets[target.partition(":[")[0]] += 1
    return targets


def _children() -> frozenset[int]:
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            pids.update(int(pid) for pid in (task / "children").read_text().split())
    return frozenset(pids)


def _look() -> Leftovers:
    mounts = tuple(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return Leftovers(_descriptors(), len(os.listdir("/proc/self/task")), mounts, _children())


def _differences(before: Leftovers, after: Leftovers) -> list[str]:
    found: list[str] = []
    if more := after.descriptors - before.descriptors:
        found.append(f"descriptors left open: {dict(more)}")
    if after.threads > before.threads:
        found.append(f"{after.threads - before.threads} threads left running")
    if after.mounts != before.mounts:
        found.append(f"mounts changed: {sorted(set(after.mounts) ^ set(before.mounts))}")
    if more_children := after.children - before.children:
        found.append(f"child processes left: {sorted(more_children)}")
    return found


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Fails the test that leaves a descriptor, thread, mount or child process behind."""
    before = _look()
    yield
    deadline = time.monotonic() + SETTLE_SECONDS
    while (found := _differences(before, _look())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not found, "; ".join(found)


@pytest.fixture
def vm_factory(leaves_nothing: None) -> Iterator[Callable[..., VM]]:  # noqa: ARG001
    """Makes VMs (arguments as of `callgate.VM`), closes them after the test and looks for leftovers."""
    from callgate import VM

    made: list[VM] = []

    def make(*args: Any, **kwargs: Any) -> VM:
        vm = VM(*args, **kwargs)
        made.append(vm)
        return vm

    yield make
    for vm in reversed(made):
        vm.close()


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles C source text, or a file, to a program; the same source is compiled once a session.

    `static=True` needs nothing of the VM's root: such a program starts in an empty one too.
    """
    folder = tmp_path_factory.mktemp("programs")

    def compile_one(source: str | Path, *, static: bool = True, flags: tuple[str, ...] = ()) -> Path:
        text = source.read_text() if isinstance(source, Path) else source
        options = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-pthread", *(["-static"] if static else []), *flags]
        name = hashlib.sha256("\0".join([text, *options]).encode()).hexdigest()[:16]
        program = folder / name
        if not program.exists():
            command = ["gcc", *options, "-x", "c", "-", "-o", str(program)]
            done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
            assert done.returncode == 0, f"a test program does not compile:\n{done.stderr}"
        return program

    return compile_one
