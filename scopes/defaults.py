"""The secure default that every policy is laid over (SPEC section 2, LEDGER AOS-9 and AOS-24)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from callgate.scopes.permissions import Mode

# What a program needs in order to run at all is allowed, because it reaches nothing but the VM; what leads out is not.
SECURE_DEFAULT: Final[Mapping[str, Mode]] = MappingProxyType(
    {
        "fs": "allow",
        "network": "deny",
        "childProcess": "allow",
        "process": "allow",
        "env": "allow",
        "binding": "deny",
    }
)


def default_mode(scope: str, *, has_bindings: bool) -> Mode:
    """The mode of a scope that the policy leaves out. Registering bindings is itself the consent to call them."""
    return "allow" if scope == "binding" and has_bindings else SECURE_DEFAULT[scope]
