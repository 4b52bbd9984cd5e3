"""Real software does in a VM, where one subtree is denied and every file call is judged, what it does on the bare host.

Each script runs as an ordinary user of the host and in a VM, in a directory of the same name: return code, output and the tree
left behind must be equal, and nothing refused. Then the same program goes for the denied subtree, and gets nothing.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.software.catalogue import MAKE_SRC, SECRET, SOFTWARE, VAULT, VAULT_FILES, reach, script
from tests.vm_fixtures import Entry, as_ordinary_user, deny, tree_of

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

SITE = "site-packages"  # in the working directory; what programs in it are given beforehand
LONG = [name for name, software in SOFTWARE.items() if software.most_files]


class Left(NamedTuple):
    """What a script gave and left."""

    returncode: int
    output: list[str]
    errors: str
    tree: dict[str, Entry]


@pytest.mark.parametrize("name", SOFTWARE)
def test_it_does_what_it_does_on_the_bare_host(vm_factory: Callable[..., VM], host_dir: Path, name: str) -> None:
    _compare(vm_factory, host_dir, name, SOFTWARE[name].files)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_it_does_so_with_thousands_of_files(vm_factory: Callable[..., VM], host_dir: Path, name: str) -> None:
    _compare(vm_factory, host_dir, name, SOFTWARE[name].most_files)


def _compare(vm_factory: Callable[..., VM], host_dir: Path, name: str, count: int) -> None:
    _skip_unless_installed(name)
    varying = (*SOFTWARE[name].varying, f"{host_dir}/{SITE}*")
    vm = vm_factory(permissions=deny(f"{VAULT}/**"), files={f"{VAULT}/{path}": text for path, text in VAULT_FILES.items()})
    vault = tree_of(vm, VAULT)
    _bring(SOFTWARE[name].brought, host_dir / SITE)
    host = _on_host(name, host_dir, count, varying)
    assert (host.returncode, host.errors) == (0, "")

    vm.fs.unchecked.mkdir(str(host_dir), parents=True)
    vm.fs.unchecked.upload(host_dir / SITE, f"{host_dir}/{SITE}")
    result = vm.run(["/bin/sh", "-euc", script(name)], cwd=host_dir, env=_environment(host_dir, count), timeout=600)
    left = _below(host_dir, tree_of(vm, str(host_dir)), varying)
    # pip looks whether it could listen on a port, which is another scope's affair.
    assert not [denial for denial in result.denials if denial.scope == "fs"]
    assert (result.returncode, result.stdout.splitlines(), result.stderr) == (host.returncode, host.output, host.errors)
    assert left == host.tree

    _assert_refused(vm, name, vault, f"{host_dir}/{SITE}")


def _bring(distributions: tuple[str, ...], folder: Path) -> None:
    folder.mkdir()
    for name in distributions:
        for file in metadata.files(name) or ():
            if file.suffix == ".py" or "dist-info" in file.parts[0]:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)
                target.chmod(0o644)


def _assert_refused(vm: VM, name: str, vault: dict[str, Entry], site: str) -> None:
    folder = "/home/agentos/reach"
    vm.fs.unchecked.mkdir(folder)
    result = vm.run(["/bin/sh", "-c", reach(name)], cwd=folder, env={"PYTHONDONTWRITEBYTECODE": "1", "SITE": site}, timeout=120)
    assert SECRET not in result.stdout + result.stderr
    assert {denial.subject for denial in result.denials if denial.subject.startswith(VAULT)}
    assert tree_of(vm, VAULT) == vault
    assert not [path for path, entry in tree_of(vm, folder).items() if SECRET.encode() in entry.content]


def _environment(home: Path, count: int) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "COUNT": str(count),
        "MAKE_SRC": MAKE_SRC,
        "SITE": str(home / SITE),
    }


def _skip_unless_installed(name: str) -> None:
    """Only programs that lie where a VM has them too."""
    software = SOFTWARE[name]
    program = shutil.which(software.program, path="/usr/local/bin:/usr/bin:/bin")
    if program is None or not os.path.realpath(program).startswith("/usr/"):
        pytest.skip(f"{software.program} is not installed below /usr")
    if software.needs:
        found = subprocess.run(["/usr/bin/python3", "-c", f"import {software.needs}"], check=False, capture_output=True, cwd="/")
        if found.returncode:
            pytest.skip(f"the Python of /usr has no {software.needs}")


def _on_host(name: str, folder: Path, count: int, varying: tuple[str, ...]) -> Left:
    done = subprocess.run(
        as_ordinary_user(["/bin/sh", "-euc", script(name)]),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=_environment(folder, count),
        umask=0o022,
        timeout=600,
    )
    return Left(done.returncode, done.stdout.splitlines(), done.stderr, _below(folder, _host_tree(folder), varying))


def _host_tree(top: Path) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for folder, folders, names in os.walk(top):
        for name in [*folders, *names]:
            path = Path(folder, name)
            status = path.lstat()
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(path.readlink())
            elif stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IRUSR:
                content = path.read_bytes()
            found[str(path)] = Entry(stat.filemode(status.st_mode)[0], stat.S_IMODE(status.st_mode), content, status.st_nlink, 0)
    return found


def _below(top: Path, tree: dict[str, Entry], varying: tuple[str, ...]) -> dict[str, Entry]:
    """What a tree holds, as far as two runs on one host agree on it."""
    found: dict[str, Entry] = {}
    for path, entry in tree.items():
        name = os.path.relpath(path, top)
        if name == "." or any(fnmatch.fnmatchcase(path, glob) for glob in varying):
            continue
        # How many links a directory has is the filesystem's own affair.
        found[name] = entry.without_times()._replace(links=0 if entry.kind == "d" else entry.links)
    return found
