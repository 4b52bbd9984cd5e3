"""The policy language: what a permissions dict may say, and the verdict it gives on any operation. Pure: no I/O."""

from callgate.scopes.errors import (
    CallgateError,
    InternalError,
    PermissionDenied,
    PolicyError,
    PolicyWarning,
    Problem,
    Unsupported,
)
from callgate.scopes.operations import OPERATIONS, SCOPES
from callgate.scopes.permissions import Permissions
from callgate.scopes.policy import Policy
from callgate.scopes.request import Request, Verdict
from callgate.scopes.rules import CompiledRule, CompiledScope

__all__ = [
    "OPERATIONS",
    "SCOPES",
    "CallgateError",
    "CompiledRule",
    "CompiledScope",
    "InternalError",
    "PermissionDenied",
    "Permissions",
    "Policy",
    "PolicyError",
    "PolicyWarning",
    "Problem",
    "Request",
    "Unsupported",
    "Verdict",
]
