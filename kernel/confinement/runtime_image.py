"""The paths a program needs in order to start at all: readable under any `fs` default (SPEC 3.1, decision A3).

Subjects are resolved paths, so on a host where /lib is a link to /usr/lib only the latter is listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache

from callgate.kernel.confinement.root import TOP_LEVEL_SYSTEM, interpreter_prefix, parents

#: Operations a program may do on its runtime image whatever the `fs` default says.
OPERATIONS = ("read", "stat", "readdir", "readlink")

#: Operations on the directories above the image and on the links into it: realpath(3) and the loader look at each of them.
ANCESTOR_OPERATIONS = ("stat", "readlink")

_IMAGE = (
    "/usr/lib/**",
    "/usr/lib32/**",
    "/usr/lib64/**",
    "/usr/libx32/**",
    "/usr/bin/**",
    "/usr/sbin/**",
    "/usr/libexec/**",
    "/usr/local/bin/**",
    "/usr/local/sbin/**",
    "/usr/local/lib/**",
    "/usr/share/locale/**",
    "/usr/share/zoneinfo/**",
    "/usr/share/terminfo/**",
    "/usr/share/perl*/**",
    "/usr/share/nodejs/**",
    "/etc/alternatives/**",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
)


@lru_cache(maxsize=1)
def default_image() -> tuple[str, ...]:
    """Globs over the loader, the shared libraries, the interpreters and their standard libraries, for this host's layout."""
    own = tuple(f"/{name}/**" for name in TOP_LEVEL_SYSTEM if not os.path.islink(f"/{name}") and os.path.isdir(f"/{name}"))  # noqa: PTH112, PTH114
    prefix = interpreter_prefix()
    return _IMAGE + own + ((f"{prefix}/**",) if prefix is not None else ())


def ancestors(image: Iterable[str]) -> tuple[str, ...]:
    """The directories above what *image* covers, and the top-level links into it; none when the image is empty."""
    found: dict[str, None] = {}
    for glob in image:
        found["/"] = None
        literal = glob[: min((glob.find(sign) for sign in "*?" if sign in glob), default=len(glob))]
        found.update(dict.fromkeys(parents(literal.rstrip("/"))))
    if found:
        found.update(dict.fromkeys(f"/{name}" for name in TOP_LEVEL_SYSTEM if os.path.islink(f"/{name}")))  # noqa: PTH114
    return tuple(found)
