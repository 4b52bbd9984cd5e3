"""The racing programs, compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.escapes.races.racing import RACE, Control
from tests.vm_fixtures import PROGRAMS

EXITS_WITH = "int main(void) { return %d; }"
#: Exits with 41 if a variable that it may not see, or a value that may not be, got through.
LOOKS_AT_VARIABLES = """
#include <stdlib.h>
#include <string.h>
int main(void) {
    const char *fixed = getenv("FIX_A");
    return getenv("HID_A") || (fixed && strcmp(fixed, "a") != 0) ? 41 : 40;
}
"""


#: An interpreter that opens no script: it goes by the name it is given.
GOES_BY_NAME = """
#include <string.h>
int main(int argc, char **argv) { return argc > 1 && argv[1][strlen(argv[1]) - 1] == 'a' ? 40 : 41; }
"""


def script_for(interpreter: str) -> bytes:
    return f"#!{interpreter}\n".encode()


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
        "/w/yi": compile_c(GOES_BY_NAME).read_bytes(),
        "/w/ya": script_for("/w/yi"),
        "/w/ys": script_for("/w/yi"),
        "/w/ye": compile_c(LOOKS_AT_VARIABLES).read_bytes(),
        "/w/z": script_for("/w/l1"),
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
    made.write("yi", compile_c(GOES_BY_NAME).read_bytes(), 0o755)
    made.write("ya", script_for(f"{made.folder}/yi"), 0o755)
    made.write("ys", script_for(f"{made.folder}/yi"), 0o755)
    made.write("ye", compile_c(LOOKS_AT_VARIABLES).read_bytes(), 0o755)
    made.write("da/z", script_for(f"{made.folder}/da/l1"), 0o755)
    return made
