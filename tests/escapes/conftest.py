"""Makes the fixtures of real VMs, and an attempt made three ways, known to the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.built_once import BuiltOnce
from tests.escapes.races.damaged import Mistakes, build_damaged, build_supervisor, in_place
from tests.escapes.three_ways import ThreeWays
from tests.vm_fixtures import Probe, dynamic_probe, host_dir, probe

if TYPE_CHECKING:
    from callgate import VM

__all__ = ["dynamic_probe", "host_dir", "probe"]


@pytest.fixture
def three_ways(vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> ThreeWays:
    return ThreeWays(vm_factory, probe, host_dir)


@pytest.fixture
def damaged(built_once: BuiltOnce, tmp_path: Path) -> Callable[[Mistakes], AbstractContextManager[None]]:
    """A block in which the VMs that are made have a supervisor with mistakes."""
    return lambda mistakes: in_place(build_damaged(tmp_path, mistakes, built_once("sound-supervisor", build_supervisor)))
