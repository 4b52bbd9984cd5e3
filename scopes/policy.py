"""The effective policy: the user's permissions laid over the secure default, immutable, and the verdicts that follow from it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from callgate.scopes import process
from callgate.scopes.dead_rules import dead_rules
from callgate.scopes.dialects import DIALECTS, FOLDED_SCOPES, patterns_key
from callgate.scopes.errors import PolicyWarning
from callgate.scopes.explain import explanation
from callgate.scopes.operations import OPERATIONS, SCOPES, operation_mask, operation_number
from callgate.scopes.request import Request, Verdict
from callgate.scopes.rules import RULE_DEFAULT, RULE_MODE, CompiledRule, CompiledScope, ScopeRules, rule_name
from callgate.scopes.validate import parse_permissions
from callgate.scopes.widening import may_widen


@dataclass(frozen=True, slots=True, repr=False)
class Policy:
    """A complete policy. Made by `parse`; equal and hashable by content; safe to share between threads."""

    _written: tuple[ScopeRules, ...]
    _compiled: tuple[CompiledScope, ...]
    _given: frozenset[str] = field(compare=False)

    @classmethod
    def parse(cls, permissions: Mapping[str, object] | None = None, *, has_bindings: bool = False) -> Policy:
        """The policy of a permissions dict (SPEC section 2), of which nothing is kept: changing it later changes nothing.

        ``has_bindings`` says that bindings are registered, which makes ``allow`` the default of their scope. Raises
        PolicyError with every mistake and its place; warns PolicyWarning of each rule that does nothing.
        """
        written = parse_permissions(permissions, has_bindings=has_bindings)
        compiled = tuple(_compile(scope, rules) for scope, rules in zip(SCOPES, written, strict=True))
        for scope, rules, evaluable in zip(SCOPES, written, compiled, strict=True):
            for problem in dead_rules(scope, rules, evaluable):
                warnings.warn(PolicyWarning(str(problem)), stacklevel=_depth_of_the_users_line())
        return cls(written, compiled, frozenset(permissions or ()))

    def __repr__(self) -> str:
        return f"<Policy {self.as_dict()}>"

    def as_dict(self) -> dict[str, Any]:
        """The complete effective policy as plain JSON data, which parses to an equal policy."""
        return {scope: _as_json(scope, rules) for scope, rules in zip(SCOPES, self._written, strict=True)}

    def decide(self, scope: str, operation: str, subject: str) -> Verdict:
        """The verdict on one operation: the last matching rule wins, else the default.

        The subject is in the scope's subject form (SPEC section 3); links in a path are not followed. ValueError with a hint
        for an unknown scope or operation, and for a subject that is empty, no absolute path, one with ``..``, or no host:port.
        """
        return self.authorize(Request.asked(scope, operation, subject))

    def judge(self, scope: str, operation: str, subject: str) -> Verdict:
        """`decide`, for what a guest or the kernel names: any subject gets a verdict."""
        return self.authorize(Request.canonical(scope, operation, subject))

    def authorize(self, request: Request) -> Verdict:
        """`decide`, for a request whose subject is canonical already."""
        compiled = self._compiled[SCOPES.index(request.scope)]
        allowed, rule = compiled.judge(operation_number(request.scope, request.operation), request.subject)
        return Verdict.on(request, allowed=allowed, rule=rule_name(rule))

    def explain(self, scope: str, operation: str, subject: str, *, verdict: Verdict | None = None) -> str:
        """One sentence with the verdict, the rule that decided, and why. ValueError as `decide`.

        *verdict*: the one to explain, where the kernel has a further say; by default that of `decide`.
        """
        request = Request.asked(scope, operation, subject)
        written = self._written[SCOPES.index(scope)]
        return explanation(request, verdict or self.authorize(request), written, given=scope in self._given)

    def compiled(self) -> Mapping[str, CompiledScope]:
        """Every scope in evaluable form, in the order of SCOPES: the content of the policy blob of kernel/native/protocol.h."""
        return MappingProxyType(dict(zip(SCOPES, self._compiled, strict=True)))

    def with_rules(self, *, before: Iterable[CompiledRule] = (), after: Iterable[CompiledRule] = (), scope: str = "fs") -> Policy:
        """The policy with rules of the kernel's own around the user's: an explicit rule of the user's wins over those before.

        A scope that was a bare mode keeps it as its default, still reported as ``"mode"``. `as_dict` shows the user's part.
        """
        index = SCOPES.index(scope)
        old = self._compiled[index]
        new = replace(old, rules=(*before, *old.rules, *after))
        return replace(self, _compiled=(*self._compiled[:index], new, *self._compiled[index + 1 :]))

    def with_bindings(self) -> Policy:
        """The policy once bindings are registered: their scope is allowed, unless the permissions say something about it."""
        if "binding" in self._given:
            return self
        index = SCOPES.index("binding")
        granted = ScopeRules(is_mode=True, allow=True)
        written = (*self._written[:index], granted, *self._written[index + 1 :])
        compiled = (*self._compiled[:index], _compile("binding", granted), *self._compiled[index + 1 :])
        return replace(self, _written=written, _compiled=compiled)

    @property
    def names_tracing(self) -> bool:
        """Whether a rule allows ptrace and its kin by name; without one a VM refuses them to everybody."""
        rules = self._written[SCOPES.index("process")].rules
        return any(rule.allow and any(map(process.is_tracing, rule.patterns)) for rule in rules)

    def refusing_tracing(self) -> Policy:
        """The policy as a VM enforces it on ptrace and its kin: refused unless the rule that decides names it (SPEC 3.4)."""
        index = SCOPES.index("process")
        scope = process.refusing_tracing(self._compiled[index], self._written[index].rules)
        return replace(self, _compiled=(*self._compiled[:index], scope, *self._compiled[index + 1 :]))

    def widens(self, source: str, target: str, *, is_directory: bool) -> bool:
        """True if moving or linking ``source`` to ``target`` may give it, or anything below it, an operation it did not have.

        Both are resolved absolute paths. May be a false alarm for directories, never the other way round (LEDGER A6).
        """
        return may_widen(self._compiled[SCOPES.index("fs")], source, target, is_directory=is_directory)


def _depth_of_the_users_line() -> int:
    """How far up the stack, for `warnings.warn` in the function that asks, the first line outside of this package is."""
    package = __name__.partition(".")[0]
    depth, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == package and frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def _compile(scope: str, written: ScopeRules) -> CompiledScope:
    dialect = DIALECTS[scope]
    rules = tuple(
        CompiledRule(
            allow=rule.allow,
            operations=operation_mask(scope, rule.operations),
            rule=index,
            # Patterns may share globs (a host's port forms share the lookup of its name); each is matched once.
            globs=tuple(dict.fromkeys(glob for pattern in rule.patterns for glob in dialect.globs(pattern))),
        )
        for index, rule in enumerate(written.rules)
    )
    default_rule = RULE_MODE if written.is_mode else RULE_DEFAULT
    return CompiledScope(written.allow, default_rule, scope in FOLDED_SCOPES, rules, OPERATIONS[scope])


def _as_json(scope: str, written: ScopeRules) -> str | dict[str, Any]:
    if written.is_mode:
        return _mode(written.allow)
    rules = [
        {"mode": _mode(rule.allow), "operations": list(rule.operations), patterns_key(scope): list(rule.patterns)}
        for rule in written.rules
    ]
    return {"default": _mode(written.allow), "rules": rules}


def _mode(allow: bool) -> str:
    return "allow" if allow else "deny"
