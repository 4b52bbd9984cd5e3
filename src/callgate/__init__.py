"""callgate runs untrusted programs in a private VM and judges every system call against a six-scope permission policy."""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for True, without the time that importing typing takes
if TYPE_CHECKING:
    from callgate import aio as aio
    from callgate.bindings.approval_requests import ApprovalError as ApprovalError
    from callgate.bindings.approval_requests import ApprovalOption as ApprovalOption
    from callgate.bindings.approval_requests import ApprovalRecord as ApprovalRecord
    from callgate.bindings.approval_requests import ApprovalRejected as ApprovalRejected
    from callgate.bindings.approval_requests import ApprovalRequest as ApprovalRequest
    from callgate.bindings.approval_requests import ApprovalUnsatisfiable as ApprovalUnsatisfiable
    from callgate.bindings.approvals import Approvals as Approvals
    from callgate.bindings.binding import Binding as Binding
    from callgate.bindings.binding import BindingContext as BindingContext
    from callgate.bindings.mcp_tools import McpTools as McpTools
    from callgate.guest.popen import DEVNULL as DEVNULL
    from callgate.guest.popen import PIPE as PIPE
    from callgate.guest.popen import STDOUT as STDOUT
    from callgate.guest.popen import Process as Process
    from callgate.guest.result import CalledProcessError as CalledProcessError
    from callgate.guest.result import Result as Result
    from callgate.guest.result import Timeout as Timeout
    from callgate.guest.result import Usage as Usage
    from callgate.kernel.audit import Denial as Denial
    from callgate.kernel.confinement.limits import Limits as Limits
    from callgate.registry import Registry as Registry
    from callgate.registry import setup as setup
    from callgate.scopes.errors import CallgateError as CallgateError
    from callgate.scopes.errors import InternalError as InternalError
    from callgate.scopes.errors import PermissionDenied as PermissionDenied
    from callgate.scopes.errors import PolicyError as PolicyError
    from callgate.scopes.errors import PolicyWarning as PolicyWarning
    from callgate.scopes.errors import Unsupported as Unsupported
    from callgate.scopes.permissions import Permissions as Permissions
    from callgate.scopes.policy import Policy as Policy
    from callgate.scopes.request import Verdict as Verdict
    from callgate.status import Status as Status
    from callgate.vfs.host_directory import HostDir as HostDir
    from callgate.vm import VM as VM
    from callgate.vm import agentos as agentos

__version__ = "0.1.0"

# Loaded on first use (PEP 562): a program that imports callgate and starts no VM should not pay for what a VM needs.
_HOMES = {
    "callgate.guest.popen": ("DEVNULL", "PIPE", "STDOUT", "Process"),
    "callgate.bindings.approval_requests": (
        "ApprovalError",
        "ApprovalOption",
        "ApprovalRecord",
        "ApprovalRejected",
        "ApprovalRequest",
        "ApprovalUnsatisfiable",
    ),
    "callgate.bindings.approvals": ("Approvals",),
    "callgate.bindings.binding": ("Binding", "BindingContext"),
    "callgate.bindings.mcp_tools": ("McpTools",),
    "callgate.guest.result": ("CalledProcessError", "Result", "Timeout", "Usage"),
    "callgate.kernel.audit": ("Denial",),
    "callgate.kernel.confinement.limits": ("Limits",),
    "callgate.registry": ("Registry", "setup"),
    "callgate.scopes.errors": (
        "CallgateError",
        "InternalError",
        "PermissionDenied",
        "PolicyError",
        "PolicyWarning",
        "Unsupported",
    ),
    "callgate.scopes.permissions": ("Permissions",),
    "callgate.scopes.policy": ("Policy",),
    "callgate.scopes.request": ("Verdict",),
    "callgate.vfs.host_directory": ("HostDir",),
    "callgate.vm": ("VM", "agentos"),
    "callgate.status": ("Status",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "VM",
    "ApprovalError",
    "ApprovalOption",
    "ApprovalRecord",
    "ApprovalRejected",
    "ApprovalRequest",
    "ApprovalUnsatisfiable",
    "Approvals",
    "Binding",
    "BindingContext",
    "CalledProcessError",
    "CallgateError",
    "Denial",
    "HostDir",
    "InternalError",
    "Limits",
    "McpTools",
    "PermissionDenied",
    "Permissions",
    "Policy",
    "PolicyError",
    "PolicyWarning",
    "Process",
    "Registry",
    "Result",
    "Status",
    "Timeout",
    "Unsupported",
    "Usage",
    "Verdict",
    "agentos",
    "setup",
]


def __getattr__(name: str) -> object:
    if name != "aio" and name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "aio":
        return import_module("callgate.aio")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, "aio"})
