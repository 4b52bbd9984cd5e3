"""A first program gets arguments and environment of any length that Linux takes, whatever the policy has judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

ELSEWHERE = {"mode": "deny", "operations": ["*"]}
POLICIES: dict[str, dict[str, Any] | None] = {
    "nothing": None,
    "fs": {"fs": {"default": "allow", "rules": [ELSEWHERE | {"paths": ["/v/**"]}]}},
    "fs denied": {"fs": "deny"},
    "network": {"network": {"default": "allow", "rules": [ELSEWHERE | {"patterns": ["x.example"]}]}},
    "programs": {"childProcess": {"default": "allow", "rules": [ELSEWHERE | {"patterns": ["curl"]}]}},
    "processes": {"process": "deny"},
    "variables": {"env": {"default": "allow", "rules": [ELSEWHERE | {"patterns": ["SECRET"]}]}},
}
COUNT = "import os, sys; print(len(sys.argv[1]), sum(map(len, sys.argv)) > 10**6, len(os.environ['LONG']))"


@pytest.mark.parametrize("policy", POLICIES)
def test_long_words_and_many_of_them_arrive(vm_factory: Callable[..., VM], policy: str) -> None:
    vm = vm_factory(permissions=POLICIES[policy])
    words, env = ["x" * 131_000] * 10, {"LONG": "y" * 100_000}
    done = vm.run(["python3", "-c", COUNT, *words], env=env, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "131000 True 100000\n", "")
    with vm.spawn(["python3", "-c", COUNT, *words], env=env) as process:
        assert process.communicate(timeout=60) == ("131000 True 100000\n", "")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_word_that_linux_does_not_take_is_said_to_be_too_long(vm_factory: Callable[..., VM], policy: str) -> None:
    vm = vm_factory(permissions=POLICIES[policy])
    assert vm.run(["true", "x" * 132_000]).returncode == 126
    assert vm.run(["echo", "alive"]).stdout == "alive\n"
