"""A VM that has judged a million calls holds no more than one that has judged a tenth of that: descriptors, threads, memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.escapes.held import KEPT_BY_WORKERS
from tests.vm_fixtures import PROGRAMS, deny

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

SOAK: Final = "/opt/soak"
CHILDREN: Final = 4
CALLS_A_ROUND: Final = 40  # about: how many of them a policy has judged
KEPT: Final = "anon_inode:[pidfd]"  # of the last caller of each worker, as long as it is the last
MEMORY_KIB: Final = 1024  # may be added: stacks of as many workers as were ever needed at once, which the library keeps
THREADS_AT_REST: Final = 5  # the main one, two that receive and two to spare (notify.c)
SETTLE_SECONDS: Final = 20.0

PERMISSIONS: Final = deny(
    "/w/denied/**",
    childProcess={"default": "allow", "rules": [{"mode": "deny", "patterns": ["/w/**"]}]},
    process={"default": "allow", "rules": [{"mode": "deny", "patterns": ["kill:1"]}]},
)


class Held(NamedTuple):
    """What a supervisor holds."""

    descriptors: int
    threads: int
    memory_kib: int
    with_those_kept: int

    @classmethod
    def by(cls, pid: int) -> Held:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        folder = Path(f"/proc/{pid}/fd")
        every = folder.stat().st_size  # which is how many there are (Linux 6.2): what is in it only root can see
        kept = sum(os.readlink(link) == KEPT for link in folder.iterdir()) if os.geteuid() == 0 else 0
        return cls(every - kept, int(status["Threads"]), int(status["VmRSS"].split()[0]), every)


def soak_until(vm: VM, calls: int) -> None:
    """Have judged calls made until that many were."""
    while (left := calls - vm.status().calls_notified) > 0:
        rounds = max(left // (CALLS_A_ROUND * CHILDREN * 2), 10)
        result = vm.run([SOAK, str(rounds), str(CHILDREN), "/w"], timeout=1200)
        assert (result.returncode, result.stderr) == (0, "")


def at_rest(vm: VM, at_most: Held | None = None) -> Held:
    """What the supervisor holds once workers too many have gone; they go after a call."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        assert vm.run("for n in 1 2 3 4 5 6 7 8 9; do test -e /w/n; done; true").returncode == 0
        held = Held.by(vm.status().supervisor_pid)
        settled = held.threads <= THREADS_AT_REST and (at_most is None or held.descriptors <= at_most.descriptors)
        if settled or time.monotonic() > deadline:
            return held


@pytest.mark.parametrize(
    ("first", "last"),
    [pytest.param(5_000, 25_000, id="short"), pytest.param(100_000, 1_000_000, marks=pytest.mark.slow, id="a-million")],
)
def test_nothing_adds_up(vm_factory: Callable[..., VM], compile_c: Callable[..., Path], first: int, last: int) -> None:
    program = compile_c(PROGRAMS / "soak.c").read_bytes()
    vm = vm_factory(permissions=PERMISSIONS, files={SOAK: program, "/w/denied/x": b"secret"})
    soak_until(vm, first)
    early = at_rest(vm)
    soak_until(vm, last)
    late = at_rest(vm, early)
    assert vm.status().calls_notified >= last
    assert (early.threads <= THREADS_AT_REST, late.threads <= THREADS_AT_REST) == (True, True)
    if os.geteuid() == 0:
        assert late.descriptors == early.descriptors
    assert late.with_those_kept <= early.with_those_kept + KEPT_BY_WORKERS
    assert late.memory_kib <= early.memory_kib + MEMORY_KIB
    assert vm.fs.unchecked.listdir("/w") == ["denied"]
    assert vm.fs.unchecked.read_bytes("/w/denied/x") == b"secret"
