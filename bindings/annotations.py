"""Turns the annotation of a parameter into the form of its values; what JSON cannot carry is an error at registration."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, is_typeddict

from callgate.bindings.form import Check, Form, Mismatch, Schema, mismatch

_SUPPORTED = "str, int, float, bool, None, list, dict, Optional, Union, Literal, a dataclass or a TypedDict"


def form_of(annotation: Any, place: str, _within: tuple[Any, ...] = ()) -> Form:
    """The form of values for *annotation*; *place* names the parameter in the `TypeError` for an annotation that has none."""
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if annotation is Any or annotation is object:
        return Form({}, _anything)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = form_of(arguments[0], place, _within)
        description = next((note for note in arguments[1:] if isinstance(note, str)), None)
        return inner if description is None else Form({**inner.schema, "description": description}, inner.check)
    if origin in (Union, types.UnionType):
        return _union([form_of(argument, place, _within) for argument in arguments])
    if origin is Literal:
        return _literal(arguments, place)
    if annotation is list or origin is list:
        return _list(form_of(arguments[0], f"{place}[]", _within) if arguments else None)
    if annotation is dict or origin is dict:
        if arguments and arguments[0] is not str:
            raise TypeError(f"{place}: the keys of a JSON object are str, so dict[{_shown(arguments[0])}, ...] cannot be sent")
        return _dict(form_of(arguments[1], f"{place}[]", _within) if arguments else None)
    if annotation in _within:
        raise TypeError(f"{place}: {_shown(annotation)} refers to itself, which a binding's parameter cannot")
    if is_typeddict(annotation):
        return _typed_dict(annotation, place, (*_within, annotation))
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _dataclass(annotation, place, (*_within, annotation))
    raise TypeError(f"{place}: {_shown(annotation)} cannot be sent as JSON; use {_SUPPORTED}, or give the binding a schema")


def hints_of(owner: Any, what: str) -> dict[str, Any]:
    """The resolved annotations of a function or class; `TypeError` naming *what* if one cannot be resolved."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise TypeError(f"{what}: an annotation cannot be resolved: {error}") from None


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


# -- leaves ------------------------------------------------------------------------------------------------------------


def _anything(value: Any, place: str) -> Any:  # noqa: ARG001 - the shape all checks share
    return value


def _string(value: Any, place: str) -> Any:
    if not isinstance(value, str):
        raise mismatch(place, "a string", value)
    return value


def _integer(value: Any, place: str) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON has one kind of number: 2.0 is an integer
    raise mismatch(place, "an integer", value)


def _number(value: Any, place: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise mismatch(place, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise Mismatch(f"{place}: the number is too large")
    return number


def _boolean(value: Any, place: str) -> Any:
    if not isinstance(value, bool):
        raise mismatch(place, "true or false", value)
    return value


def _null(value: Any, place: str) -> Any:
    if value is not None:
        raise mismatch(place, "null", value)
    return value


_SIMPLE: Mapping[Any, Form] = {
    str: Form({"type": "string"}, _string),
    int: Form({"type": "integer"}, _integer),
    float: Form({"type": "number"}, _number),
    bool: Form({"type": "boolean"}, _boolean),
    None: Form({"type": "null"}, _null),
    type(None): Form({"type": "null"}, _null),
}


# -- made of others -----------------------------------------------------------------------------------------------------


def _union(forms: list[Form]) -> Form:
    def check(value: Any, place: str) -> Any:
        reasons = []
        for form in exact_first:
            try:
                return form.check(value, place)
            except Mismatch as error:
                reasons.append(str(error).removeprefix(f"{place}: "))
        raise Mismatch(f"{place}: {'; or '.join(dict.fromkeys(reasons))}")

    # An integer is a number as well: in `float | int` it must stay one.
    exact_first = sorted(forms, key=lambda form: form.schema.get("type") == "number")
    return Form({"anyOf": [form.schema for form in forms]}, check)


def _literal(values: tuple[Any, ...], place: str) -> Form:
    for value in values:
        if not (value is None or isinstance(value, str | int)):
            raise TypeError(f"{place}: the literal {value!r} cannot be sent as JSON")

    def check(value: Any, place: str) -> Any:
        for allowed in values:
            if value == allowed and isinstance(value, bool) == isinstance(allowed, bool):
                return allowed
        raise Mismatch(f"{place}: must be one of {', '.join(map(repr, values))}")

    return Form({"enum": list(values)}, check)


def _list(item: Form | None) -> Form:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise mismatch(place, "an array", value)
        return value if item is None else [item.check(entry, f"{place}[{index}]") for index, entry in enumerate(value)]

    return Form({"type": "array"} | ({} if item is None else {"items": item.schema}), check)


def _dict(item: Form | None) -> Form:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise mismatch(place, "an object", value)
        return value if item is None else {key: item.check(entry, f"{place}.{key}") for key, entry in value.items()}

    return Form({"type": "object"} | ({} if item is None else {"additionalProperties": item.schema}), check)


def _object(forms: Mapping[str, Form], required: frozenset[str], title: str) -> tuple[Schema, Check]:
    schema: Schema = {
        "type": "object",
        "title": title,
        "properties": {name: form.schema for name, form in forms.items()},
        "required": [name for name in forms if name in required],
        "additionalProperties": False,
    }

    def check(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise mismatch(place, "an object", value)
        for name in value:
            if name not in forms:
                raise Mismatch(f"{place}: has no {name!r}; it has {', '.join(forms) or 'nothing'}")
        for name in required:
            if name not in value:
                raise Mismatch(f"{place}: {name!r} is missing")
        return {name: forms[name].check(entry, f"{place}.{name}") for name, entry in value.items()}

    return schema, check


def _typed_dict(annotation: Any, place: str, within: tuple[Any, ...]) -> Form:
    hints = hints_of(annotation, place)
    forms = {name: form_of(_without_qualifier(hint), f"{place}.{name}", within) for name, hint in hints.items()}
    # Where annotations are text (PEP 563) the class itself does not see its qualifiers; the resolved ones have the last word.
    required = {name for name, hint in hints.items() if get_origin(hint) is Required or name in annotation.__required_keys__}
    required -= {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    return Form(*_object(forms, frozenset(required), annotation.__name__))


def _without_qualifier(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _dataclass(annotation: Any, place: str, within: tuple[Any, ...]) -> Form:
    hints = hints_of(annotation, place)
    fields = [field for field in dataclasses.fields(annotation) if field.init]
    forms = {field.name: form_of(hints[field.name], f"{place}.{field.name}", within) for field in fields}
    missing = dataclasses.MISSING
    required = frozenset(f.name for f in fields if f.default is missing and f.default_factory is missing)
    schema, check_members = _object(forms, required, annotation.__name__)

    def check(value: Any, place: str) -> Any:
        members = check_members(value, place)
        try:
            return annotation(**members)
        except (ValueError, TypeError) as error:  # from its __post_init__: a check of the operator's own
            raise Mismatch(f"{place}: {error}") from None

    return Form(schema, check)
