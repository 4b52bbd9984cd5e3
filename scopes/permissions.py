"""The types of a permissions dict, for type checkers and editors; validate.py holds the rules that they cannot express."""

from __future__ import annotations

from typing import Literal, Required, TypeAlias, TypedDict

Mode: TypeAlias = Literal["allow", "deny"]

FsOperation: TypeAlias = Literal[
    "*",
    "read",
    "write",
    "stat",
    "readdir",
    "create_dir",
    "rm",
    "rename",
    "symlink",
    "readlink",
    "chmod",
    "truncate",
    "mount_sensitive",
]
NetworkOperation: TypeAlias = Literal["*", "fetch", "http", "dns", "listen"]
ChildProcessOperation: TypeAlias = Literal["*", "spawn"]
EnvOperation: TypeAlias = Literal["*", "read", "write"]
OnlyEveryOperation: TypeAlias = Literal["*"]


class FsRule(TypedDict, total=False):
    mode: Required[Mode]
    operations: list[FsOperation]
    paths: list[str]


class NetworkRule(TypedDict, total=False):
    mode: Required[Mode]
    operations: list[NetworkOperation]
    patterns: list[str]


class ChildProcessRule(TypedDict, total=False):
    mode: Required[Mode]
    operations: list[ChildProcessOperation]
    patterns: list[str]


class EnvRule(TypedDict, total=False):
    mode: Required[Mode]
    operations: list[EnvOperation]
    patterns: list[str]


class PatternRule(TypedDict, total=False):
    """A rule of ``process`` or ``binding``, which select by pattern alone."""

    mode: Required[Mode]
    operations: list[OnlyEveryOperation]
    patterns: list[str]


class FsRuleSet(TypedDict, total=False):
    default: Mode
    rules: list[FsRule]


class NetworkRuleSet(TypedDict, total=False):
    default: Mode
    rules: list[NetworkRule]


class ChildProcessRuleSet(TypedDict, total=False):
    default: Mode
    rules: list[ChildProcessRule]


class EnvRuleSet(TypedDict, total=False):
    default: Mode
    rules: list[EnvRule]


class PatternRuleSet(TypedDict, total=False):
    default: Mode
    rules: list[PatternRule]


class Permissions(TypedDict, total=False):
    """What ``VM(permissions=...)`` takes (SPEC section 2). A scope that is left out keeps its secure default."""

    fs: Mode | FsRuleSet
    network: Mode | NetworkRuleSet
    childProcess: Mode | ChildProcessRuleSet
    process: Mode | PatternRuleSet
    env: Mode | EnvRuleSet
    binding: Mode | PatternRuleSet
