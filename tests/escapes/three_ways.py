"""An attempt made three ways: on the bare host and in a VM that refuses nothing, where it must work, and where it must not."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.vm_fixtures import ORDINARY_USER, Answer, Probe, deny, judged_but_allowed, results, tree_of

if TYPE_CHECKING:
    from callgate import VM

SECRET: Final = b"the secret of the vault\n"
PLAIN: Final = b"nothing special here\n"
FILES: Final[Mapping[str, bytes]] = {
    "secret": SECRET,
    "plain": PLAIN,
    "vault/inner": SECRET,
    "open/inner": PLAIN,
    "outer/vault/deep": SECRET,
}
IN_VM: Final = "/w"

Script = Callable[[str], list[str]]


class ThreeWays:
    """Runs scripts of raw calls, written for a directory that holds FILES, in three places."""

    def __init__(self, vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> None:
        self._vm_factory = vm_factory
        self._probe = probe
        self._host_dir = host_dir

    def on_host(self, script: Script, *, caller: str = "main") -> list[Answer]:
        """The script by an ordinary user, in a fresh directory."""
        top = self._host_dir / "w"
        for name, content in FILES.items():
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if os.geteuid() == 0:
            for path in (top, *top.rglob("*")):
                os.chown(path, ORDINARY_USER, ORDINARY_USER)
        return self._probe.on_host(script(str(top)), caller=caller, cwd=self._host_dir)

    def vm(self, permissions: dict[str, object]) -> VM:
        """A VM that holds FILES and the probe."""
        files = {f"{IN_VM}/{name}": content for name, content in FILES.items()}
        return self._vm_factory(permissions=permissions, files=self._probe.files | files)

    def where_nothing_is_refused(self, script: Script, *, caller: str = "main") -> list[Answer]:
        vm = self.vm(judged_but_allowed())
        answers = self._probe.in_vm(vm, script(IN_VM), caller=caller)
        assert vm.denials == ()
        return answers

    def where_refused(
        self, script: Script, *denied: str, operations: Iterable[str] = ("*",), caller: str = "main", preparation: int = 0
    ) -> list[Answer]:
        """The answers under a policy that denies names relative to the directory.

        No answer may hold the secret. After the first *preparation* calls, which may make links and the like, nothing may
        change; they are run twice, so they must be able to.
        """
        vm = self.vm(deny(*(f"{IN_VM}/{name}" for name in denied), operations=operations))
        lines = script(IN_VM)
        if preparation:
            self._probe.in_vm(vm, lines[:preparation], caller=caller)
        before = tree_of(vm, IN_VM)
        answers = self._probe.in_vm(vm, lines, caller=caller)
        assert tree_of(vm, IN_VM) == before
        assert not any(SECRET[:8] in output for answer in answers for output in answer.outputs)
        assert vm.run(["echo", "alive"]).stdout == "alive\n"
        return answers

    def works(self, script: Script, expected: list[int], *, caller: str = "main") -> None:
        """Both controls: the script gives *expected* on the host and in a VM that refuses nothing."""
        assert results(self.on_host(script, caller=caller)) == expected
        assert results(self.where_nothing_is_refused(script, caller=caller)) == expected

    def refused(
        self,
        script: Script,
        expected: list[int],
        *denied: str,
        operations: Iterable[str] = ("*",),
        caller: str = "main",
        preparation: int = 0,
    ) -> None:
        """The refusal: the script gives *expected*."""
        answers = self.where_refused(script, *denied, operations=operations, caller=caller, preparation=preparation)
        assert results(answers) == expected


def kind_of(answer: Answer) -> str:
    """The file type in a stat buffer."""
    return stat.filemode(int.from_bytes(answer.outputs[0][24:28], "little"))[0]
