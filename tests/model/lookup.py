"""What a path means: the walk of path_resolution(7), and which names on the way a guest must be allowed to look at."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from tests.model.nodes import Directory, Link, Node, below

LINKS_MAX = 40


class Last(Enum):
    """What the last component of a path is: calls that make and remove names want a name."""

    NAME = "name"
    DOT = "."
    DOT_DOT = ".."
    ROOT = "/"


@dataclass
class Found:
    """Where a path leads."""

    judged: str  # the path a verdict is about: that of the object, or the one it would have
    node: Node | None = None
    directory: Directory | None = None  # that holds the last name, or would
    name: str = ""
    has_slash: bool = False  # after the last name
    last: Last = Last.NAME
    error: int = 0
    refused: str | None = None  # what the guest may not be told about, met on the way


@dataclass
class Walk:
    """One walk from *here*; `may_look` says whether `stat` on a path is allowed."""

    root: Directory
    here: Directory
    may_look: Callable[[str], bool]
    depth: int = 0  # directories the path went down into and did not leave yet
    links: int = 0
    names: list[str] = field(default_factory=list)
    has_slash: bool = False

    def run(self, path: str, *, follow: bool, keep_name: bool = False) -> Found:
        """Walk *path*. *follow*: also a final link. *keep_name*: not even a final link with a slash after it, as unlink(2)."""
        if path == "":
            return Found("", error=errno.ENOENT)
        self.here = self.root if path.startswith("/") else self.here
        self.names, self.has_slash, last = components(path), path.endswith("/"), Last.ROOT
        while self.names:
            name = self.names.pop(0)
            if name in (".", ".."):
                last = Last(name)
                if name == ".." and (refused := self._up()):
                    return refused
                continue
            found = self._step(name, follow=follow, keep_name=keep_name)
            if found:
                return found
            last = Last.ROOT  # of a link to "/"
        return Found(self.here.path, self.here, last=last)

    def _up(self) -> Found | None:
        if self.depth:
            self.depth -= 1
            if not self.may_look(self.here.path):
                return self._refused(self.here.path, ["..", *self.names])
        self.here = self.here.parent or self.here
        return None

    def _step(self, name: str, *, follow: bool, keep_name: bool) -> Found | None:
        """Take one name; None to go on."""
        node = self.here.entries.get(name)
        is_last = not self.names
        path = below(self.here.path, name)
        if isinstance(node, Link) and not (is_last and (keep_name or not (follow or self.has_slash))):
            return self._follow(name, node)
        if is_last:
            found = Found(path, node, self.here, name, self.has_slash)
            if node is None:
                found.error = errno.ENOENT
            elif self.has_slash and not keep_name and not isinstance(node, Directory):
                found.error = errno.ENOTDIR
            return found
        if isinstance(node, Directory):
            self.here, self.depth = node, self.depth + 1
            return None
        return self._stopped(name, errno.ENOENT if node is None else errno.ENOTDIR)

    def _stopped(self, name: str, error: int) -> Found:
        """The walk cannot go on at *name*. Whether that is missing or no directory is not told where it may not be looked at."""
        path = below(self.here.path, name)
        if self.names and not self.may_look(path):
            return self._refused(path, [name, *self.names])
        return Found(joined(self.here.path, [name, *self.names]), error=error)

    def _follow(self, name: str, link: Link) -> Found | None:
        self.links += 1
        if self.links > LINKS_MAX:
            return self._stopped(name, errno.ELOOP)
        self.has_slash = link.text.endswith("/") or self.has_slash if not self.names else self.has_slash
        self.names = components(link.text) + self.names
        if link.text.startswith("/"):
            self.here, self.depth = self.root, 0
        return None

    def _refused(self, path: str, rest: list[str]) -> Found:
        return Found(joined(self.here.path, rest), error=errno.EACCES, refused=path)


def components(path: str) -> list[str]:
    """The names of a path, "." and ".." among them."""
    return [name for name in path.split("/") if name]


def joined(path: str, names: list[str]) -> str:
    """The path that *names* would have below *path* if all of them were there and none a link."""
    parts = components(path)
    for name in names:
        if name == "..":
            del parts[-1:]
        elif name != ".":
            parts.append(name)
    return "/" + "/".join(parts)
