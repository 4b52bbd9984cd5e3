"""The commands of bindings: reads the words a guest typed, and answers with text for its terminal.

    add --a 2 --b 3                  a binding without a group, arguments by name
    math mul --a 2 --b 3             a binding of a group
    math mul --json '{"a": 2}'       all arguments as one JSON object; --json-file NAME reads it from a file or "-"
    math --help, math mul --help     what there is, and what it takes
    callgate-bindings list [--json]  everything that may be called
    callgate-bindings call NAME ...  any binding by its full name

The program in the VM sends its words here and prints what comes back (kernel/native/guest/callgate-bindings.c).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callgate.bindings.form import Schema
from callgate.bindings.json_text import JsonError, decode, encode
from callgate.bindings.registry import GROUP_SIGN, Registered
from callgate.bindings.replies import DONE, USAGE, CommandReplies

if TYPE_CHECKING:
    from callgate.bindings.call import Call
    from callgate.bindings.connection import Connection
    from callgate.bindings.requests import Request
    from callgate.bindings.service import HostService

_PROGRAM = "callgate-bindings"
_HELP = ("--help", "-h")
_DEPTH = 4  # of schemas within schemas that help shows; a schema may hold itself


class UsageError(ValueError):
    """The words make no call; the message says what to write."""


def run_command(service: HostService, connection: Connection, request: Request) -> Call | None:
    """Answer a request of kind `command`, or give the call that it asks for."""
    words = request.get("argv", "array")
    if not words or not all(isinstance(word, str) for word in words):
        words = [_PROGRAM]
    program, *rest = words
    replies = CommandReplies(request.number, program)
    try:
        if program == _PROGRAM:
            return _program(service, connection, request, rest, replies)
        return _command(service, connection, request, program, rest, replies)
    except UsageError as error:
        connection.send(replies.complaint(str(error), USAGE))
        return None


def _program(
    service: HostService, connection: Connection, request: Request, words: Sequence[str], replies: CommandReplies
) -> Call | None:
    match words:
        case ["list"]:
            allowed = _allowed(service)
            width = max((len(binding.name) for binding in allowed), default=0)
            lines = [f"{binding.name:<{width}}  {_summary(binding)}".rstrip() for binding in allowed]
            connection.send(replies.output("".join(f"{line}\n" for line in lines).encode(), code=DONE))
            return None
        case ["list", "--json"]:
            connection.send(replies.output(encode([binding.as_tool() for binding in _allowed(service)]) + b"\n", code=DONE))
            return None
        case ["call", name, *rest] if not name.startswith("-"):
            return _invoke(service, connection, request, name, rest, replies)
        case [] | ["--help"] | ["-h"]:
            text = f"usage: {_PROGRAM} list [--json]\n       {_PROGRAM} call NAME [--ARGUMENT VALUE ...] [--json OBJECT]\n"
            connection.send(replies.output(text.encode(), code=DONE))
            return None
    raise UsageError(f"list or call is expected (see {_PROGRAM} --help)")


def _command(
    service: HostService, connection: Connection, request: Request, program: str, words: Sequence[str], replies: CommandReplies
) -> Call | None:
    if program not in service.registry.groups():
        return _invoke(service, connection, request, program, words, replies)
    if not words or words[0] in _HELP:
        members = [binding for binding in _allowed(service) if binding.name.startswith(program + GROUP_SIGN)]
        lines = [f"usage: {program} NAME [--ARGUMENT VALUE ...]"]
        lines += [f"  {binding.name.partition(GROUP_SIGN)[2]:<20}  {_summary(binding)}".rstrip() for binding in members]
        connection.send(replies.output("".join(f"{line}\n" for line in lines).encode(), code=DONE))
        return None
    if words[0].startswith("-"):
        raise UsageError(f"a name is expected before {words[0]} (see {program} --help)")
    return _invoke(service, connection, request, f"{program}{GROUP_SIGN}{words[0]}", words[1:], replies)


def _invoke(
    service: HostService, connection: Connection, request: Request, name: str, words: Sequence[str], replies: CommandReplies
) -> Call | None:
    binding = service.registry.get(name)
    # What is refused is refused before anything about it is told; `prepare` says so, and that there is no such binding.
    if binding is not None and service.gate.allows(name):
        if any(word in _HELP for word in words):
            connection.send(replies.output(_help(binding).encode(), code=DONE))
            return None
        return service.prepare(connection, request, name, [], parse_arguments(binding.parameters.schema, words), replies)
    return service.prepare(connection, request, name, [], {}, replies)


def parse_arguments(schema: Schema, words: Sequence[str]) -> dict[str, Any]:
    """The arguments that words give: `--name value`, `--name=value`, `--flag` and `--no-flag` for booleans, `--json OBJECT`.

    A value is read as the schema has it: text where it says string, else JSON. `UsageError` for words that are no options.
    """
    properties: Schema = schema.get("properties", {})
    arguments: dict[str, Any] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("--") or word == "--":
            raise UsageError(f"{word!r} is no option: arguments are given by name, as in {_example(properties)}")
        option, equals, value = word[2:].partition("=")
        name = option if option in properties else option.replace("-", "_")
        if option == "json":
            if not equals:
                value, at = _next(words, at, word)
            arguments |= _object(value)
            continue
        if name not in properties and option.startswith("no-") and _is_boolean(properties, option[3:].replace("-", "_")):
            arguments[option[3:].replace("-", "_")] = False
            continue
        if _is_boolean(properties, name) and not equals and (at == len(words) or words[at] not in ("true", "false")):
            arguments[name] = True
            continue
        if not equals:
            value, at = _next(words, at, word)
        arguments[name] = _value(properties.get(name, {}), value)
    return arguments


def _next(words: Sequence[str], at: int, option: str) -> tuple[str, int]:
    if at == len(words):
        raise UsageError(f"{option} needs a value")
    return words[at], at + 1


def _object(text: str) -> dict[str, Any]:
    try:
        value = decode(text.encode())
    except JsonError as error:
        raise UsageError(f"--json: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("--json: must be one JSON object that holds the arguments")
    return value


def _types(schema: Schema) -> frozenset[str]:
    kinds = schema.get("type", [])
    found = {kinds} if isinstance(kinds, str) else set(kinds)
    for each in schema.get("anyOf", ()):
        found |= _types(each)
    for value in schema.get("enum", ()):
        found |= {"string"} if isinstance(value, str) else {"other"}
    return frozenset(found)


def _is_boolean(properties: Schema, name: str) -> bool:
    return "boolean" in _types(properties.get(name, {}))


def _value(schema: Schema, text: str) -> Any:
    """Text, where the schema takes a string and the text is not JSON of another type that it takes as well."""
    kinds = _types(schema)
    if kinds == {"string"}:
        return text
    try:
        value = decode(text.encode())
    except JsonError:
        return text  # the check says what belongs there
    if "string" in kinds and not (value is None and "null" in kinds) and not isinstance(value, list | dict):
        numeric = isinstance(value, int | float) and not isinstance(value, bool) and not kinds.isdisjoint(("integer", "number"))
        logical = isinstance(value, bool) and "boolean" in kinds
        return value if numeric or logical else text
    return value


# -- help --------------------------------------------------------------------------------------------------------------


def _allowed(service: HostService) -> list[Registered]:
    return [binding for name, binding in service.registry.items() if service.gate.allows(name)]


def _summary(binding: Registered) -> str:
    return binding.description.partition("\n")[0]


def _example(properties: Schema) -> str:
    return f"--{next(iter(properties), 'name')} VALUE"


def _help(binding: Registered) -> str:
    schema = binding.parameters.schema
    required = schema.get("required", [])
    lines = [f"usage: {binding.name.replace(GROUP_SIGN, ' ')} {_usage(schema)}".rstrip()]
    if binding.description:
        lines += ["", *binding.description.splitlines()]
    if schema.get("properties"):
        lines.append("")
    for name, form in schema.get("properties", {}).items():
        notes = [_kind(schema, form), str(_resolved(schema, form).get("description", ""))]
        if name in required:
            notes.append("(required)")
        elif "default" in form:
            notes.append(f"(default {json.dumps(form['default'])})")
        lines.append(f"  --{name}  {'  '.join(filter(None, notes))}")
        lines += _fields(schema, form, "      ")
    lines.append("  --json OBJECT, --json-file FILE  all arguments as one JSON object")
    return "".join(f"{line}\n" for line in lines)


def _usage(schema: Schema) -> str:
    required = schema.get("required", [])
    parts = [f"--{name} {_kind(schema, form)}" for name, form in schema.get("properties", {}).items() if name in required]
    return " ".join([*parts, "[...]"] if len(parts) < len(schema.get("properties", {})) else parts)


def _kind(top: Schema, form: Any, depth: int = _DEPTH) -> str:
    """What a value may be, in a word or a few: its values, its types, what an array or a map holds."""
    form = _resolved(top, form)
    if "enum" in form:
        return "|".join(value if isinstance(value, str) else json.dumps(value) for value in form["enum"])
    alternatives = [*form.get("anyOf", ()), *form.get("oneOf", ())]
    if alternatives and depth:
        return "|".join(dict.fromkeys(_kind(top, each, depth - 1) for each in alternatives))
    kind = "|".join(sorted(_types(form))) or "JSON"
    inner = form.get("items") if kind == "array" else form.get("additionalProperties") if kind == "object" else None
    if not isinstance(inner, dict) or not inner or not depth:
        return kind
    return f"{kind} of {_kind(top, inner, depth - 1)}" if kind == "array" else f"object of {_kind(top, inner, depth - 1)} by name"


def _fields(top: Schema, form: Any, indent: str, depth: int = _DEPTH) -> list[str]:
    """A line for each field of the objects that *form* takes, those in arrays and alternatives too, and of the fields' fields."""
    if not depth:
        return []
    form = _resolved(top, form)
    lines: list[str] = []
    for name, field in form.get("properties", {}).items():
        described = _resolved(top, field).get("description", "")
        notes = [_kind(top, field), str(described), "(required)" if name in form.get("required", ()) else ""]
        lines += [f"{indent}{name}  {'  '.join(filter(None, notes))}", *_fields(top, field, indent + "    ", depth - 1)]
    for inner in (form.get("items"), form.get("additionalProperties"), *form.get("anyOf", ()), *form.get("oneOf", ())):
        lines += _fields(top, inner, indent, depth - 1)
    return lines


def _resolved(top: Schema, form: Any) -> Schema:
    """A schema, or the one that its reference leads to; empty for one that says nothing, such as true."""
    for _ in range(_DEPTH):
        if not isinstance(form, dict) or "$ref" not in form:
            break
        found: Any = top
        for step in form["$ref"].removeprefix("#/").split("/"):
            found = found[step]  # it leads somewhere: the schema was compiled
        form = found
    return form if isinstance(form, dict) else {}
