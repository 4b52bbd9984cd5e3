"""Each system call that is judged as fs has cases here: against the bare host, and refused."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from callgate.kernel.syscalls.table import by_name
from tests.syscalls.comparison import Case

MODULES: Final = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py") if path.stem != Path(__file__).stem)
#: The host answers these otherwise than a VM ever does: tests of their own say what is answered.
NOT_COMPARED: Final = {
    "test_name_to_handle_at": {"name_to_handle_at"},
    "test_mount": {
        *("mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount"),
        *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    },
}
#: Notified, but no policy has a say in them: test_handed_over.
UNJUDGED: Final = {"fs_lock"}
HANDLED: Final = {name: row.handler for name, row in by_name.items() if row.handler}
JUDGED: Final = sorted(name for name, handler in HANDLED.items() if handler.startswith("fs_") and handler not in UNJUDGED)


def module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.syscalls.{name}")


def all_cases() -> list[Case]:
    return [case for name in MODULES for case in getattr(module(name), "CASES", {}).values()]


@pytest.mark.parametrize("name", JUDGED)
def test_a_judged_call_is_compared_with_the_host_and_refused(name: str) -> None:
    apart = [stem for stem, names in NOT_COMPARED.items() if name in names]
    if apart:
        assert f'call("{name}"' in inspect.getsource(module(apart[0]))
        return
    about = [case for case in all_cases() if any(step[0] == name for step in case.steps)]
    assert any(not case.judged_as for case in about)  # an answer that no rule changes: a bad argument, say
    assert any(case.judged_as and case.steps[-1][0] == name for case in about)


def test_the_table_has_calls_that_are_judged() -> None:
    assert len(JUDGED) > 70
