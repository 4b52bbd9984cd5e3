"""What the network scope says about a name before anybody connects to it: may it be looked up, is there a way to it at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from callgate.scopes import CompiledRule, CompiledScope
from callgate.scopes.glob import Glob, compile_glob

_REACHING: Final = ("http", "fetch")
_SCHEMES: Final = ("tcp", "udp")
_KEPT: Final = 1024  # verdicts of one VM
_PORTS: Final = 65536
_WILDCARDS: Final = frozenset("*?")


class NameVerdict(NamedTuple):
    """The verdict on one name. ``rule`` is what decided about `dns`."""

    lookup: bool  # dns is allowed
    reachable: bool  # some operation other than dns is allowed, on some port
    rule: int


class NameVerdicts:
    """Decides about names under one policy."""

    def __init__(self, network: CompiledScope) -> None:
        self._network = network
        self._operations = {name: network.operations.index(name) for name in network.operations}
        reaching = sum(1 << self._operations[operation] for operation in _REACHING)
        self._rules = [(rule, _parts(rule)) for rule in network.rules if rule.operations & reaching]
        self.judge = lru_cache(maxsize=_KEPT)(self._judge)

    def _judge(self, name: str) -> NameVerdict:
        """The verdict on *name*, in the form that a query's `host` has."""
        allowed, rule = self._network.judge(self._operations["dns"], f"dns://{name}")
        # Of a thousand rules a few are about this name, and of the ports those that they mention and one other.
        about = [(each, parts) for each, parts in self._rules if any(part.host.matches(name) for part in parts)]
        ports = _distinguishable_ports(part.port for _, parts in about for part in parts if part.host.matches(name))
        network = replace(self._network, rules=tuple(each for each, _ in about))
        reachable = any(
            network.judge(self._operations[operation], f"{scheme}://{name}:{port}")[0]
            for operation in _REACHING
            for scheme in _SCHEMES
            for port in ports
        )
        return NameVerdict(allowed, reachable, rule)

    def alias(self, name: str) -> int | None:
        """The rule that names what *name* is an alias for and refuses it to be looked up, or None.

        Only rules that name a host count, and not those for every host: of a name that is allowed by a rule of its own the
        policy says nothing about where it may lead, unless it says so about that very place (as for addresses, AOS-U13).
        """
        number = self._operations["dns"]
        for rule in reversed(self._network.rules):
            if rule.operations >> number & 1 and any(
                names_a_host(glob) and compile_glob(glob).matches(f"dns://{name}") for glob in rule.globs
            ):
                return None if rule.allow else rule.rule
        return None


def names_a_host(glob: str) -> bool:
    """Whether a glob of the network scope says something about the host, rather than matching every one."""
    host = glob.partition("://")[2].rpartition(":")[0] if not glob.startswith("dns://") else glob[len("dns://") :]
    return bool(set(host) - _WILDCARDS)


class _Part(NamedTuple):
    """A glob about connections: which names it is about, and which of their ports."""

    host: Glob
    port: str


def _parts(rule: CompiledRule) -> tuple[_Part, ...]:
    """A name holds no colon, so the last one of a glob that matches it is the port's. `**` is about everything."""
    return tuple(
        _Part(compile_glob(glob.partition("://")[2].rpartition(":")[0] or "**"), glob.rpartition(":")[2])
        for glob in rule.globs
        if not glob.startswith("dns://")
    )


def _distinguishable_ports(patterns: Iterable[str]) -> tuple[int, ...]:
    """Ports such that any other is treated as one of them by rules whose globs say these things about ports."""
    given = frozenset(patterns)
    literal = frozenset(int(pattern) for pattern in given if pattern.isascii() and pattern.isdigit())
    wildcards = frozenset(pattern for pattern in given if _WILDCARDS & set(pattern) and pattern.strip("*"))
    return (*sorted(literal), *_others(literal, wildcards))


@lru_cache(maxsize=_KEPT)
def _others(literal: frozenset[int], wildcards: frozenset[str]) -> tuple[int, ...]:
    """Of the ports that are not *literal*, one for each way in which the *wildcards* treat them."""
    alike = [(1 << _PORTS) - 1 & ~sum(1 << port for port in literal)]
    for pattern in sorted(wildcards):
        ports = _ports_of(pattern)
        alike = [part for whole in alike for part in (whole & ports, whole & ~ports) if part]
    return tuple((part & -part).bit_length() - 1 for part in alike if part)


@lru_cache(maxsize=_KEPT)
def _ports_of(pattern: str) -> int:
    """The ports that a pattern of digits and wildcards matches, as bits.

    Guests have this done by asking for names, in the thread that serves all VMs.
    """
    import fnmatch  # not at the top: most VMs have no such pattern

    matching = set(fnmatch.filter(_port_texts(), pattern))
    return int("".join("01"[text in matching] for text in reversed(_port_texts())), 2)


@lru_cache(maxsize=1)
def _port_texts() -> tuple[str, ...]:
    return tuple(map(str, range(_PORTS)))
