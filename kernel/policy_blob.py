"""The policy as the supervisor reads it: the policy blob of native/protocol.h."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from callgate.scopes import SCOPES, CompiledRule, CompiledScope
from callgate.scopes.network import names_address

_MAGIC: Final = 0x31504743  # CG_POLICY_MAGIC, "CGP1"


def policy_blob(compiled: Mapping[str, CompiledScope]) -> bytes:
    """The encoding of `Policy.compiled`, decoded by native/policy.c."""
    return struct.pack("<I", _MAGIC) + b"".join(_scope(scope, compiled[scope]) for scope in SCOPES)


def _scope(name: str, scope: CompiledScope) -> bytes:
    head = struct.pack("<IiII", scope.default_allow, scope.default_rule, scope.fold_case, len(scope.rules))
    return head + b"".join(_rule(rule, name == "network") for rule in scope.rules)


def _rule(rule: CompiledRule, is_network: bool) -> bytes:
    naming = [glob for glob in rule.globs if is_network and names_address(glob)]
    globs = [*naming, *(glob for glob in rule.globs if glob not in naming)] if naming else rule.globs
    head = struct.pack("<IIiI", rule.allow, rule.operations, rule.rule, len(globs))
    texts = [glob.encode("utf-8", "surrogateescape") for glob in globs]
    return head + b"".join(struct.pack("<I", len(text)) + text for text in texts) + struct.pack("<I", len(naming))
