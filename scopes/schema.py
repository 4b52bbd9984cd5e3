"""The JSON Schema (draft 2020-12) of a permissions dict, for editors and for other languages.

It accepts what `Policy.parse` accepts, except for what a regular expression cannot tell: whether an address in a network
pattern is a possible one (``1.2.3.400``, ``[::1::2]``). `Policy.parse` has the last word.
"""

from __future__ import annotations

from typing import Any, Final

from callgate.scopes.defaults import SECURE_DEFAULT
from callgate.scopes.dialects import patterns_key
from callgate.scopes.operations import EVERY_OPERATION, OPERATIONS, SCOPES
from callgate.scopes.validate import PATTERN_MAX

_END: Final = r"(?![\s\S])"  # the end of the text; "$" would also match before a last line feed
_NUL_OR_PARENT: Final = r"\u0000|(^|/)\.\.(?![^/])"

_NAME: Final = r"[A-Za-z0-9_*?-]+(\.[A-Za-z0-9_*?-]+)*\.?"
_IPV6: Final = r"[0-9A-Fa-f.*?]*:[0-9A-Fa-f:.*?]*"
_PORT_NUMBER: Final = r"[0-9]{1,4}|[0-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_PORT: Final = rf":({_PORT_NUMBER}|(?=[0-9]*[*?])[0-9*?]{{1,5}})"
_HOST: Final = rf"({_NAME}|\[{_IPV6}\])({_PORT})?{_END}|[0-9A-Fa-f.*?]*:{_IPV6}{_END}"
_NETWORK: Final = rf"^\*\*?{_END}|^([Tt][Cc][Pp]://|[Uu][Dd][Pp]://)?({_HOST})|^[Dd][Nn][Ss]://({_NAME}|\[{_IPV6}\]|[0-9A-Fa-f.*?]*:{_IPV6}){_END}"

_PATTERN_FORMS: Final = {"fs": rf"^/|^\*\*?{_END}", "network": _NETWORK}

_PATTERN_NOTES: Final = {
    "fs": "A glob over absolute resolved paths.",
    "network": "host, host:port, tcp://host:port, udp://host:port or dns://host.",
    "childProcess": "With a slash a glob over the program's path, without one over its basename.",
    "process": "<action> or <action>:<pid>.",
    "env": "A glob over variable names.",
    "binding": "A glob over the names of registered bindings.",
}


def policy_schema() -> dict[str, Any]:
    """A new copy of the schema, as plain JSON data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "callgate permissions",
        "description": "What a guest may do, scope by scope. A scope that is left out keeps its secure default.",
        "type": "object",
        "properties": {scope: _scope(scope) for scope in SCOPES},
        "additionalProperties": False,
        "$defs": {"mode": {"enum": ["allow", "deny"]}},
    }


def _scope(scope: str) -> dict[str, Any]:
    rule_set = {
        "type": "object",
        "properties": {
            "default": {"$ref": "#/$defs/mode", "default": "deny", "description": "The verdict where no rule matches."},
            "rules": {
                "type": "array",
                "default": [],
                "items": _rule(scope),
                "description": "The last rule that matches wins.",
            },
        },
        "additionalProperties": False,
    }
    return {"default": SECURE_DEFAULT[scope], "anyOf": [{"$ref": "#/$defs/mode"}, rule_set]}


def _rule(scope: str) -> dict[str, Any]:
    operations = [EVERY_OPERATION, *(operation for operation in OPERATIONS[scope] if operation != EVERY_OPERATION)]
    pattern: dict[str, Any] = {
        "type": "string",
        "minLength": 1,
        "maxLength": PATTERN_MAX,
        "not": {"pattern": _NUL_OR_PARENT},
        "description": _PATTERN_NOTES[scope],
    }
    if scope in _PATTERN_FORMS:
        pattern["pattern"] = _PATTERN_FORMS[scope]
    return {
        "type": "object",
        "properties": {
            "mode": {"$ref": "#/$defs/mode"},
            "operations": {"type": "array", "minItems": 1, "items": {"enum": operations}, "default": [EVERY_OPERATION]},
            patterns_key(scope): {"type": "array", "minItems": 1, "items": pattern, "default": ["**"]},
        },
        "required": ["mode"],
        "additionalProperties": False,
    }
