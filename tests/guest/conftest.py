"""A supervisor that runs programs on the bare host, so that guests can be tested where no VM can be made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from callgate.kernel.launch import Supervisor
from callgate.kernel.plan import compile_plan
from callgate.scopes import Policy
from tests.kernel import fake_supervisor


@pytest.fixture
def supervisor(tmp_path_factory: pytest.TempPathFactory, leaves_nothing: None) -> Iterator[Supervisor]:  # noqa: ARG001
    program = fake_supervisor.executable(tmp_path_factory.mktemp("supervisor"), fake_supervisor.proper)
    plan = replace(compile_plan(Policy.parse()), listeners=())  # this supervisor makes no sockets inside a VM
    started = Supervisor.start(plan, executable=program)
    yield started
    started.close()
