"""Cases of system calls, run on the bare host by an ordinary user, in a VM that judges every call, and where they are refused.

The bare host is the oracle: in a VM that refuses nothing every call gives the same result and errno and leaves the same tree.
Under a policy that refuses the operation a case is about, its last step gives EACCES and nothing changes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.syscalls import driver
from tests.vm_fixtures import ORDINARY_USER, as_ordinary_user, deny, judged_but_allowed, tree_of

if TYPE_CHECKING:
    from callgate import VM

AT: Final = -100  # AT_FDCWD
SYMLINK_FOLLOW, SYMLINK_NOFOLLOW, EMPTY_PATH, REMOVEDIR, EACCESS = 0x400, 0x100, 0x1000, 0x200, 0x200
LONG_NAME: Final = "n" * 256  # one byte more than a name may have

DRIVER: Final = Path(__file__).with_name("driver.py")
IN_VM: Final = "/opt/driver.py"
TREE: Final = "/w/tree"
FILESYSTEM: Final = "/dev/shm"  # a tmpfs, as the VM's root is: file systems differ in what they support


class Fd(NamedTuple):
    """The descriptor that an earlier step of the case gave."""

    step: int


class FdPath(NamedTuple):
    """/proc/self/fd/ and that number."""

    step: int


class Raw(NamedTuple):
    """Bytes in memory."""

    content: bytes


class Words(NamedTuple):
    """64-bit words in memory: a structure of numbers and addresses."""

    words: tuple[object, ...]


class Out(NamedTuple):
    """A buffer for the call to fill."""

    size: int


class Bad(NamedTuple):
    """An address where nothing is mapped."""


Step = tuple[Any, ...]


class Case(NamedTuple):
    """One claim: steps, and the operation that, if it is denied, refuses the last of them."""

    steps: tuple[Step, ...]
    judged_as: str = ""


def case(*steps: Step, judged_as: str = "") -> Case:
    """Steps that end with the call the case is about."""
    return Case(steps, judged_as)


def _encoded(argument: object) -> object:
    match argument:
        case Fd(step):
            return {"fd": step}
        case FdPath(step):
            return {"path": step}
        case Raw(content):
            return {"raw": content.hex()}
        case Words(words):
            return {"words": [_encoded(word) for word in words]}
        case Out(size):
            return {"out": size}
        case Bad():
            return {"bad": 1}
    return argument


def _order(top: str, cases: Iterable[Case], *, fresh: bool) -> str:
    encoded = [[[step[0], *map(_encoded, step[1:])] for step in one.steps] for one in cases]
    return json.dumps({"top": top, "fresh": fresh, "cases": encoded})


class Comparison:
    """The answers to all cases of a module, from the host and from a VM that refuses nothing, in a directory of one name."""

    def __init__(self, cases: Mapping[str, Case]) -> None:
        with _host_folder() as folder:
            order = _order(str(folder), cases.values(), fresh=True)
            self.host = dict(zip(cases, _on_host(folder, order), strict=True))
            self.vm = dict(zip(cases, _in_vm(folder, order), strict=True))


@contextmanager
def _host_folder() -> Iterator[Path]:
    place = FILESYSTEM if os.access(FILESYSTEM, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="bare-host-", dir=place))
    try:
        folder.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(folder, ORDINARY_USER, ORDINARY_USER)
        yield folder
    finally:
        for top, folders, _ in os.walk(folder):
            for name in folders:  # some were made under a umask that closes them to their owner as well
                if not Path(top, name).is_symlink():
                    Path(top, name).chmod(0o700)
        shutil.rmtree(folder)


def _on_host(folder: Path, order: str) -> list[Any]:
    program = os.fspath(shutil.copy(DRIVER, folder / "driver.py"))
    command = as_ordinary_user(["/usr/bin/python3", "-IS", program])
    done = subprocess.run(command, input=order, capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    answers: list[Any] = json.loads(done.stdout)
    return answers


def _in_vm(folder: Path, order: str) -> list[Any]:
    from callgate import VM

    with VM(permissions=judged_but_allowed(), files={IN_VM: DRIVER.read_bytes()}) as vm:
        vm.fs.unchecked.mkdir(str(folder), parents=True)
        return _drive(vm, order, "/")


def _drive(vm: VM, order: str, cwd: str) -> list[Any]:
    done = vm.run(["/usr/bin/python3", "-IS", IN_VM], input=order, cwd=cwd, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    answers: list[Any] = json.loads(done.stdout)
    return answers


@contextmanager
def vm_with_tree(operation: str) -> Iterator[VM]:
    """A VM with the tree of the cases, in which *operation* is refused on all of it."""
    from callgate import VM

    with VM(permissions=deny(f"{TREE}/**", operations=[operation]), files={IN_VM: DRIVER.read_bytes()}) as vm:
        files = vm.fs.unchecked
        files.mkdir(TREE, parents=True)
        for name, mode in driver.DIRECTORIES.items():
            files.mkdir(f"{TREE}/{name}")
            files.chmod(f"{TREE}/{name}", mode)
        for name, mode in driver.FILES.items():
            files.write_text(f"{TREE}/{name}", f"content of {name}\n")
            files.chmod(f"{TREE}/{name}", mode)
        files.write_bytes(f"{TREE}/empty", b"")
        for name, text in {**driver.LINKS, "absolute": f"{TREE}/file"}.items():
            files.symlink(text, f"{TREE}/{name}")
        yield vm


def refusals(cases: Mapping[str, Case], operation: str) -> dict[str, Any]:
    """What the last step of each case about *operation* gives where that is refused; the tree must not have changed."""
    about = {name: one for name, one in cases.items() if one.judged_as == operation}
    assert about
    with vm_with_tree(operation) as vm:
        before = tree_of(vm, TREE)
        answers = _drive(vm, _order(TREE, about.values(), fresh=False), TREE)
        assert tree_of(vm, TREE) == before
        assert {denial.operation for denial in vm.denials} == {operation}
        assert all(denial.subject.startswith(TREE) for denial in vm.denials)
    return {name: answer["steps"][-1] for name, answer in zip(about, answers, strict=True)}


def operations(cases: Mapping[str, Case]) -> list[str]:
    """The operations that cases are about."""
    return sorted({one.judged_as for one in cases.values() if one.judged_as})
