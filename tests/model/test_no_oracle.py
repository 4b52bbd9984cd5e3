"""What a denied name is, a file or nothing at all, shows in no answer, whatever path leads over it (SPEC 3.1)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.model.execution import in_vm
from tests.model.nodes import Spec
from tests.model.scenarios import Call, Scenario

pytestmark = pytest.mark.vm

#: "secret" is the denied name; the last component of each path is not.
AROUND = [
    "secret/../b",
    "secret/./../b",
    "secret/x/../../b",
    "secret/.//x/../../b",
    "secret/x",
    "secret/x/y",
    "secret/.",
    "secret/",
]
CALLS: dict[str, tuple[Any, ...]] = {
    "stat": (),
    "lstat": (),
    "access": (),
    "readlink": (),
    "listdir": (),
    "open": (os.O_RDONLY, b""),
    "mkdir": (0o755,),
    "truncate": (0,),
    "chmod": (0o755,),
    "unlink": (),
    "rmdir": (),
}


@pytest.mark.parametrize("path", AROUND)
def test_a_denied_file_and_a_missing_one_answer_alike(path: str) -> None:
    calls: list[Call] = [(name, path, *arguments) for name, arguments in CALLS.items()]
    rule = {"mode": "deny", "operations": ["*"], "paths": ["/w/secret"]}

    def answers(spec: Spec) -> dict[str, object]:
        scenario = Scenario({"default": "allow", "rules": [rule]}, spec, tuple(calls))
        return dict(zip(CALLS, in_vm(scenario).answers, strict=True))

    assert answers({"secret": b"content"}) == answers({})
