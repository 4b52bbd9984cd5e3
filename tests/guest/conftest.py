"""A supervisor that runs programs on the bare host, so that guests can be tested where no VM can be made."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from callgate.kernel.launch import Supervisor
from callgate.kernel.plan import compile_plan
from callgate.scopes import Policy

_FAKE = Path(__file__).resolve().parents[1] / "kernel" / "fake_supervisor.py"


@pytest.fixture
def supervisor(tmp_path_factory: pytest.TempPathFactory, leaves_nothing: None) -> Iterator[Supervisor]:  # noqa: ARG001
    fake = SimpleNamespace(**runpy.run_path(str(_FAKE)))
    program = fake.executable(tmp_path_factory.mktemp("supervisor"), fake.proper)
    started = Supervisor.start(compile_plan(Policy.parse()), executable=program)
    yield started
    started.close()
