"""A terminal that is asked for SIGIO signals its foreground, whoever's session that is, with any signal: a way around `kill`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

#: Asks the terminal that it is told for SIGKILL in place of SIGIO, in both ways there are, then waits to be told to end.
PROGRAM = """
import fcntl, os, struct, sys, termios
terminal = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
fcntl.fcntl(terminal, fcntl.F_SETSIG, 9)
def ask(act, *arguments):
    try: act(terminal, *arguments)
    except OSError as error: return error.errno
    return 0
print(*(ask(fcntl.fcntl, fcntl.F_SETFL, flags) for flags in (os.O_NONBLOCK, os.O_ASYNC)), end=" ")
print(ask(fcntl.ioctl, termios.FIOASYNC, b"\\1\\0\\0\\0"), flush=True)
print(struct.unpack("ii", fcntl.fcntl(terminal, 16, bytes(8)))[1] != 0, flush=True)  # F_GETOWN_EX: is there an owner?
sys.stdin.read()
"""
NO_SIGNALS = {"process": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["kill"]}]}}
EACCES, SIGKILL = 13, 9


def type_at(vm: VM, *, ends: bool) -> list[str]:
    """What the program says of another run's terminal; then somebody types there, which ends that run or does not."""
    with vm.spawn(["cat"], pty=True) as victim, vm.spawn(["python3", "-c", PROGRAM, "/dev/pts/0"]) as attacker:
        assert victim.stdin is not None
        assert victim.stdout is not None
        assert attacker.stdout is not None
        said = [attacker.stdout.readline().strip() for _ in range(2)]
        victim.stdin.write("hello\n")
        if ends:
            assert victim.wait(10) == -SIGKILL
        else:
            assert [victim.stdout.readline() for _ in range(2)] == ["hello\n"] * 2  # echoed, then by the program
            assert victim.poll() is None
        assert attacker.poll() is None
        attacker.kill()
        victim.kill()
        return said


def test_where_everybody_may_be_signalled_the_terminal_does_it(vm_factory: Callable[..., VM]) -> None:
    """The control: both calls succeed, the foreground group is the owner, and a key that is pressed kills it."""
    assert type_at(vm_factory(), ends=True) == ["0 0 0", "True"]


@pytest.mark.parametrize("permissions", [{"process": "deny"}, NO_SIGNALS], ids=["no-process", "no-kill"])
def test_nobody_is_signalled_by_way_of_a_terminal(vm_factory: Callable[..., VM], permissions: dict[str, object]) -> None:
    assert type_at(vm_factory(permissions=permissions), ends=False) == [f"0 {EACCES} {EACCES}", "False"]
