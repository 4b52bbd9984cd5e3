"""What the operator opens of local networks: names that stand for an endpoint (`hosts=`), ports of the host (`host_ports=`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from callgate.scopes.address import canonical_address, lower_ascii
from callgate.scopes.errors import shown_value

_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
_NAME_MAX: Final = 253
_LABEL_MAX: Final = 63
_PORT_MAX: Final = 65535


class Endpoint(NamedTuple):
    """Where a name leads: an address (4 or 16 bytes, network order), and a port unless the guest's own is kept."""

    address: bytes
    port: int | None


def host_endpoints(hosts: Mapping[str, str] | None) -> dict[str, Endpoint]:
    """`hosts=` as endpoints by name, in lower case and without a trailing dot.

    Raises `ValueError` or `TypeError`, naming the entry, for what is no name, no endpoint, or said twice.
    """
    if hosts is None:
        return {}
    if not isinstance(hosts, Mapping):
        raise TypeError(f'hosts must be a mapping such as {{"api.example.com": "127.0.0.1:8443"}}, not {type(hosts).__name__}')
    found: dict[str, Endpoint] = {}
    written: dict[str, str] = {}
    for name, endpoint in hosts.items():
        if not isinstance(name, str):
            raise TypeError(f"hosts: {name!r} is not the name of a host")
        place = f"hosts[{shown_value(name)}]"
        host = _name(name, place)
        if host in found:
            raise ValueError(f"{place} and hosts[{shown_value(written[host])}] are the same name")
        if not isinstance(endpoint, str):
            raise TypeError(f'{place} must be a str such as "127.0.0.1:8443", not {type(endpoint).__name__}')
        found[host], written[host] = _endpoint(endpoint, place), name
    return found


def host_ports(ports: Iterable[int]) -> tuple[int, ...]:
    """`host_ports=` in order. Raises `ValueError` or `TypeError` for what is no port, or said twice."""
    if isinstance(ports, str | bytes | Mapping) or not isinstance(ports, Iterable):
        raise TypeError(f"host_ports must be several port numbers, such as [5432], not {shown_value(ports)}")
    found: set[int] = set()
    for port in ports:
        if not isinstance(port, int) or isinstance(port, bool):
            raise TypeError(f"host_ports: {shown_value(port)} is not a port number")
        if not 0 < port <= _PORT_MAX:
            raise ValueError(f"host_ports: {port} is not a port; those are 1 to {_PORT_MAX}")
        if port in found:
            raise ValueError(f"host_ports: {port} is there twice")
        found.add(port)
    return tuple(sorted(found))


def _name(text: str, place: str) -> str:
    name = lower_ascii(text).removesuffix(".")
    if "://" in name or "/" in name:
        raise ValueError(f"{place}: a name stands alone, without scheme or path")
    if canonical_address(name.removeprefix("[").removesuffix("]")) is not None:
        raise ValueError(f"{place}: an address needs no name; hosts= is for names")
    if ":" in name:
        raise ValueError(f"{place}: a name has no port; the port of the endpoint is used for each that the guest asks for")
    if "*" in name or "?" in name:
        raise ValueError(f"{place}: a name, not a pattern")
    if not name.isascii():
        raise ValueError(f"{place}: a name with other letters than ASCII is written in the form that is looked up, xn--...")
    if name == "localhost" or name.endswith(".localhost"):
        raise ValueError(f"{place}: localhost is the VM itself; host_ports= opens a port of the host's loopback")
    if not set(name) <= _NAME_CHARACTERS:
        odd = ", ".join(repr(character) for character in sorted(set(name) - _NAME_CHARACTERS))
        raise ValueError(f"{place}: a host name holds no {odd}")
    if not all(0 < len(label) <= _LABEL_MAX for label in name.split(".")) or len(name) > _NAME_MAX:
        raise ValueError(
            f"{place}: not a host name: empty, longer than {_NAME_MAX}, or a part of it is empty or longer than {_LABEL_MAX}"
        )
    if name.rpartition(".")[2].isdigit():
        raise ValueError(f"{place}: no host name ends in a number")
    return name


def _endpoint(text: str, place: str) -> Endpoint:
    host, port = _split(text, place)
    if "%" in host:
        raise ValueError(f"{place}: an endpoint has no zone id: link-local addresses cannot be opened")
    address = "127.0.0.1" if host.lower() == "localhost" else canonical_address(host)
    if address is None:
        hint = "a URL has more" if "/" in text else "a name would have to be looked up: write its address"
        raise ValueError(f'{place}: {shown_value(text)} is not an endpoint such as "127.0.0.1:8443" or "[::1]:8443"; {hint}')
    from ipaddress import ip_address  # not at the top: it would be a good part of the time that "import callgate" takes

    parsed = ip_address(address)
    if parsed.is_unspecified or parsed.is_multicast:
        raise ValueError(f"{place}: {address} is not the address of one host")
    return Endpoint(parsed.packed, port)


def _split(text: str, place: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or ":" not in host:
            raise ValueError(f'{place}: an IPv6 endpoint is written "[address]:port"')
        port = rest[1:] if rest else None
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, None
    if port is None:
        return host, None
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError(f"{place}: {shown_value(port)} is not a port; those are 1 to {_PORT_MAX}")
    return host, int(port)
