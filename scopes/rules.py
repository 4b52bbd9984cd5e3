"""Rules as written and rules as compiled: the second is what decides, in Python and, byte for byte the same, in C."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from callgate.scopes.address import FOLDED_SUBJECT_MAX, fold_host
from callgate.scopes.glob import compile_glob
from callgate.scopes.operations import EVERY_OPERATION

# What decided, when it was not a rule of the user's (CG_RULE_* of kernel/native/protocol.h).
RULE_DEFAULT: Final = -1
RULE_MODE: Final = -2
RULE_RUNTIME_IMAGE: Final = -3
RULE_MOUNT: Final = -4
RULE_DEVICE: Final = -5
RULE_UNSUPPORTED: Final = -6
RULE_WIDENING: Final = -7
RULE_LOCAL_ADDRESS: Final = -8
RULE_UNRESOLVED: Final = -9
RULE_HOST_SERVICE: Final = -10

RULE_NAMES: Final = MappingProxyType(
    {
        RULE_DEFAULT: "default",
        RULE_MODE: "mode",
        RULE_RUNTIME_IMAGE: "runtime image",
        RULE_MOUNT: "mount",
        RULE_DEVICE: "device",
        RULE_UNSUPPORTED: "unsupported",
        RULE_WIDENING: "widening",
        RULE_LOCAL_ADDRESS: "local address",
        RULE_UNRESOLVED: "unresolved",
        RULE_HOST_SERVICE: "host service",
    }
)


def rule_name(rule: int) -> int | str:
    """How a deciding rule is reported: the user's rules by index, the others by name."""
    return rule if rule >= 0 else RULE_NAMES[rule]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule as the user wrote it, with what was left out filled in."""

    allow: bool
    operations: tuple[str, ...]
    patterns: tuple[str, ...]

    @property
    def every_operation(self) -> bool:
        return EVERY_OPERATION in self.operations


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """One scope of the effective policy as written: a bare mode, or a default and rules."""

    is_mode: bool
    allow: bool
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule in evaluable form: bit n of ``operations`` is the scope's operation n, ``globs`` match subjects directly."""

    allow: bool
    operations: int
    rule: int
    globs: tuple[str, ...]

    def matches(self, number: int, subject: str) -> bool:
        """True when this rule is about the operation with that number on that subject."""
        return bool(self.operations >> number & 1) and any(compile_glob(glob).matches(subject) for glob in self.globs)

    @property
    def everything(self) -> bool:
        """True when the rule matches every subject."""
        return any(compile_glob(glob).everything for glob in self.globs)


@dataclass(frozen=True, slots=True)
class CompiledScope:
    """One scope in evaluable form; exactly what the policy blob of kernel/native/protocol.h says about it.

    ``operations`` names the operation numbers and is the only field that the blob leaves out.
    """

    default_allow: bool
    default_rule: int
    fold_case: bool
    rules: tuple[CompiledRule, ...]
    operations: tuple[str, ...]

    def judge(self, number: int, subject: str) -> tuple[bool, int]:
        """Whether the operation with that number is allowed on a subject, and the rule that says so: the last that matches."""
        if self.fold_case and self.rules:
            if len(subject.encode("utf-8", "surrogateescape")) > FOLDED_SUBJECT_MAX:
                return False, self.default_rule  # no name or address is that long, so no rule is about it
            subject = fold_host(subject)
        for rule in reversed(self.rules):
            if rule.matches(number, subject):
                return rule.allow, rule.rule
        return self.default_allow, self.default_rule

    def constant(self, operation: str) -> bool | None:
        """The verdict on an operation if it is the same for every subject, else None.

        None may also be the answer where a closer look would find the verdict constant; True and False are certain.
        """
        number = self.operations.index(operation)
        verdicts: set[bool] = set()
        bottom = self.default_allow
        for rule in reversed(self.rules):
            if not rule.operations >> number & 1:
                continue
            if rule.everything:
                bottom = rule.allow
                break
            verdicts.add(rule.allow)
        verdicts.add(bottom)
        return bottom if len(verdicts) == 1 else None
