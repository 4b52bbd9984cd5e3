"""Does a scenario in a VM and in the model, and gives what each saw in one form."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from callgate.kernel.plan import compile_plan
from callgate.scopes import Policy, PolicyWarning
from tests.model.machine import Machine
from tests.model.nodes import Directory, Spec, below, grow
from tests.model.scenarios import TOP, TOP_LEVEL, Call, Scenario
from tests.syscalls import driver
from tests.vm_fixtures import Entry, tree_of

if TYPE_CHECKING:
    from callgate import VM

#: Given on the command line, because a policy that denies by default would not let the guest read it from a file.
DRIVER: Final = Path(driver.__file__).read_text()
AT_FDCWD: Final = -100


class Seen(NamedTuple):
    """What came of a scenario."""

    answers: list[object]
    refusals: list[tuple[str, str]]  # operation and path
    tree: dict[str, Entry]


def in_model(scenario: Scenario, machine: type[Machine] = Machine) -> Seen:
    """By the model."""
    root, top = Directory(), Directory()
    root.adopt(TOP.strip("/"), top)
    grow(top, scenario.spec)
    # With the rules that the kernel adds, as the VM enforces and explains them.
    model = machine(root, top, compile_plan(_quietly_parsed(scenario.fs)).policy)
    answers = [model.answer(*call) for call in scenario.calls]
    return Seen(answers, _of_scenario(model.refusals), model.tree())


def _quietly_parsed(fs: dict[str, Any]) -> Policy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyWarning)
        return Policy.parse({"fs": fs})


def in_vm(scenario: Scenario) -> Seen:
    """By unmodified system calls of a Python program in a fresh VM."""
    from callgate import VM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyWarning)
        vm = VM({"fs": scenario.fs})
    with vm:
        vm.fs.unchecked.mkdir(TOP)
        plant(vm, TOP, scenario.spec)
        steps, firsts = _steps(scenario.calls)
        order = json.dumps({"top": "/unused", "fresh": False, "cases": [steps]})
        done = vm.run(["/usr/bin/python3", "-IS", "-c", DRIVER], input=order, cwd=TOP, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done
        raw = json.loads(done.stdout)[0]["steps"]
        answers = [_answer(call, raw[at:]) for call, at in zip(scenario.calls, firsts, strict=True)]
        refusals = _of_scenario([(denial.operation, denial.subject) for denial in done.denials])
        return Seen(answers, refusals, _tree(vm))


def plant(vm: VM, top: str, spec: Spec) -> None:
    """Make a tree in a VM, whatever its policy says."""
    files = vm.fs.unchecked
    for name, what in spec.items():
        path = below(top, name)
        if isinstance(what, bytes):
            files.write_bytes(path, what)
        elif isinstance(what, str):
            files.symlink(what, path)
        else:
            files.mkdir(path)
            plant(vm, path, what)


def _tree(vm: VM) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for name in sorted({*vm.fs.unchecked.listdir("/")}.intersection(TOP_LEVEL)):
        path = below("/", name)
        entries = tree_of(vm, path)
        # A link is not looked through, wherever it leads.
        found |= entries if entries[path].kind == "d" else {path: entries[path]}
    return {path: entry.without_times() for path, entry in found.items()}


def _of_scenario(refusals: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that are about the scenario's own files, not about what the driver's interpreter looked for when it started."""
    return [refusal for refusal in refusals if refusal[1].split("/")[1] in TOP_LEVEL]


def _steps(calls: Iterable[Call]) -> tuple[list[list[Any]], list[int]]:
    """The calls as steps of the driver, and the number of each call's first step."""
    steps: list[list[Any]] = []
    firsts = []
    for call in calls:
        firsts.append(len(steps))
        steps += _steps_of(call, len(steps))
    return steps, firsts


def _steps_of(call: Call, at: int) -> list[list[Any]]:
    match call:
        case "stat" | "lstat" as name, path:
            return [[name, path, {"out": 144}]]
        case "access", path:
            return [["access", path, 0]]
        case "readlink", path:
            return [["readlink", path, {"out": 256}, 256]]
        case "listdir", path:
            return [["open", path, os.O_DIRECTORY], ["getdents64", {"fd": at}, {"out": 4096}, 4096]]
        case "open", path, flags, content:
            return [["open", path, flags, 0o666], ["write", {"fd": at}, {"raw": content.hex()}, len(content)]]
        case "rename", old, new, flags:
            return [["renameat2", AT_FDCWD, old, AT_FDCWD, new, flags] if flags else ["rename", old, new]]
    return [list(call)]


def _answer(call: Call, raw: list[Any]) -> object:
    """The driver's answers to the steps of one call, as the model gives them."""
    first = raw[0]
    if isinstance(first, str):
        return first
    match call[0]:
        case "stat" | "lstat":
            shown = ("kind",) if first["kind"].startswith("d") else ("kind", "links", "size")
            return {key: first[key] for key in shown}
        case "readlink":
            return first[0]
        case "listdir":
            return raw[1] if isinstance(raw[1], str) else [name for name in raw[1] if name in (*TOP_LEVEL, ".", "..")]
        case "open":
            return {"opened": first["fd"], "read": first.get("content"), "written": raw[1]}
    return first


def difference(scenario: Scenario, model: Seen, vm: Seen) -> str:
    """The first difference in words, and what led to it; empty if there is none."""
    for number, (call, expected, got) in enumerate(zip(scenario.calls, model.answers, vm.answers, strict=True)):
        if expected != got:
            before = "\n".join(
                f"  {one} -> {answer}" for one, answer in zip(scenario.calls[:number], model.answers, strict=False)
            )
            return f"{before}\n{call}\n  model: {expected}\n  VM:    {got}"
    if model.refusals != vm.refusals:
        return f"refusals\n  model: {model.refusals}\n  VM:    {vm.refusals}"
    if model.tree != vm.tree:
        return f"tree\n  {_changes(model.tree, vm.tree)}"
    return ""


def _changes(model: Mapping[str, Entry], vm: Mapping[str, Entry]) -> str:
    return "\n  ".join(
        f"{path}: model {model.get(path)}, VM {vm.get(path)}" for path in sorted({*model, *vm}) if model.get(path) != vm.get(path)
    )
