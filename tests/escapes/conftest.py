"""Makes the fixtures of real VMs, and an attempt made three ways, known to the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.escapes.three_ways import ThreeWays
from tests.vm_fixtures import Probe, dynamic_probe, host_dir, probe

if TYPE_CHECKING:
    from callgate import VM

__all__ = ["dynamic_probe", "host_dir", "probe"]


@pytest.fixture
def three_ways(vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> ThreeWays:
    return ThreeWays(vm_factory, probe, host_dir)
