"""Reads a policy from the command line, and the subcommands that only look at one: check, explain and schema."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from callgate.cli.messages import USAGE, UsageError, complain
from callgate.scopes.errors import PolicyWarning
from callgate.scopes.policy import Policy


def load_permissions(text: str) -> dict[str, Any]:
    """The permissions that a POLICY argument names: a file, inline JSON, or `-`. Not validated yet."""
    if text.lstrip().startswith("{"):
        return _parse(text, "inline policy")
    if text == "-":
        if sys.stdin is None:
            raise UsageError("policy: standard input is closed")
        return _parse(_decoded(sys.stdin.buffer.read(), "policy on standard input"), "policy on standard input")
    try:
        content = Path(text).read_bytes()
    except OSError as error:
        raise UsageError(f"policy {text}: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise UsageError(f"policy {text!r} cannot be a file name") from None
    return _parse(_decoded(content, f"policy {text}"), f"policy {text}")


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: not UTF-8 (byte {error.start})") from None


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise UsageError(f"{name}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply") from None
    except ValueError:  # more digits than int() takes
        raise UsageError(f"{name}: a number with too many digits") from None
    except _DuplicateKey as error:
        raise UsageError(f'{name}: the key "{error}" is given twice; which one is meant?') from None
    if not isinstance(value, dict):
        raise UsageError(f"{name}: must be a JSON object that maps scopes to modes or rule sets")
    return value


class _DuplicateKey(Exception):
    """JSON would silently keep the last of two equal keys, and a policy must not lose a rule that way."""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _DuplicateKey(key)
        result[key] = value
    return result


@contextmanager
def policy_warnings_as_lines() -> Iterator[None]:
    """Shows each PolicyWarning of the block as one line on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PolicyWarning)
        try:
            yield
        finally:
            for warning in caught:
                complain(f"warning: {warning.message}")


def check(argument: str) -> int:
    """Prints the effective policy. Mistakes leave as PolicyError."""
    permissions = load_permissions(argument)
    with policy_warnings_as_lines():
        policy = Policy.parse(permissions)
    print(json.dumps(policy.as_dict(), indent=2))
    return 0


def explain(argument: str, scope: str, operation: str, subject: str) -> int:
    """Prints the verdict that a VM under this policy would give, what decided it and why; 0 allowed, 1 denied."""
    from callgate.kernel.egress.guard import with_guard
    from callgate.kernel.plan import compile_plan

    permissions = load_permissions(argument)
    with policy_warnings_as_lines():
        policy = compile_plan(Policy.parse(permissions)).policy  # with the runtime image and the devices
    try:
        verdict = with_guard(policy, scope, operation, subject)
        reason = policy.explain(scope, operation, subject, verdict=verdict)
    except ValueError as error:
        complain(str(error))
        return USAGE
    print("allowed" if verdict.allowed else "denied")
    print(f"rule: {verdict.rule}" if isinstance(verdict.rule, str) else f"rule: {scope}.rules[{verdict.rule}]")
    print(f"why: {reason}")
    if not verdict.allowed:
        print(f"message: {verdict.message}")
    return 0 if verdict.allowed else 1


def schema() -> int:
    """Prints the JSON Schema of a policy."""
    from callgate.scopes.schema import policy_schema

    print(json.dumps(policy_schema(), indent=2))
    return 0
