"""The in-memory tree of the model: directories, files and symbolic links of one user, and what a whole tree looks like."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.vm_fixtures import Entry

#: A tree to start from: a dict is a directory, bytes are a file's content, text is where a symbolic link leads.
Spec: TypeAlias = "Mapping[str, Spec | bytes | str]"


@dataclass(eq=False)
class File:
    """A regular file, which may have several names."""

    content: bytes
    mode: int = 0o644
    links: int = 1


@dataclass(eq=False)
class Link:
    """A symbolic link."""

    text: str
    links: int = 1


@dataclass(eq=False)
class Directory:
    """A directory. A removed one keeps its name and its parent, as the kernel's does, for who still stands in it."""

    parent: Directory | None = None
    name: str = ""
    mode: int = 0o755
    entries: dict[str, Node] = field(default_factory=dict)
    is_removed: bool = False

    @property
    def path(self) -> str:
        """The path that it has now, or had last."""
        return "/" if self.parent is None else below(self.parent.path, self.name)

    def adopt(self, name: str, node: Node) -> None:
        """Give *node* this name in here, whatever had it before."""
        self.entries[name] = node
        if isinstance(node, Directory):
            node.parent, node.name = self, name

    def is_within(self, other: Node | None) -> bool:
        """Whether this is *other* or lies below it."""
        return self is other or (self.parent is not None and self.parent.is_within(other))


Node: TypeAlias = File | Link | Directory


def below(path: str, name: str) -> str:
    """The path of a name in the directory *path*."""
    return f"{path.rstrip('/')}/{name}"


def grow(directory: Directory, spec: Spec) -> None:
    """Fill *directory*."""
    for name, what in spec.items():
        node: Node = File(what) if isinstance(what, bytes) else Link(what) if isinstance(what, str) else Directory()
        directory.adopt(name, node)
        if isinstance(node, Directory) and isinstance(what, Mapping):
            grow(node, what)


def paths_in(spec: Spec, top: str) -> Iterator[str]:
    """Every path of a tree that stands at *top*, without *top*."""
    for name, what in spec.items():
        yield below(top, name)
        if isinstance(what, Mapping):
            yield from paths_in(what, below(top, name))


def filemode(node: Node) -> str:
    """Kind and mode as ls(1) shows them."""
    match node:
        case File(mode=mode):
            return stat.filemode(stat.S_IFREG | mode)
        case Link():
            return stat.filemode(stat.S_IFLNK | 0o777)
        case Directory(mode=mode):
            return stat.filemode(stat.S_IFDIR | mode)


def tree(directory: Directory) -> dict[str, Entry]:
    """Everything below, by path; the time of each entry is 0."""
    found: dict[str, Entry] = {}
    for name, node in directory.entries.items():
        path = below(directory.path, name)
        match node:
            case File(content, mode, links):
                found[path] = Entry("-", mode, content, links, 0)
            case Link(text, links):
                found[path] = Entry("l", 0o777, text.encode(), links, 0)
            case Directory(mode=mode, entries=entries):
                found[path] = Entry("d", mode, b"", 2 + sum(isinstance(entry, Directory) for entry in entries.values()), 0)
                found |= tree(node)
    return found
