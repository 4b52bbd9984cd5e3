"""Holds values to a JSON Schema that the operator wrote or an MCP server announced, without a validator package."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from callgate.bindings.form import Form, Mismatch, json_type, mismatch

_Assertion = Callable[[Any, str], None]

#: Keywords that say something about a value but refuse none.
_NOTES = frozenset(
    ("title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly", "contentEncoding")
) | frozenset(("contentMediaType", "$schema", "$id", "$comment", "$defs", "definitions"))

_ARTICLES = {"array": "an array", "object": "an object", "integer": "an integer", "null": "null", "boolean": "true or false"}
_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))


class SchemaError(ValueError):
    """A schema that cannot be enforced: the message names the place and the keyword."""


def form_of_schema(schema: Any, place: str, *, lenient: bool = False) -> Form:
    """The form of a schema. `SchemaError` for a keyword whose meaning is not built in, unless *lenient* (others check it)."""
    if not isinstance(schema, Mapping):
        raise SchemaError(f"{place}: a JSON Schema is an object, not {json_type(schema)}")
    checks = _Compiler(schema, lenient).compile(schema, place)

    def check(value: Any, place: str) -> Any:
        checks(value, place)
        return value

    return Form(dict(schema), check)


class _Compiler:
    def __init__(self, top: Mapping[str, Any], lenient: bool) -> None:
        self._top = top
        self._lenient = lenient
        self._references: dict[str, _Assertion | None] = {}

    def compile(self, schema: Any, place: str) -> _Assertion:
        if isinstance(schema, bool):
            return _nothing if schema else _never
        if not isinstance(schema, Mapping):
            raise SchemaError(f"{place}: a JSON Schema is an object, not {json_type(schema)}")
        assertions: list[_Assertion] = []
        for keyword, argument in schema.items():
            if keyword in _NOTES:
                continue
            maker = getattr(self, f"_make_{keyword.replace('$', '')}", None)
            if maker is not None:
                assertions.append(maker(argument, f"{place}.{keyword}", schema))
            elif keyword not in ("additionalProperties", "required") and not self._lenient:
                raise SchemaError(f"{place}: the keyword {keyword!r} cannot be enforced here")
        if not {"properties", "required", "additionalProperties"}.isdisjoint(schema):
            assertions.append(self._members(schema, place))

        def check(value: Any, place: str) -> None:
            for assertion in assertions:
                assertion(value, place)

        return assertions[0] if len(assertions) == 1 else check

    def _make_ref(self, target: Any, place: str, schema: Any) -> _Assertion:  # noqa: ARG002 - the shape all makers share
        if not isinstance(target, str) or not target.startswith("#/"):
            raise SchemaError(f"{place}: only references into the schema itself are followed")
        if target not in self._references:
            self._references[target] = None
            found: Any = self._top
            for step in target[2:].split("/"):
                if not isinstance(found, Mapping) or step not in found:
                    raise SchemaError(f"{place}: {target} leads nowhere")
                found = found[step]
            self._references[target] = self.compile(found, target)

        def check(value: Any, place: str) -> None:
            assertion = self._references[target]
            if assertion is not None:
                assertion(value, place)

        return check

    def _make_type(self, names: Any, place: str, schema: Any) -> _Assertion:  # noqa: ARG002
        wanted = [names] if isinstance(names, str) else names
        if not isinstance(wanted, list) or not wanted or not _TYPES.issuperset(wanted):
            raise SchemaError(f"{place}: {names!r} is not a type")
        text = " or ".join(_ARTICLES.get(name, f"a {name}") for name in wanted)

        def check(value: Any, place: str) -> None:
            found = json_type(value)
            if found not in wanted and not (found == "integer" and "number" in wanted):
                if found == "number" and "integer" in wanted and value.is_integer():
                    return
                raise mismatch(place, text, value)

        return check

    def _make_enum(self, values: Any, place: str, schema: Any) -> _Assertion:  # noqa: ARG002
        if not isinstance(values, list) or not values:
            raise SchemaError(f"{place}: must be an array of values")

        def check(value: Any, place: str) -> None:
            if not any(_same(value, allowed) for allowed in values):
                raise Mismatch(f"{place}: must be one of {', '.join(map(repr, values))}")

        return check

    def _make_const(self, value: Any, place: str, schema: Any) -> _Assertion:
        return self._make_enum([value], place, schema)

    def _make_properties(self, members: Any, place: str, schema: Any) -> _Assertion:  # noqa: ARG002
        if not isinstance(members, Mapping):
            raise SchemaError(f"{place}: must be an object")
        return _nothing  # see _members

    def _members(self, schema: Mapping[str, Any], place: str) -> _Assertion:
        checks = {name: self.compile(inner, f"{place}.{name}") for name, inner in schema.get("properties", {}).items()}
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise SchemaError(f"{place}.required: must be an array of names")
        others = self.compile(schema.get("additionalProperties", True), f"{place}.additionalProperties")

        def check(value: Any, place: str) -> None:
            if not isinstance(value, dict):
                return
            for name in required:
                if name not in value:
                    raise Mismatch(f"{place}: {name!r} is missing")
            for name, entry in value.items():
                if name in checks:
                    checks[name](entry, f"{place}.{name}")
                elif others is _never:
                    raise Mismatch(f"{place}: has no {name!r}; it has {', '.join(checks) or 'nothing'}")
                else:
                    others(entry, f"{place}.{name}")

        return check

    def _make_items(self, schema: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        item = self.compile(schema, place)

        def check(value: Any, place: str) -> None:
            for index, entry in enumerate(value if isinstance(value, list) else ()):
                item(entry, f"{place}[{index}]")

        return check

    def _several(self, schemas: Any, place: str) -> list[_Assertion]:
        if not isinstance(schemas, list) or not schemas:
            raise SchemaError(f"{place}: must be an array of schemas")
        return [self.compile(schema, f"{place}[{index}]") for index, schema in enumerate(schemas)]

    def _make_allOf(self, schemas: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002 - JSON Schema's spelling
        parts = self._several(schemas, place)

        def check(value: Any, place: str) -> None:
            for part in parts:
                part(value, place)

        return check

    def _make_anyOf(self, schemas: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        return _matching(self._several(schemas, place), lambda count: count > 0)

    def _make_oneOf(self, schemas: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        return _matching(self._several(schemas, place), lambda count: count == 1)

    def _make_pattern(self, pattern: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        try:
            search = re.compile(pattern).search
        except (re.error, TypeError) as error:
            raise SchemaError(f"{place}: {error}") from None
        return _text(lambda value: search(value) is not None, f"must match {pattern!r}")

    def _make_minLength(self, limit: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        count = _count(limit, place)
        return _text(lambda value: len(value) >= count, f"must have at least {limit} characters")

    def _make_maxLength(self, limit: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        count = _count(limit, place)
        return _text(lambda value: len(value) <= count, f"must have at most {limit} characters")

    def _make_minItems(self, limit: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        count = _count(limit, place)
        return _array(lambda value: len(value) >= count, f"must have at least {limit} items")

    def _make_maxItems(self, limit: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        count = _count(limit, place)
        return _array(lambda value: len(value) <= count, f"must have at most {limit} items")

    def _make_minimum(self, limit: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        bound = _bound(limit, place)
        return _numeric(lambda value: value >= bound, f"must be at least {limit}")

    def _make_maximum(self, limit: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        bound = _bound(limit, place)
        return _numeric(lambda value: value <= bound, f"must be at most {limit}")

    def _make_exclusiveMinimum(self, limit: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        bound = _bound(limit, place)
        return _numeric(lambda value: value > bound, f"must be above {limit}")

    def _make_exclusiveMaximum(self, limit: Any, place: str, outer: Any) -> _Assertion:  # noqa: ARG002
        bound = _bound(limit, place)
        return _numeric(lambda value: value < bound, f"must be below {limit}")


def _nothing(value: Any, place: str) -> None:
    """Refuses no value."""


def _never(value: Any, place: str) -> None:  # noqa: ARG001
    raise Mismatch(f"{place}: nothing may be given here")


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _matching(parts: Iterable[_Assertion], enough: Callable[[int], bool]) -> _Assertion:
    alternatives = list(parts)

    def check(value: Any, place: str) -> None:
        reasons = []
        for part in alternatives:
            try:
                part(value, place)
            except Mismatch as error:
                reasons.append(str(error).removeprefix(f"{place}: "))
        if not enough(len(alternatives) - len(reasons)):
            raise Mismatch(f"{place}: {'; or '.join(dict.fromkeys(reasons)) or 'fits more than one of the forms'}")

    return check


def _text(holds: Callable[[str], bool], wanted: str) -> _Assertion:
    return _when(str, holds, wanted)


def _array(holds: Callable[[list[Any]], bool], wanted: str) -> _Assertion:
    return _when(list, holds, wanted)


def _numeric(holds: Callable[[float], bool], wanted: str) -> _Assertion:
    return _when((int, float), holds, wanted)


def _when(kind: type | tuple[type, ...], holds: Callable[[Any], bool], wanted: str) -> _Assertion:
    def check(value: Any, place: str) -> None:
        if isinstance(value, kind) and not isinstance(value, bool) and not holds(value):
            raise Mismatch(f"{place}: {wanted}")

    return check


def _count(limit: Any, place: str) -> int:
    if type(limit) is not int or limit < 0:
        raise SchemaError(f"{place}: must be a count")
    return limit


def _bound(limit: Any, place: str) -> float:
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise SchemaError(f"{place}: must be a number")
    return limit
