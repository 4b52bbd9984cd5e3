"""The racing programs, compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.escapes.races.racing import RACE, Control
from tests.vm_fixtures import PROGRAMS

EXITS_WITH = "int main(void) { return %d; }"


@pytest.fixture(scope="session")
def race_files(compile_c: Callable[..., Path]) -> dict[str, bytes | str]:
    """What a VM needs to hold a race: the program, two files and two directories that must not be mistaken for each other."""
    return {
        RACE: compile_c(PROGRAMS / "race.c").read_bytes(),
        "/w/a": b"public",
        "/w/s": b"secret",
        "/w/da/f": b"public",
        "/w/ds/f": b"secret",
        "/w/xa": compile_c(EXITS_WITH % 40).read_bytes(),
        "/w/xs": compile_c(EXITS_WITH % 41).read_bytes(),
    }


@pytest.fixture
def control(compile_c: Callable[..., Path], host_dir: Path) -> Control:
    """The same on the bare host, under a supervisor that can be raced."""
    made = Control(compile_c(PROGRAMS / "unsafe_supervisor.c"), compile_c(PROGRAMS / "race.c"), host_dir)
    made.write("a", b"public")
    made.write("s", b"secret")
    made.write("da/f", b"public")
    made.write("ds/f", b"secret")
    made.write("xa", compile_c(EXITS_WITH % 40).read_bytes(), 0o755)
    made.write("xs", compile_c(EXITS_WITH % 41).read_bytes(), 0o755)
    return made
