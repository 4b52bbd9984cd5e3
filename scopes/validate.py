"""Reads a permissions dict: the rules of every scope, or every mistake in it with its exact place (SPEC section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeGuard

from callgate.scopes.defaults import default_mode
from callgate.scopes.dialects import DIALECTS, patterns_key
from callgate.scopes.errors import PolicyError, Problem, shown_value
from callgate.scopes.operations import EVERY_OPERATION, OPERATIONS, SCOPES, did_you_mean
from callgate.scopes.rules import Rule, ScopeRules

# Characters. As long as a path can be; the C evaluator's automaton is sized for it.
PATTERN_MAX: Final = 4096

_ASK: Final = (
    '"ask" is not a mode: nobody is asked while a system call waits. Asking a person belongs to approvals, the layer above;'
    ' to block at this level use "deny"'
)


def parse_permissions(permissions: object, *, has_bindings: bool) -> tuple[ScopeRules, ...]:
    """The rules of all scopes in the order of SCOPES; PolicyError with every mistake. Nothing of the input is kept."""
    problems: list[Problem] = []
    given: Mapping[object, object] = {}
    if isinstance(permissions, Mapping):
        given = permissions
        _check_keys("", given, SCOPES, "scope", problems)
    elif permissions is not None:
        problems.append(Problem("permissions", f"must map scopes to modes or rule sets, not be {shown_value(permissions)}"))
    scopes = tuple(
        _scope(scope, given[scope], problems)
        if scope in given
        else ScopeRules(is_mode=True, allow=default_mode(scope, has_bindings=has_bindings) == "allow")
        for scope in SCOPES
    )
    if problems:
        raise PolicyError(problems)
    return scopes


def _scope(scope: str, value: object, problems: list[Problem]) -> ScopeRules:
    if not isinstance(value, Mapping):
        alternative = 'or a rule set such as {"default": "deny", "rules": [...]}'
        return ScopeRules(is_mode=True, allow=_mode(scope, value, problems, alternative))
    _check_keys(scope, value, ("default", "rules"), "key", problems)
    allow = _mode(f"{scope}.default", value["default"], problems) if "default" in value else False
    rules = value.get("rules", ())
    if not _is_list(rules):
        problems.append(Problem(f"{scope}.rules", f"must be a list of rules, not {shown_value(rules)}"))
        rules = ()
    return ScopeRules(
        is_mode=False,
        allow=allow,
        rules=tuple(_rule(scope, f"{scope}.rules[{i}]", rule, problems) for i, rule in enumerate(rules)),
    )


def _rule(scope: str, place: str, value: object, problems: list[Problem]) -> Rule:
    key = patterns_key(scope)
    if not isinstance(value, Mapping):
        example = '{"mode": "deny", "operations": ["*"], "' + key + '": [...]}'
        problems.append(Problem(place, f"must be a rule such as {example}, not {shown_value(value)}"))
        return Rule(False, (), ())
    other_key = "patterns" if key == "paths" else "paths"
    keys = ("mode", "operations", key)
    if other_key in value:
        problems.append(Problem(f"{place}.{other_key}", f"rules of {scope} select by {key!r}, not {other_key!r}"))
    _check_keys(place, (name for name in value if name != other_key), keys, "key", problems)
    allow = False
    if "mode" in value:
        allow = _mode(f"{place}.mode", value["mode"], problems)
    else:
        problems.append(Problem(f"{place}.mode", 'is missing; a rule says "allow" or "deny"'))
    operations = _operations(scope, f"{place}.operations", value.get("operations", [EVERY_OPERATION]), problems)
    patterns = _patterns(scope, f"{place}.{key}", value.get(key, ["**"]), problems)
    return Rule(allow, operations, patterns)


def _mode(place: str, value: object, problems: list[Problem], alternative: str = "") -> bool:
    if isinstance(value, str) and value in ("allow", "deny"):
        return value == "allow"
    if isinstance(value, str) and value == "ask":
        problems.append(Problem(place, _ASK))
    else:
        hint = did_you_mean(value, ("allow", "deny")) if isinstance(value, str) else ""
        choices = f'"allow", "deny" {alternative}' if alternative else '"allow" or "deny"'
        problems.append(Problem(place, f"must be {choices}, not {shown_value(value)}{hint}"))
    return False


def _operations(scope: str, place: str, value: object, problems: list[Problem]) -> tuple[str, ...]:
    known = (EVERY_OPERATION, *(name for name in OPERATIONS[scope] if name != EVERY_OPERATION))

    def mistake(operation: str) -> str | None:
        shown = shown_value(operation)
        if operation in known:
            return None
        if len(known) == 1:
            return f'must be "*", not {shown}: {scope} rules have no operations of their own and select by pattern'
        return f"unknown operation {shown}{did_you_mean(operation, known[1:]) or '; it can be ' + _listed(known)}"

    return _strings(place, value, mistake, problems)


def _patterns(scope: str, place: str, value: object, problems: list[Problem]) -> tuple[str, ...]:
    return _strings(place, value, lambda pattern: _pattern_mistake(pattern) or DIALECTS[scope].mistake(pattern), problems)


def _pattern_mistake(pattern: str) -> str | None:
    """What is wrong with a pattern whatever its scope, or None."""
    if not pattern:
        return 'must not be empty; use "**" for everything'
    if len(pattern) > PATTERN_MAX:
        return f"is {len(pattern)} characters long; a pattern has at most {PATTERN_MAX}"
    if "\0" in pattern:
        return f"{shown_value(pattern)} holds a NUL character, which no name can"
    if ".." in pattern.split("/"):
        return f"{shown_value(pattern)} holds a '..' component; patterns match resolved names, so write where it leads"
    try:
        pattern.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return f"{shown_value(pattern)} holds a code point that no bytes stand for"
    return None


def _strings(place: str, value: object, mistake: Callable[[str], str | None], problems: list[Problem]) -> tuple[str, ...]:
    """The strings of a list; everything else, and every string with a mistake, becomes a problem."""
    if not _is_list(value):
        instead = f"; write [{shown_value(value)}]" if isinstance(value, str) else ""
        problems.append(Problem(place, f"must be a list, not {shown_value(value)}{instead}"))
        return ()
    if not value:
        problems.append(Problem(place, 'must not be empty; use ["*"] for wildcard'))
    strings: list[str] = []
    for i, item in enumerate(value):
        message = mistake(item) if isinstance(item, str) else f"must be a string, not {shown_value(item)}"
        if message is not None:
            problems.append(Problem(f"{place}[{i}]", message))
        elif isinstance(item, str):
            strings.append(str(item))  # a copy of a subclass too
    return tuple(strings)


def _check_keys(place: str, keys: Iterable[object], known: Sequence[str], kind: str, problems: list[Problem]) -> None:
    """``place`` is what holds the keys; empty for the policy itself."""
    for key in keys:
        if key in known:
            continue
        hint = did_you_mean(key, known) if isinstance(key, str) else ""
        shown = key if isinstance(key, str) and key.isidentifier() else f"[{shown_value(key)}]"
        where = f"{place}.{shown}" if place and not shown.startswith("[") else place + shown
        problems.append(Problem(where, f"unknown {kind} {shown_value(key)}{hint or '; it can be ' + _listed(known)}"))


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, (list, tuple))


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + " or " + words[-1]
