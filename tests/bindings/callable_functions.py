"""What the tests of the protocol share: a function to call, and a look at errors."""

from __future__ import annotations

from typing import Any


def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


def error_of(reply: Any) -> tuple[str, str]:
    assert reply["ok"] is False
    return reply["error"]["code"], reply["error"]["message"]
