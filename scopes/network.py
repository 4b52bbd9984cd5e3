"""The network scope: a pattern is ``host``, ``host:port`` or a tcp, udp or dns URL; a subject is always such a URL (SPEC 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from callgate.scopes.address import canonical_address, fold_host, lower_ascii
from callgate.scopes.errors import shown_value

_SCHEMES: Final = ("tcp", "udp", "dns")
_WILDCARDS: Final = frozenset("*?")
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.") | _WILDCARDS
_IPV6_CHARACTERS: Final = frozenset("0123456789abcdef:.") | _WILDCARDS
_DIGITS: Final = frozenset("0123456789")
_HEX_DIGITS: Final = _DIGITS | frozenset("abcdef")
_PORT_CHARACTERS: Final = _DIGITS | _WILDCARDS
_PORT_MAX: Final = 65535
_LOCALHOST_ADDRESSES: Final = ("127.0.0.1", "[::1]")


class _Pattern(NamedTuple):
    scheme: str | None
    host: str  # canonical; an IPv6 address in brackets
    port: str | None


def mistake(pattern: str) -> str | None:
    """What is wrong with a pattern, or None."""
    if pattern in ("*", "**"):
        return None
    try:
        _parse(pattern)
    except ValueError as error:
        return f"{shown_value(pattern)} is not a host pattern: {error}"
    return None


def globs(pattern: str) -> tuple[str, ...]:
    """The pattern as globs over subjects. A name that may be connected to on some port may also be looked up."""
    if pattern in ("*", "**"):
        return ("**",)
    scheme, host, port = _parse(pattern)
    if scheme == "dns":
        return (f"dns://{host}",)
    # A socket sees addresses, never the name: localhost is the two that the VM's own /etc/hosts gives it.
    hosts = (host, *_LOCALHOST_ADDRESSES) if host == "localhost" else (host,)
    schemes = (scheme,) if scheme is not None else ("tcp", "udp")
    reached = tuple(f"{each}://{name}:{port or '*'}" for name in hosts for each in schemes)
    return reached if scheme is not None else (*reached, f"dns://{host}")


def names_address(glob: str) -> bool:
    """True if a compiled glob is about an address or a range of them, not about a host by name or about everything.

    Only such rules speak of the real address that a name leads to (SPEC 3.2). A name cannot end in a number, so what is made of
    digits, dots and wildcards is an address.
    """
    host = glob.partition("://")[2].rpartition(":")[0]
    if host.startswith("["):
        return bool(set(host) & _HEX_DIGITS)
    return bool(set(host) & _DIGITS) and set(host) <= _DIGITS | _WILDCARDS | {"."}


def never_matches(pattern: str, operations: Sequence[str]) -> str | None:
    """Why the pattern can match no subject of these operations, or None."""
    scheme, separator, _ = lower_ascii(pattern).partition("://")
    if not separator or "*" in operations:
        return None
    if scheme == "dns" and "dns" not in operations:
        return f"{shown_value(pattern)} is the subject of dns alone, not of {', '.join(operations)}"
    if scheme != "dns" and set(operations) == {"dns"}:
        return f'dns is judged as "dns://host", never as {shown_value(pattern)}'
    return None


def canonical_host(host: str) -> str:
    """A host in its one spelling: lower case, no trailing dot, an address as `canonical_address` has it, without brackets."""
    host = fold_host(host)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    return canonical_address(bare) or bare


def canonical_subject(subject: str, operation: str) -> str:
    """A subject in the one spelling that is judged; one without a scheme gets the operation's. Never fails."""
    if "://" not in subject:
        subject = f"{'dns' if operation == 'dns' else 'tcp'}://{subject}"
    scheme, _, rest = fold_host(subject).partition("://")
    if rest.startswith("["):
        host, bracket, port = rest[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return f"{scheme}://{rest}"
    elif rest.count(":") == 1 and scheme != "dns":
        host, _, port = rest.partition(":")
        port = ":" + port
    else:
        host, port = rest, ""
    return f"{scheme}://{_bracketed(canonical_host(host))}{port}"


def unclear(subject: str, operation: str) -> str | None:
    """Why a subject that somebody asks about is none of the operation, or None."""
    scheme, separator, rest = lower_ascii(subject).partition("://")
    lookup = operation == "dns"
    instead = 'write the host alone, for example "example.com"' if lookup else 'write host:port, for example "example.com:443"'
    if not separator:
        rest = scheme
    elif scheme not in (("dns",) if lookup else ("tcp", "udp")):
        return f"{shown_value(subject)} is not what {operation} is judged by; {instead}"
    if "/" in rest:
        return f"{shown_value(subject)} holds a path; {instead}"
    try:
        host, port = _split_port(rest)
    except ValueError as error:
        return f"{shown_value(subject)}: {error}"
    if not host:
        return f"{shown_value(subject)} names no host; {instead}"
    if lookup:
        return None if port is None else f"{shown_value(subject)}: a name lookup has no port; {instead}"
    if port is None:
        return f"{shown_value(subject)} has no port; {instead}"
    if not port or not set(port) <= _DIGITS or int(port[:9]) > _PORT_MAX:
        return f"{shown_value(subject)}: {shown_value(port)} is not a port; {instead}"
    return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _parse(pattern: str) -> _Pattern:
    """ValueError, with what to write instead, for anything that is not one of the forms."""
    prefix, separator, rest = lower_ascii(pattern).partition("://")
    scheme = prefix if separator else None
    if scheme is None:
        rest = prefix
    elif scheme not in _SCHEMES:
        host = rest.partition("/")[0]
        raise ValueError(f"the scheme must be tcp, udp or dns; for every protocol write {shown_value(host)}")
    if "/" in rest:
        tail = rest.rpartition("/")[2]
        instead = 'address ranges are written with wildcards, as in "10.0.*"' if tail.isdigit() else "a host has no path"
        raise ValueError(f"'/' is not part of a host; {instead}")
    host, port = _split_port(rest)
    if port is not None and scheme == "dns":
        raise ValueError("a name lookup has no port")
    return _Pattern(scheme, _host(host), None if port is None else _port(port))


def _split_port(text: str) -> tuple[str, str | None]:
    """The host, an IPv6 address still in the brackets it came in, and the port if there is one."""
    if text.startswith("["):
        host, bracket, tail = text.partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise ValueError('an IPv6 address is written "[address]" or "[address]:port"')
        return f"{host}]", tail[1:] if tail else None
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return (f"[{text}]" if ":" in text else text), None


def _port(port: str) -> str:
    if not port or not set(port) <= _PORT_CHARACTERS or len(port) > 5:
        raise ValueError(f"{shown_value(port)} is not a port: a number up to {_PORT_MAX}, '*' and '?' standing for digits")
    if _WILDCARDS & set(port):
        return port
    if int(port) > _PORT_MAX:
        raise ValueError(f"port {port} is greater than {_PORT_MAX}")
    return str(int(port))


def _host(host: str) -> str:
    if host.startswith("["):
        return _bracketed(_ipv6(host[1:-1]))
    host = host.removesuffix(".")
    if not host:
        raise ValueError('the host is missing; for every host write "*"')
    if not host.isascii():
        raise ValueError("a name with other letters than ASCII is written in the form that is looked up, xn--...")
    if not set(host) <= _NAME_CHARACTERS:
        odd = ", ".join(repr(character) for character in sorted(set(host) - _NAME_CHARACTERS))
        raise ValueError(f"a host name holds no {odd}")
    if host.startswith("."):
        raise ValueError(f"an empty label; for every name below it write {shown_value('*' + host)}")
    if ".." in host:
        raise ValueError("an empty label")
    if _WILDCARDS & set(host):
        return host
    address = canonical_address(host)
    if address is None and host.rpartition(".")[2].isdigit():
        raise ValueError("not an IPv4 address, and no name ends in a number")
    return address or host


def _ipv6(text: str) -> str:
    """The canonical spelling of what stood in brackets: an IPv6 address, or the IPv4 address it is mapped from."""
    if "%" in text:
        raise ValueError("a zone id is not part of a policy; write the address alone")
    if _WILDCARDS & set(text):
        if not set(text) <= _IPV6_CHARACTERS or ":" not in text:
            raise ValueError("not an IPv6 address")
        if text.startswith("::ffff:"):
            raise ValueError("an IPv4-mapped address is the same as its IPv4 address; write that one")
        return text
    address = canonical_address(text) if ":" in text else None
    if address is None:
        hint = '; one with a port is written "[address]:port"' if text.count(":") > 1 else ""
        raise ValueError(f"not an IPv6 address{hint}")
    return address
