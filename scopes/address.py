"""Host names and addresses in their one canonical spelling: every way of writing the same host is the same."""

from __future__ import annotations

from typing import Final

# Bytes. "tcp://", a name of 253 characters and a port are far below this; kernel/native/policy.c has the same number.
FOLDED_SUBJECT_MAX: Final = 1024

_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def lower_ascii(text: str) -> str:
    """ASCII letters in lower case. ``str.lower`` would also turn other characters into ASCII letters."""
    return text.translate(_ASCII_LOWER)


def fold_host(text: str) -> str:
    """A host, ``host:port`` or network subject in lower case and without the dot that may end the host."""
    text = lower_ascii(text)
    before_digits = text.rstrip("0123456789")
    host, port = text, ""
    if before_digits != text and before_digits.endswith(":"):
        host, port = before_digits[:-1], text[len(before_digits) - 1 :]
    return host.removesuffix(".") + port


def canonical_address(text: str) -> str | None:
    """The canonical spelling of a literal address, or None if the text is not one. IPv6 comes without brackets.

    IPv4 in every form of inet_aton(3) (``127.1``, ``0x7f000001``, octal) becomes four decimal numbers; IPv6 is spelled as
    inet_ntop(3) does it, a zone id is dropped, and an IPv4-mapped address is the IPv4 address it stands for.
    """
    return _ipv6(text) if ":" in text else _ipv4(text)


def _ipv6(text: str) -> str | None:
    from ipaddress import IPv6Address  # not at the top: it would be a good part of the time that "import callgate" takes

    try:
        value = int(IPv6Address(text))
    except ValueError:
        return None
    high, low = divmod(value, 1 << 32)
    if high == 0xFFFF:
        return _dotted(low)
    if high == 0 and low >= 1 << 16:
        return f"::{_dotted(low)}"  # the old IPv4-compatible form, which inet_ntop(3) still writes
    return str(IPv6Address(value))


def _dotted(value: int) -> str:
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def _ipv4(text: str) -> str | None:
    """inet_aton(3): one to four numbers, of which the last fills all the bytes that remain."""
    parts = text.split(".")
    if len(parts) > 4:
        return None
    *leading, last = (_number(part) for part in parts)
    if last is None or last >= 1 << 8 * (5 - len(parts)):
        return None
    value = last
    for position, number in enumerate(leading):
        if number is None or number > 255:
            return None
        value |= number << 8 * (3 - position)
    return _dotted(value)


def _number(text: str) -> int | None:
    """A C integer literal: decimal, 0x hexadecimal or 0 octal; None for anything else."""
    if not text.isascii() or not text.isalnum() or len(text) > 16:
        return None
    base = 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" and len(text) > 1 else 10
    try:
        return int(text[2:] if base == 16 else text, base)
    except ValueError:
        return None
