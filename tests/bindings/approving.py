"""What the tests of approvals share: somebody who answers, calls that wait, and a look into journals."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callgate.bindings.approval_requests import (
    ApprovalOption,
    Kind,
)
from callgate.bindings.approvals import Approvals
from callgate.bindings.host_call import call_here
from callgate.bindings.registry import BindingRegistry, Offer
from tests.bindings.conftest import SECONDS


def options(*kinds: Kind) -> tuple[ApprovalOption, ...]:
    return tuple(ApprovalOption(f"o{number}", kind, kind) for number, kind in enumerate(kinds))


def call(binding: Offer, name: str = "rm", **arguments: Any) -> Any:
    """Calls a binding as the host does."""
    return call_here(BindingRegistry({name: binding})[name], (), arguments, lambda: None)


def answering(option_id: str, **arguments: Any) -> Approvals:
    """Approvals that ask somebody who always answers the same."""
    made: list[Approvals] = []
    made.append(Approvals("ask", on_request=lambda request: made[0].answer(request.id, option_id), **arguments))
    return made[0]


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def told(journal: Path) -> list[tuple[str, int]]:
    return [(line["event"], line.get("id", 0)) for line in lines(journal)]


class Caller:
    """A call from the host in a thread of its own."""

    def __init__(self, binding: Offer, name: str = "rm", **arguments: Any) -> None:
        self.outcome: Any = None
        self.thread = threading.Thread(target=self._run, args=(binding, name, arguments), daemon=True)
        self.thread.start()

    def _run(self, binding: Offer, name: str, arguments: dict[str, Any]) -> None:
        try:
            self.outcome = call(binding, name, **arguments)
        except Exception as error:  # noqa: BLE001 - what the test looks at
            self.outcome = error

    def result(self) -> Any:
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()
        return self.outcome
