"""The generated C header gives every judged call its handler, and can be made before the package is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from callgate.kernel.syscalls.c_header import generate
from callgate.kernel.syscalls.table import SYSCALLS, by_number


def test_each_judged_call_has_one_line_with_its_handler() -> None:
    lines = re.findall(r"^CG_SYSCALL\((\d+), (\w+), (\w+)\)$", generate(), re.MULTILINE)
    assert [(int(number), name, handler) for number, name, handler in lines] == [
        (row.number, row.name, row.handler) for row in SYSCALLS if row.handler
    ]


def test_the_highest_number_is_that_of_the_table() -> None:
    assert f"#define CG_SYSCALL_MAX {max(by_number)}\n" in generate()


def test_the_header_can_be_included_more_than_once(tmp_path: Path, compile_c: Callable[..., Path]) -> None:
    (tmp_path / "syscall_table.h").write_text(generate())
    handlers = "".join(
        f"static int {handler}(void) {{ return 1; }}\n" for handler in sorted({row.handler or "" for row in SYSCALLS} - {""})
    )
    source = f"""
#include "syscall_table.h"
#include <stdio.h>
{handlers}
static int (*const table[CG_SYSCALL_MAX + 1])(void) = {{
#define CG_SYSCALL(number, name, handler) [number] = handler,
#include "syscall_table.h"
}};
static const char *const names[CG_SYSCALL_MAX + 1] = {{
#define CG_SYSCALL(number, name, handler) [number] = #name,
#include "syscall_table.h"
}};
int main(void) {{
    for (int i = 0; i <= CG_SYSCALL_MAX; i++)
        if (table[i]) printf("%d %s %d\\n", i, names[i], table[i]());
}}
"""
    program = compile_c(source, flags=(f"-I{tmp_path}", "-Werror"))
    output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert output == "".join(f"{row.number} {row.name} 1\n" for row in SYSCALLS if row.handler)


def test_the_build_can_make_it_with_the_standard_library_alone(project: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\nfrom kernel.syscalls.c_header import generate\nsys.stdout.write(generate())"
    )
    command = [sys.executable, "-I", "-S", "-B", "-c", program, str(project)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == generate()
