"""What the network scope says about a name before anybody connects to it: may it be looked up, is there a way to it at all."""

from __future__ import annotations

from typing import Final, NamedTuple

from callgate.scopes import CompiledScope
from callgate.scopes.glob import compile_glob

_SCHEMES: Final = ("tcp", "udp")
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
        self._ports: tuple[int, ...] | None = None

    def judge(self, name: str) -> NameVerdict:
        """The verdict on *name*, in the form that a query's `host` has."""
        allowed, rule = self._network.judge(self._operations["dns"], f"dns://{name}")
        if self._ports is None:
            self._ports = _distinguishable_ports(self._network)
        reachable = any(
            self._network.judge(self._operations[operation], f"{scheme}://{name}:{port}")[0]
            for operation in ("http", "fetch")
            for scheme in _SCHEMES
            for port in self._ports
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


def _distinguishable_ports(network: CompiledScope) -> tuple[int, ...]:
    """Ports such that any other is treated as one of them, whatever the name: a glob's last colon is the port's."""
    patterns = {glob.rpartition(":")[2] for rule in network.rules for glob in rule.globs if not glob.startswith("dns://")}
    literal = {int(pattern) for pattern in patterns if pattern.isascii() and pattern.isdigit()}
    wildcards = [compile_glob(pattern) for pattern in patterns if _WILDCARDS & set(pattern) and pattern.strip("*")]
    if not wildcards:
        other = next(port for port in range(_PORTS) if port not in literal)
        return (*sorted(literal), other)
    seen: dict[tuple[bool, ...], int] = {}
    for port in range(_PORTS):
        if port not in literal:
            seen.setdefault(tuple(glob.matches(str(port)) for glob in wildcards), port)
    return (*sorted(literal), *seen.values())
