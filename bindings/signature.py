"""Reads a host function's parameters: the JSON Schema of its arguments, and how a guest's arguments become the call."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from callgate.bindings.annotations import form_of, hints_of
from callgate.bindings.binding import BindingContext, HostFunction
from callgate.bindings.form import Check, Mismatch, Schema
from callgate.bindings.json_schema import SchemaError, form_of_schema
from callgate.bindings.json_text import JsonError, decode, encode

_UNSENDABLE = {
    inspect.Parameter.VAR_POSITIONAL: "*{0} would take any number of arguments",
    inspect.Parameter.VAR_KEYWORD: "**{0} would take arguments of any name",
}


class Parameters:
    """The arguments of one binding: *schema* describes them, `bind` checks and orders them."""

    def __init__(
        self,
        schema: Schema,
        checks: Mapping[str, Check],
        *,
        whole: Check | None = None,
        required: Sequence[str] = (),
        positional_only: Sequence[str] = (),
        keyword_only: Sequence[str] = (),
        context: str | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.schema = schema
        self.context = context
        self._checks = checks
        self._whole = whole
        self._required = frozenset(required)
        self.positional_only = tuple(positional_only)
        self._in_order = tuple(name for name in checks if name not in keyword_only)
        self._defaults = defaults or {}
        # What most calls give, in the order in which most give it: every argument, and each may be passed by its name.
        self._usual = None if whole or positional_only or keyword_only else tuple(checks.items())

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments for the function. `Mismatch` says which argument is wrong and what it must be."""
        if not named and self._usual is not None and len(positional) == len(self._usual):
            return [], {name: check(value, name) for (name, check), value in zip(self._usual, positional, strict=True)}
        given = dict(zip(self._in_order, positional, strict=False))
        if len(given) < len(positional):
            raise Mismatch(f"{len(positional)} arguments were given in order; it takes {len(self._in_order)}")
        if named:
            for name in named:
                if name in given:
                    raise Mismatch(f"{name}: given twice")
            given |= named
        if self._whole is not None:
            return [], self._whole(given, "arguments")
        checks = self._checks
        arguments = {}
        for name, value in given.items():
            check = checks.get(name)
            if check is None:
                raise Mismatch(f"there is no argument {name!r}; it takes {', '.join(checks) or 'none'}")
            arguments[name] = check(value, name)
        if len(arguments) < len(checks) and not self._required.issubset(arguments):
            missing = [each for each in checks if each in self._required and each not in given]
            raise Mismatch(f"missing: {', '.join(missing)}")
        if not self.positional_only:
            return [], arguments
        first = [arguments.pop(name, self._defaults.get(name)) for name in self.positional_only]
        return first, arguments

    def with_context(self, name: str) -> Parameters:
        """The same, with the BindingContext passed as *name*."""
        same = copy.copy(self)
        same.context = name
        return same


def parameters_of(function: HostFunction, what: str) -> Parameters:
    """The parameters of a function by its annotations; one without an annotation takes any JSON value.

    `TypeError`, naming *what*, for a parameter that a guest could not give.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        raise TypeError(f"{what}: its parameters cannot be read; give the binding a schema") from None
    target = inspect.unwrap(function)
    owner = target if inspect.isroutine(target) else getattr(target, "func", type(target).__call__)
    hints = hints_of(owner, what)
    checks: dict[str, Check] = {}
    properties: dict[str, Schema] = {}
    kinds: dict[Any, list[str]] = {}
    required: list[str] = []
    defaults: dict[str, Any] = {}
    context = None
    for name, parameter in signature.parameters.items():
        if parameter.kind in _UNSENDABLE:
            raise TypeError(f"{what}: {_UNSENDABLE[parameter.kind].format(name)}; name each one, or give the binding a schema")
        if hints.get(name) is BindingContext:
            if context is not None or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise TypeError(f"{what}: one parameter may be the BindingContext, and it must be possible to pass it by name")
            context = name
            continue
        form = form_of(hints.get(name, Any), f"{what}, parameter {name}")
        checks[name] = form.check
        properties[name] = dict(form.schema)
        kinds.setdefault(parameter.kind, []).append(name)
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            defaults[name] = parameter.default
            _show_default(properties[name], parameter.default)
    schema: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Parameters(
        schema,
        checks,
        required=required,
        positional_only=kinds.get(inspect.Parameter.POSITIONAL_ONLY, ()),
        keyword_only=kinds.get(inspect.Parameter.KEYWORD_ONLY, ()),
        context=context,
        defaults=defaults,
    )


def parameters_by_schema(schema: Mapping[str, Any], what: str, *, lenient: bool = False) -> Parameters:
    """Parameters by a JSON Schema of the operator's; the function is called with what it lets through, by name."""
    if schema.get("type", "object") != "object":
        raise SchemaError(f"{what}: the schema of a binding's arguments must be of type object")
    form = form_of_schema(schema, what, lenient=lenient)
    complete = {"type": "object", **form.schema}
    return Parameters(complete, dict.fromkeys(complete.get("properties", {}), form.check), whole=form.check)


def _show_default(schema: Schema, default: Any) -> None:
    try:
        schema["default"] = decode(encode(default))
    except JsonError:
        return  # the function knows it, which is enough
