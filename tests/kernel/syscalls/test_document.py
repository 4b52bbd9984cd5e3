"""docs/syscalls.md is what the table says."""

from __future__ import annotations

from pathlib import Path

from callgate.kernel.syscalls.document import generate
from callgate.kernel.syscalls.table import SYSCALLS


def test_the_page_is_up_to_date(project: Path) -> None:
    command = "python -m callgate.kernel.syscalls.document > docs/syscalls.md"
    assert (project / "docs" / "syscalls.md").read_text() == generate(), f"out of date: run {command}"


def test_the_page_names_every_call_once() -> None:
    rows = [line.split(" | ") for line in generate().splitlines() if line.startswith("| ")]
    named = [(int(cells[0].removeprefix("| ")), cells[1].strip("`")) for cells in rows if cells[0][2:].isdigit()]
    assert sorted(named) == [(row.number, row.name) for row in SYSCALLS]


def test_every_table_line_has_as_many_cells_as_its_head() -> None:
    width = 0
    for line in generate().splitlines():
        cells = line.count("|")
        if not cells:
            width = 0
        else:
            width = width or cells
            assert cells == width, line
