"""The policy as the supervisor reads it: the policy blob of native/protocol.h."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from callgate.scopes import SCOPES, CompiledRule, CompiledScope

_MAGIC: Final = 0x31504743  # CG_POLICY_MAGIC, "CGP1"


def policy_blob(compiled: Mapping[str, CompiledScope]) -> bytes:
    """The encoding of `Policy.compiled`, decoded by native/policy.c."""
    return struct.pack("<I", _MAGIC) + b"".join(_scope(compiled[scope]) for scope in SCOPES)


def _scope(scope: CompiledScope) -> bytes:
    head = struct.pack("<IiII", scope.default_allow, scope.default_rule, scope.fold_case, len(scope.rules))
    return head + b"".join(_rule(rule) for rule in scope.rules)


def _rule(rule: CompiledRule) -> bytes:
    head = struct.pack("<IIiI", rule.allow, rule.operations, rule.rule, len(rule.globs))
    globs = [glob.encode("utf-8", "surrogateescape") for glob in rule.globs]
    return head + b"".join(struct.pack("<I", len(glob)) + glob for glob in globs)
