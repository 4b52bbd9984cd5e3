"""The host functions registered with a VM, by the names that the binding scope judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

#: A host function. Its arguments come from untrusted code.
Binding: TypeAlias = Callable[..., Any]

#: What `VM(bindings=)` takes: functions by name, and groups of functions by name.
Bindings: TypeAlias = Mapping[str, Binding | Mapping[str, Binding]]

_GROUP_SIGN = ":"


class BindingRegistry(Mapping[str, Binding]):
    """Functions by full name: `add`, or `math:add` for the function `add` of the group `math`. Fixed once it is made."""

    def __init__(self, bindings: Bindings | None = None) -> None:
        self._functions: dict[str, Binding] = {}
        for name, value in (bindings or {}).items():
            if isinstance(value, Mapping):
                for member, function in value.items():
                    self._register(f"{_name(name)}{_GROUP_SIGN}{_name(member)}", function)
            else:
                self._register(_name(name), value)

    def __getitem__(self, name: str) -> Binding:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def _register(self, name: str, function: object) -> None:
        if not callable(function):
            raise TypeError(f"binding {name!r} is {type(function).__name__}, which cannot be called")
        if name in self._functions:
            raise ValueError(f"binding {name!r} is given twice")
        self._functions[name] = function


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a binding must be str, not {type(name).__name__}")
    if not name or _GROUP_SIGN in name or not name.isprintable():
        raise ValueError(f"{name!r} cannot name a binding: it must be printable, not empty and without {_GROUP_SIGN!r}")
    return name
