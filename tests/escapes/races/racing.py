"""Runs a race in a VM, and the same race under a supervisor that makes the classic mistake, which must lose it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.vm_fixtures import as_ordinary_user

if TYPE_CHECKING:
    from callgate import VM

RACE = "/opt/race"


class Length(NamedTuple):
    """A race ends after so many rounds or seconds, whichever is first."""

    rounds: int
    seconds: int


SHORT = Length(10_000, 2)
HEADLINE = Length(100_000, 600)
LENGTHS = [pytest.param(SHORT, id="short"), pytest.param(Length(10_000_000, 10), id="ten-seconds", marks=pytest.mark.slow)]


class Tally(NamedTuple):
    """What came of a race; see programs/race.c."""

    rounds: int
    allowed: int
    refused: int
    wrong: int
    other: int
    last_errno: int


def race_in_vm(vm: VM, flipper: str, operation: str, length: Length, *arguments: str) -> Tally:
    """A race in *vm*, which must have the program at RACE."""
    command = [RACE, flipper, operation, str(length.rounds), str(length.seconds), *arguments]
    result = vm.run(command, timeout=length.seconds + 60)
    assert (result.returncode, result.stderr) == (0, "")
    return Tally(*map(int, result.stdout.split()))


def assert_never_wrong(tally: Tally) -> None:
    """Both sides were met, the forbidden one never went through, and no call failed in a way of its own."""
    assert tally.wrong == 0
    assert tally.allowed > 0
    assert tally.refused > 0
    assert (tally.other, tally.last_errno) == (0, 0)


class Control:
    """The unsafe supervisor on the bare host, in a directory of its own."""

    def __init__(self, supervisor: Path, race: Path, folder: Path) -> None:
        self.folder = folder
        for source, name in ((supervisor, "unsafe"), (race, "race")):
            shutil.copy(source, folder / name)
            (folder / name).chmod(0o755)

    def race(self, denied_path: str, denied_port: int, flipper: str, operation: str, *arguments: str) -> Tally:
        """A short race; it stops early enough, and is long enough to be won many times."""
        race = [str(self.folder / "race"), flipper, operation, str(SHORT.rounds), str(SHORT.seconds), *arguments]
        command = as_ordinary_user([str(self.folder / "unsafe"), denied_path, str(denied_port), *race])
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SHORT.seconds + 60, cwd=self.folder)
        assert (done.returncode, done.stderr) == (0, "")
        return Tally(*map(int, done.stdout.split()))

    def write(self, name: str, content: bytes, mode: int = 0o644) -> str:
        """A file of the ordinary user's in the folder; its path."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        if os.geteuid() == 0:
            for made in (path.parent, path):
                os.chown(made, 65534, 65534)
        return str(path)


def free_ports(count: int) -> list[int]:
    """Ports of the host's loopback that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports: list[int] = [one.getsockname()[1] for one in sockets]
    return ports
