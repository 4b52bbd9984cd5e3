"""What tests of real VMs share: policies, raw system calls in a VM and on the bare host, snapshots, and the command line.

The control of a refusal is the same calls made where they must succeed: on the bare host by an ordinary user, and in a VM
whose policy has rules, so that its supervisor judges the calls, but none that refuses them.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pytest

from callgate.kernel.syscalls.table import by_name

if TYPE_CHECKING:
    from callgate import VM
    from callgate.guest.result import Result

PROGRAMS: Final = Path(__file__).with_name("programs")
ORDINARY_USER: Final = 65534
AT_FDCWD: Final = -100

VAULT: Final = "/home/agentos/vault"

# -- policies --------------------------------------------------------------------------------------------------------

Permissions: TypeAlias = dict[str, object]


def deny(*paths: str, operations: Iterable[str] = ("*",), **scopes: object) -> Permissions:
    """Everything on files is allowed but these operations on these paths."""
    rule = {"mode": "deny", "operations": list(operations), "paths": list(paths)}
    return {"fs": {"default": "allow", "rules": [rule]}, **scopes}


def judged_but_allowed(**scopes: object) -> Permissions:
    """Every file operation goes to the supervisor, which refuses none but on a path that nobody uses."""
    return {**deny("/nobody/asks/for/this/**"), **scopes}


# -- raw system calls ------------------------------------------------------------------------------------------------


class Out(NamedTuple):
    """A buffer for a call to fill; its content is part of the answer."""

    size: int


class Earlier(NamedTuple):
    """What an earlier line of the same script gave, a descriptor say."""

    line: int


class Raw(NamedTuple):
    """Bytes without a NUL added."""

    content: bytes


class AtPageEnd(NamedTuple):
    """A string that ends with its NUL just before an unmapped page."""

    content: bytes


class Unterminated(NamedTuple):
    """Bytes that go on, without a NUL, into an unmapped page."""

    content: bytes


class Words(NamedTuple):
    """An array of 64-bit words in memory: a structure of pointers and numbers."""

    words: tuple[Argument, ...]


Argument: TypeAlias = "int | str | bytes | Out | Earlier | Raw | AtPageEnd | Unterminated | Words"


class Answer(NamedTuple):
    """What a raw call gave: its result (minus the errno), and what it wrote into its `Out` buffers."""

    result: int
    outputs: tuple[bytes, ...] = ()


def call(name: str | int, *arguments: Argument, i386: bool = False) -> str:
    """One line of a script for `Probe`: a system call by name or number."""
    number = by_name[name].number if isinstance(name, str) else name
    return " ".join([*(["i386"] if i386 else []), str(number), *map(_word, arguments)])


def _word(argument: Argument) -> str:
    match argument:
        case int():
            return str(argument)
        case str():
            return "s" + os.fsencode(argument).hex()
        case bytes():
            return "s" + argument.hex()
        case Out(size):
            return f"o{size}"
        case Earlier(line):
            return f"={line}"
        case Raw(content):
            return "b" + content.hex()
        case AtPageEnd(content):
            return "e" + content.hex()
        case Unterminated(content):
            return "u" + content.hex()
        case Words(words):
            return "[" + ",".join(map(_word, words)) + "]"


class Probe:
    """The program that makes raw system calls (programs/rawcalls.c), in a VM or on the bare host."""

    PATH: Final = "/opt/rawcalls"
    #: Ways to be the process that makes the calls; see the program.
    CALLERS: Final = ("main", "thread", "child", "grandchild", "sharer", "lone-fs", "survivor")

    def __init__(self, program: Path) -> None:
        self._program = program
        self.files: dict[str, bytes | str] = {self.PATH: program.read_bytes()}

    def in_vm(self, vm: VM, lines: Sequence[str], *, caller: str = "main", cwd: str | None = None) -> list[Answer]:
        """The answers to a script run in *vm*, which must have been made with `files=probe.files`."""
        done = vm.run([self.PATH, caller], input=_script(lines), cwd=cwd, timeout=60)
        return _answers(lines, done.returncode, done.stdout, done.stderr)

    def on_host(self, lines: Sequence[str], *, caller: str = "main", cwd: Path) -> list[Answer]:
        """The answers to the same script by an ordinary user of the host."""
        program = cwd / "rawcalls"
        if not program.exists():
            shutil.copy(self._program, program)
            program.chmod(0o755)
        command = as_ordinary_user([str(program), caller])
        done = subprocess.run(
            command, input=_script(lines), capture_output=True, text=True, check=False, cwd=cwd, umask=0o022, timeout=60
        )
        return _answers(lines, done.returncode, done.stdout, done.stderr)


def _script(lines: Sequence[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _answers(lines: Sequence[str], returncode: int, stdout: str, stderr: str) -> list[Answer]:
    answers = []
    for line in stdout.splitlines():
        result, *outputs = line.split(" ")
        answers.append(Answer(int(result), tuple(map(bytes.fromhex, outputs))))
    assert len(answers) == len(lines), f"{len(answers)} of {len(lines)} calls were answered; exit {returncode}: {stderr}"
    return answers


def results(answers: Iterable[Answer]) -> list[int]:
    """The results alone."""
    return [answer.result for answer in answers]


# -- snapshots ---------------------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One file of a tree. Times tell that nothing was touched, attributes and owner neither; not atime, which reading may set."""

    kind: str
    mode: int
    content: bytes
    links: int
    modified_ns: int = 0
    changed_ns: int = 0

    def without_times(self) -> Entry:
        return self._replace(modified_ns=0, changed_ns=0)


Tree: TypeAlias = dict[str, Entry]


def tree_of(vm: VM, top: str) -> Tree:
    """What the operator sees at and below *top*, whatever the policy says."""
    files = vm.fs.unchecked
    paths = [top]
    for folder, folders, names in files.walk(top):
        paths += [f"{folder.rstrip('/')}/{name}" for name in (*folders, *names)]
    found: Tree = {}
    for path in paths:
        status = files.stat(path, follow_symlinks=False)
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(files.readlink(path))
        elif stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IRUSR:
            content = files.read_bytes(path)
        kind = stat.filemode(status.st_mode)[0]
        found[path] = Entry(kind, stat.S_IMODE(status.st_mode), content, status.st_nlink, status.st_mtime_ns, status.st_ctime_ns)
    return found


# -- the bare host -------------------------------------------------------------------------------------------------------


def as_ordinary_user(command: Sequence[str]) -> list[str]:
    """*command* run without any right of root's."""
    if os.geteuid() != 0:
        return list(command)
    identity = [f"--reuid={ORDINARY_USER}", f"--regid={ORDINARY_USER}", "--clear-groups"]
    return ["setpriv", *identity, "--inh-caps=-all", "--", *command]


@pytest.fixture
def host_dir() -> Iterator[Path]:
    """A directory of the host that the ordinary user owns and can reach."""
    with tempfile.TemporaryDirectory(prefix="callgate-host-") as name:
        path = Path(name)
        path.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(path, ORDINARY_USER, ORDINARY_USER)
        yield path


# -- programs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def probe(compile_c: Callable[..., Path]) -> Probe:
    """Raw system calls by a statically linked program, which needs nothing of the VM's root."""
    return Probe(compile_c(PROGRAMS / "rawcalls.c"))


@pytest.fixture(scope="session")
def dynamic_probe(compile_c: Callable[..., Path]) -> Probe:
    """The same program, linked dynamically."""
    return Probe(compile_c(PROGRAMS / "rawcalls.c", static=False))


def callgate(*arguments: str, stdin: str = "", timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """The command line, as a user starts it."""
    return subprocess.run(
        [sys.executable, "-m", "callgate", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=os.environ | {"PYTHONWARNINGS": "default"},
    )


def messages(result: Result[str]) -> list[str]:
    """The messages of what was refused."""
    return [denial.message for denial in result.denials]
