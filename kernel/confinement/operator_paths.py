"""What the operator adds to the private root: host directories mounted into it, and files seeded with given content."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from callgate.kernel.confinement.root import Root, bind, directory, parents, regular_file
from callgate.kernel.launch_blob import BindFlag, SetupStep, StepKind
from callgate.scopes.errors import Unsupported

#: Operations a read-only mount refuses, so that writers get EACCES rather than the kernel's EROFS.
READ_ONLY_DENIES = ("write", "create_dir", "rm", "rename", "symlink", "chmod", "truncate")

_SENSITIVE = frozenset(("/", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"))
_SENSITIVE_TREES = ("/proc", "/sys", "/dev")
_NEVER = frozenset(("/", "/proc", "/dev"))
_EXECUTABLE_STARTS = (b"#!", b"\x7fELF")


class Mount(NamedTuple):
    """A host directory at *destination* in the VM."""

    destination: str
    source: str
    read_only: bool


def vm_path(path: str | os.PathLike[str], what: str) -> str:
    """*path* in normal form, if it is an absolute path of the VM without `..`; *what* names it in the `ValueError` otherwise."""
    text = os.fspath(path)
    if "\0" in text:
        raise ValueError(f"{what} {text!r} holds a NUL character")
    if not text.startswith("/"):
        raise ValueError(f"{what} {text!r} is not absolute")
    components = [component for component in text.split("/") if component not in ("", ".")]
    if ".." in components:
        raise ValueError(f"{what} {text!r} has a '..' component")
    return "/" + "/".join(components)


def add_files(root: Root, files: Mapping[str, bytes]) -> Root:
    """*root* with *files* (VM path -> content) and the directories above them; a file of the root's own is replaced.

    Scripts and ELF programs are made executable (mode 755), everything else is 644.
    """
    if not files:
        return root
    taken = {step.destination: step.kind for step in root.steps}
    seeded: dict[str, SetupStep] = {}
    folders: dict[str, SetupStep] = {}
    for given, content in files.items():
        path = vm_path(given, "file")
        if given.endswith("/") or path == "/" or taken.get(os.fsencode(path)) is StepKind.DIRECTORY:
            raise ValueError(f"file {given!r} is a directory")
        _refuse_covered(root, path, f"file {given!r}")
        for parent in parents(path):
            kind = taken.get(os.fsencode(parent))
            if kind in (StepKind.FILE, StepKind.SYMLINK):
                raise ValueError(f"file {given!r}: {parent} is not a directory")
            if kind is None:
                folders[parent] = directory(parent)
        seeded[path] = regular_file(path, content, 0o755 if content.startswith(_EXECUTABLE_STARTS) else 0o644)
    for path in seeded:
        if path in folders:
            raise ValueError(f"file {path!r} is also the directory of another file")
    replaced = {step.destination for step in seeded.values()}
    kept = [step for step in root.steps if step.destination not in replaced]
    return root._replace(steps=(*kept, *folders.values(), *seeded.values()))


def add_mounts(root: Root, mounts: Iterable[Mount], judge_sensitive: Callable[[str], None]) -> tuple[Root, tuple[Mount, ...]]:
    """*root* with *mounts*, and the mounts with their resolved destinations, outer ones first.

    *judge_sensitive* is asked about every destination that SPEC 3.1 calls sensitive and raises if the policy refuses it.
    """
    resolved = sorted(_resolve(root, mount, judge_sensitive) for mount in mounts)
    steps = list(root.steps)
    taken = {step.destination: step.kind for step in steps}
    done: list[Mount] = []
    for mount in resolved:
        destination = mount.destination
        outer = next((other for other in reversed(done) if covers(other.destination, destination)), None)
        if outer is not None and outer.destination == destination:
            raise ValueError(f"two mounts at {destination!r}")
        if outer is not None and outer.read_only and not mount.read_only:
            raise Unsupported(f"a writable mount at {destination} in the read-only mount at {outer.destination} is not supported")
        beneath = (outer.destination, outer.source) if outer is not None else _read_only_tree(root, destination)
        if beneath is not None:
            # The mount point cannot be made there without writing to the host, so it must be there already.
            point = beneath[1] + destination[len(beneath[0]) :]
            if not os.path.isdir(point):  # noqa: PTH112
                raise ValueError(f"mount {destination!r}: {point} does not exist and will not be made on the host")
        else:
            for parent in parents(destination):
                kind = taken.get(os.fsencode(parent))
                if kind in (StepKind.FILE, StepKind.SYMLINK):
                    raise ValueError(f"mount {destination!r}: {parent} is not a directory")
                if kind is None:
                    taken[os.fsencode(parent)] = StepKind.DIRECTORY
                    steps.append(directory(parent))
            if taken.get(os.fsencode(destination)) not in (None, StepKind.DIRECTORY):
                raise ValueError(f"mount {destination!r}: there is something other than a directory in the VM's root")
        flags = BindFlag.OPERATOR | BindFlag.OWNER | (BindFlag.READ_ONLY if mount.read_only else BindFlag(0))
        steps.append(bind(destination, mount.source, flags))
        done.append(mount)
    return root._replace(steps=tuple(steps)), tuple(done)


def covers(tree: str, path: str) -> bool:
    """Whether *path* is *tree* or lies below it."""
    return path == tree or path.startswith(tree.rstrip("/") + "/")


def _resolve(root: Root, mount: Mount, judge_sensitive: Callable[[str], None]) -> Mount:
    given = vm_path(mount.destination, "mount")
    if set(given) & {"*", "?"}:
        raise ValueError(f"mount {given!r}: '*' and '?' cannot be part of a destination, because rules could not name it")
    top = "/" + given.split("/", 2)[1]
    path = root.links[top] + given[len(top) :] if top in root.links else given
    if path in _NEVER or covers("/proc", path):
        raise ValueError(f"mount {given!r}: {'the root' if path == '/' else path} is the VM's own and cannot be replaced")
    if path in root.links.values() or given in _SENSITIVE or any(covers(tree, path) for tree in _SENSITIVE_TREES):
        judge_sensitive(path)
    return mount._replace(destination=path)


def _refuse_covered(root: Root, path: str, what: str) -> None:
    """A file below a mount would have to be written to the host, or could not be written at all."""
    top = "/" + path.split("/", 2)[1]
    path = root.links[top] + path[len(top) :] if top in root.links else path
    for step in root.steps:
        if step.kind in (StepKind.BIND, StepKind.PROC, StepKind.DEVPTS) and covers(os.fsdecode(step.destination), path):
            raise ValueError(f"{what} lies in {os.fsdecode(step.destination)}, which is mounted: nothing can be put there")


def _read_only_tree(root: Root, path: str) -> tuple[str, str] | None:
    return next(((tree, tree) for tree in root.read_only if covers(tree, path)), None)
