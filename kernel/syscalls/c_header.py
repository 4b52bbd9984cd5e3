"""Makes `syscall_table.h`, which gives the supervisor its C handler for every call that can be notified."""

from __future__ import annotations

from .table import SYSCALLS


def generate() -> str:
    """The text of the header: `CG_SYSCALL_MAX`, the highest known number, and one `CG_SYSCALL(number, name, handler)` for each
    call with a handler, in the order of their numbers. Who includes it defines `CG_SYSCALL` first; the header undefines it.
    """
    lines = [
        "/* Generated from kernel/syscalls/table.py. Define CG_SYSCALL(number, name, handler) before including it. */",
        f"#define CG_SYSCALL_MAX {SYSCALLS[-1].number}",
        "#ifdef CG_SYSCALL",
        *(f"CG_SYSCALL({row.number}, {row.name}, {row.handler})" for row in SYSCALLS if row.handler),
        "#undef CG_SYSCALL",
        "#endif",
    ]
    return "\n".join(lines) + "\n"
