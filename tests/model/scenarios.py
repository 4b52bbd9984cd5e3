"""Random scenarios: a small tree, an fs policy for it, and calls whose paths lead through it in every way a path can."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from hypothesis import strategies as st

from callgate.scopes import OPERATIONS
from tests.model.machine import EXCHANGE, NOREPLACE
from tests.model.nodes import Spec, paths_in

TOP: Final = "/w"
NAMES: Final[tuple[str, ...]] = ("a", "b", "c", ".env")
TOP_LEVEL: Final = (*NAMES, TOP.strip("/"))  # of the VM's root, whose other entries no scenario touches

Call: TypeAlias = tuple[Any, ...]
Rule: TypeAlias = dict[str, Any]


class Scenario(NamedTuple):
    """What is done where, under which policy."""

    fs: dict[str, Any]
    spec: Spec
    calls: tuple[Call, ...]


NAME: Final[st.SearchStrategy[str]] = st.sampled_from(NAMES)
CONTENT: Final = st.sampled_from([b"", b"one", b"longer content"])
COMPONENT: Final = st.sampled_from([*NAMES, *NAMES, "..", ".", TOP.strip("/")])
LINK_TEXT: Final = st.lists(COMPONENT, min_size=1, max_size=3).map("/".join) | st.builds(
    "{}{}{}".format, st.sampled_from([TOP + "/", "../", ""]), NAME, st.sampled_from(["", "", "/", "/.."])
)
LEAF: Final[st.SearchStrategy[Spec | bytes | str]] = CONTENT | LINK_TEXT


def _directories(inner: st.SearchStrategy[Any], least: int = 0, most: int = len(NAMES)) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAME, inner, min_size=least, max_size=most)


SPEC: Final[st.SearchStrategy[Spec]] = _directories(
    st.recursive(LEAF, lambda inner: _directories(inner, most=3) | LEAF, max_leaves=6)
    | _directories(LEAF | _directories(LEAF, most=2), most=3),
    least=2,
)

# Always searchable, readable and writable for the owner, so that every EACCES is the policy's.
MODE: Final = st.sampled_from([0o700, 0o755, 0o711, 0o777])
CREATE, EXCL, TRUNC, APPEND = os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND
HOW_OPENED: Final = st.sampled_from(
    [0, CREATE, CREATE | EXCL, TRUNC, CREATE | TRUNC, APPEND, os.O_NOFOLLOW, CREATE | os.O_NOFOLLOW, os.O_DIRECTORY]
)
ACCESS: Final = st.sampled_from([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
OPEN_FLAGS: Final = st.builds(int.__or__, ACCESS, HOW_OPENED) | st.sampled_from(
    [os.O_TMPFILE | os.O_RDWR, os.O_TMPFILE | os.O_WRONLY]
)


@st.composite
def paths(draw: st.DrawFn, spec: Spec) -> str:
    """A path: often of something that is there, often by a detour."""
    known = st.sampled_from([TOP, *paths_in(spec, TOP)])
    parts = draw(known | known | known | st.lists(NAME, min_size=1, max_size=3).map(lambda names: "/".join([TOP, *names]))).split(
        "/"
    )[1:]
    if draw(st.integers(0, 4)) == 0:
        parts.append(draw(NAME))
    way = draw(st.sampled_from(["absolute", "absolute", "relative", "relative", "relative", "detour", "around", "dots", "wild"]))
    match way:
        case "relative":
            parts = parts[1:] or ["."]
        case "detour":  # into something and out of it again
            at = draw(st.integers(1, len(parts)))
            parts[at:at] = [draw(NAME), draw(st.sampled_from([".", ".."])), ".."][:: draw(st.sampled_from([1, 2]))]
        case "around":
            parts[1:1] = [*draw(st.lists(NAME, min_size=1, max_size=2)), "..", ".."]
        case "dots":
            parts = [draw(st.sampled_from([".", "..", "../..", "../" + TOP.strip("/")])), *parts[1:]]
        case "wild":
            parts = draw(st.lists(COMPONENT, min_size=1, max_size=5))
    start = "/" if way in ("absolute", "detour", "around") else ""
    return start + "/".join(parts) + draw(st.sampled_from([*[""] * 12, "/", "/."]))


def calls(spec: Spec) -> st.SearchStrategy[Call]:
    """One call on that tree."""
    path = paths(spec)
    flags = st.sampled_from([0, 0, NOREPLACE, EXCHANGE])

    def call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
        return st.tuples(st.just(name), *arguments)

    opening = call("open", path, OPEN_FLAGS, st.sampled_from([b"new", b"x"]))
    renaming = call("rename", path, path, flags)
    looking = [call(name, path) for name in ("stat", "lstat", "access", "readlink", "listdir", "chdir")]
    removing = [call(name, path) for name in ("unlink", "rmdir")]
    making = [call("mkdir", path, MODE), call("symlink", LINK_TEXT, path), call("link", path, path)]
    changing = [call("truncate", path, st.integers(0, 6)), call("chmod", path, MODE)]
    return st.one_of(opening, opening, renaming, renaming, *looking, *removing, *making, *changing)


# -- policies --------------------------------------------------------------------------------------------------------

OPERATIONS_OF_RULE: Final = st.just(["*"]) | st.lists(st.sampled_from(OPERATIONS["fs"]), min_size=1, max_size=3, unique=True)


def _rules(
    mode: st.SearchStrategy[str], patterns: st.SearchStrategy[str], operations: st.SearchStrategy[list[str]]
) -> st.SearchStrategy[Rule]:
    return st.fixed_dictionaries({"mode": mode, "operations": operations, "paths": st.lists(patterns, min_size=1, max_size=2)})


def policies(family: str, spec: Spec) -> st.SearchStrategy[Mapping[str, Any]]:
    """An fs rule set of one of FAMILIES for a tree."""
    path = st.sampled_from([TOP, *paths_in(spec, TOP)]) | st.builds(
        "{}/{}".format, st.sampled_from([TOP, *paths_in(spec, TOP)]), NAME
    )
    subtree = path.map("{}/**".format)
    middle = st.one_of(
        *(NAME.map(glob.format) for glob in ("/**/{}", "/**/{}/**", TOP + "/*/{}", TOP + "/**/{}/*")),
        path.map("{}/*".format),
        st.builds("{}/**/{}".format, path, NAME),
        st.sampled_from([f"{TOP}/?", f"{TOP}/?/**"]),
    )
    deny, either, every = st.just("deny"), st.sampled_from(["allow", "deny"]), st.just(["*"])
    anything = path | subtree | middle
    rules = {
        "subtrees": st.lists(_rules(deny, subtree, OPERATIONS_OF_RULE), min_size=1, max_size=2),
        "single-files": st.lists(_rules(deny, path, OPERATIONS_OF_RULE), min_size=1, max_size=3),
        "middle-globs": st.lists(_rules(deny, middle, OPERATIONS_OF_RULE), min_size=1, max_size=2),
        "flips": st.lists(_rules(either, anything, OPERATIONS_OF_RULE), min_size=2, max_size=5),
        "denied-by-default": st.builds(
            lambda first, rest: [first, *rest],
            _rules(st.just("allow"), st.just(f"{TOP}/**") | subtree, every),
            st.lists(_rules(either, anything, OPERATIONS_OF_RULE), max_size=3),
        ),
    }[family]
    default = "deny" if family == "denied-by-default" else "allow"
    return rules.map(lambda chosen: {"default": default, "rules": chosen})


FAMILIES: Final = ("subtrees", "single-files", "middle-globs", "flips", "denied-by-default")


@st.composite
def scenarios(draw: st.DrawFn, family: str, most_calls: int = 40) -> Scenario:
    """A scenario under a policy of *family*."""
    spec = draw(SPEC)
    fs = draw(policies(family, spec))
    return Scenario(dict(fs), spec, tuple(draw(st.lists(calls(spec), min_size=most_calls // 4, max_size=most_calls))))
