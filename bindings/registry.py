"""The host functions registered with a VM, by the names that the binding scope judges."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from callgate.bindings.binding import Binding, HostFunction

GROUP_SIGN = ":"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@runtime_checkable
class BindingSource(Protocol):
    """Something that has bindings to offer once it is opened, such as an MCP server; closed with the VM."""

    def open(self) -> Mapping[str, Binding]:
        """Its bindings by name."""
        ...

    @property
    def name(self) -> str:
        """The group they are registered as where the operator names none; known once it is open."""
        ...

    def close(self) -> None:
        """Let go of whatever it holds."""
        ...


@dataclass(frozen=True)
class Prepared(Binding):
    """A binding whose parameters have been read, from *function* or from what that stands before."""

    parameters: Any = None  # signature.Parameters: loaded only where there are bindings


#: What one name of `VM(bindings=)` may stand for.
Offer: TypeAlias = HostFunction | Binding

#: What `VM(bindings=)` takes: functions by name, groups of functions by name, or a source of them.
Bindings: TypeAlias = Mapping[str, Offer | Mapping[str, Offer] | BindingSource] | BindingSource


@dataclass(frozen=True, slots=True)
class Registered:
    """A binding under its full name, ready to be called."""

    name: str
    function: HostFunction
    description: str
    parameters: Any  # signature.Parameters: loaded only where there are bindings
    timeout: float | None
    external: bool

    def as_tool(self) -> dict[str, Any]:
        """Name, description and JSON Schema, in the form of an MCP tool."""
        tool = {"name": self.name, "description": self.description, "inputSchema": self.parameters.schema}
        return {**tool, "external": True} if self.external else tool


class BindingRegistry(Mapping[str, Registered]):
    """Bindings by full name: `add`, or `math:add` for the function `add` of the group `math`."""

    def __init__(self, bindings: Bindings | None = None) -> None:
        self._registered: dict[str, Registered] = {}
        self._sources: list[BindingSource] = []
        try:
            self._register_all(bindings)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Registered:
        return self._registered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._registered))

    def __len__(self) -> int:
        return len(self._registered)

    def groups(self) -> tuple[str, ...]:
        """The names of the groups, in the order of their registration."""
        return tuple(dict.fromkeys(name.partition(GROUP_SIGN)[0] for name in self if GROUP_SIGN in name))

    def commands(self) -> tuple[str, ...]:
        """The names of the commands in the VM: one for each binding without a group, and one for each group."""
        return tuple(dict.fromkeys(name.partition(GROUP_SIGN)[0] for name in self))

    def register(self, name: str, offer: Offer) -> Registered:
        """Add one binding under a full name.

        `TypeError` or `ValueError` for what cannot be a binding, and for a name that is taken, by a group as well: both
        would be one command.
        """
        group, sign, member = name.partition(GROUP_SIGN) if isinstance(name, str) else ("", "", "")
        for part in (group, member) if sign else (name,):
            _check_name(part)
        made = _registered(name, offer)
        if name in self._registered:
            raise ValueError(f"binding {name!r} is given twice")
        if (sign and group in self._registered) or (not sign and name in self.groups()):
            raise ValueError(f"{group!r} is given as a binding and as a group")
        self._registered[name] = made
        return made

    def close(self) -> None:
        """Close the sources."""
        while self._sources:
            self._sources.pop().close()

    def _register_all(self, bindings: Bindings | None) -> None:
        if isinstance(bindings, BindingSource):
            opened = self._open(bindings)
            self._register_group(bindings.name, opened)
            return
        if bindings is not None and not isinstance(bindings, Mapping):
            raise TypeError(f"bindings must map names to functions, not be {type(bindings).__name__}")
        for name, value in (bindings or {}).items():
            if isinstance(value, BindingSource):
                self._register_group(name, self._open(value))
            elif isinstance(value, Mapping):
                self._register_group(name, value)
            else:
                _check_name(name)  # a group is a mapping of its own
                self.register(name, value)

    def _open(self, source: BindingSource) -> Mapping[str, Binding]:
        self._sources.append(source)
        return source.open()

    def _register_group(self, group: str, members: Mapping[str, Offer]) -> None:
        _check_name(group)
        for member, value in members.items():
            _check_name(member)
            self.register(f"{group}{GROUP_SIGN}{member}", value)


def prepare(offer: Offer, what: str) -> Prepared:
    """A binding with its description and parameters; `TypeError` or `ValueError`, naming *what*, for what cannot be one."""
    from callgate.bindings.signature import parameters_by_schema, parameters_of

    if isinstance(offer, Prepared):
        return offer
    binding = offer if isinstance(offer, Binding) else Binding(offer)
    function = binding.function
    if not callable(function):
        raise TypeError(f"{what} is {type(function).__name__}, which cannot be called")
    if binding.timeout is not None and not binding.timeout > 0:
        raise ValueError(f"{what}: the timeout must be more than 0 seconds, or None")
    if binding.schema is not None:
        parameters = parameters_by_schema(binding.schema, what, lenient=binding.external)
    else:
        parameters = parameters_of(function, what)
    described = binding.description
    if described is None:
        described = inspect.getdoc(function) if inspect.isroutine(function) else None
    return Prepared(function, described or "", binding.schema, binding.timeout, binding.external, parameters)


def _registered(name: str, offer: Offer) -> Registered:
    made = prepare(offer, f"binding {name!r}")
    return Registered(name, made.function, made.description or "", made.parameters, made.timeout, made.external)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a binding must be str, not {type(name).__name__}")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"{name!r} cannot name a binding: 1 to 64 of the letters A-Z and a-z, digits, '_', '.' and '-'")
    if name.startswith("callgate-"):
        raise ValueError(f"{name!r} cannot name a binding: its command would take the place of one of callgate's own")


#: Turns a function into a binding of a VM, as a decorator.
Decorator: TypeAlias = Callable[[HostFunction], HostFunction]
