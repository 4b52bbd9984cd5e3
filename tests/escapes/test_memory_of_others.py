"""Who may not trace a process does not have its memory through /proc either, though it may look at the rest there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

PROGRAM = """
import os, sys
base = f"/proc/{sys.argv[1]}"
def attempt(path, flags):
    try: fd = os.open(f"{base}/{path}", flags)
    except OSError as error: return error.errno
    os.close(fd)
    return 0
print(attempt("mem", os.O_RDONLY), attempt(f"task/{sys.argv[1]}/mem", os.O_RDONLY),
      attempt("fd/0", os.O_RDONLY), attempt("comm", os.O_RDONLY), len(os.stat(f"{base}/mem")))
own = os.open("/proc/self/mem", os.O_RDONLY)
"""


def allowing(*rules: tuple[str, str]) -> dict[str, object]:
    return {"process": {"default": "allow", "rules": [{"mode": mode, "patterns": [pattern]} for mode, pattern in rules]}}


@pytest.mark.parametrize(
    ("permissions", "answers"),
    [
        (None, "0 0 0 0 10"),
        (allowing(("deny", "ptrace")), "13 13 13 0 10"),
        (allowing(("deny", "ptrace*")), "13 13 13 0 10"),
        (allowing(("deny", "*"), ("allow", "inspect")), "13 13 13 0 10"),
        (allowing(("deny", "inspect:1"), ("allow", "ptrace")), "0 0 13 0 10"),
        (allowing(("deny", "kill")), "0 0 0 0 10"),
    ],
    ids=["control", "no-tracing", "by-wildcard", "inspecting-alone", "named", "another-action"],
)
def test_memory_is_had_by_whoever_may_trace(
    vm_factory: Callable[..., VM], permissions: dict[str, object] | None, answers: str
) -> None:
    vm = vm_factory(permissions=permissions)
    with vm.spawn(["cat"]) as victim:
        result = vm.run(["python3", "-c", PROGRAM, str(victim.pid)], timeout=30)
        assert (result.stdout.strip(), result.stderr) == (answers, "")
        if answers.startswith("13"):
            assert [denial.subject for denial in result.denials[:2]] == [f"ptrace:{victim.pid}"] * 2
        victim.communicate(timeout=30)
