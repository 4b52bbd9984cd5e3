"""Turns a failed launch into an error that says what the host lacks and what to do about it."""

from __future__ import annotations

import errno
import os

from callgate.kernel.protocol import LaunchFailed
from callgate.scopes.errors import InternalError, Unsupported

_NAMESPACES = (
    "this host does not let callgate make a user namespace. Debian: sysctl kernel.unprivileged_userns_clone=1. Ubuntu: sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with 'userns,'. In a container: allow the clone, "
    "unshare, mount and pivot_root calls (docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined)"
)
_NAMESPACE_LIMIT = (
    "the limit on namespaces is used up or zero: raise the sysctls user.max_user_namespaces and user.max_*_namespaces"
)
_NOTIFY_BUSY = (
    "a seccomp filter with its own listener already supervises this process (some container managers do this), and the kernel "
    "allows one: run callgate outside of it"
)
_NOTIFY_OLD = "this kernel lacks seccomp user notification with killable waits: Linux 5.19 or newer is needed"
_PROC_MASKED = (
    "this host does not let a new /proc be mounted, which is so where parts of /proc are masked (containers): docker run "
    "--security-opt systempaths=unconfined, podman run --security-opt unmask=ALL"
)
_OLD_MOUNTS = "this kernel lacks open_tree, move_mount or mount_setattr: Linux 5.19 or newer is needed"
_NOT_PIVOTABLE = "the host's root is an initramfs, which cannot be left by pivot_root(2): run from a real root filesystem"

_REFUSED = (errno.EPERM, errno.EACCES)

#: (steps, errnos, what is missing and what to do). The first line that fits is told.
_HOST_LIMITS: tuple[tuple[tuple[str, ...], tuple[int, ...], str], ...] = (
    (("namespaces", "id maps"), (*_REFUSED, errno.EINVAL, errno.ENOSYS), _NAMESPACES),
    (("namespaces",), (errno.ENOSPC, errno.EUSERS), _NAMESPACE_LIMIT),
    (("filter",), (errno.EBUSY,), _NOTIFY_BUSY),
    (("filter",), (errno.EINVAL, errno.ENOSYS, *_REFUSED), _NOTIFY_OLD),
    (("proc",), _REFUSED, _PROC_MASKED),
    (("mount", "root"), (errno.ENOSYS,), _OLD_MOUNTS),
    (("mount", "loopback", "host name", "pivot_root"), _REFUSED, _NAMESPACES),
    (("pivot_root",), (errno.EINVAL,), _NOT_PIVOTABLE),
)


def launch_error(failure: LaunchFailed, operator_sources: frozenset[bytes]) -> Unsupported | InternalError:
    """The error for *failure*; *operator_sources* are the host directories that the operator asked to mount."""
    step = failure.step.decode("utf-8", "replace")
    detail = os.fsdecode(failure.detail)
    name = errno.errorcode.get(failure.errno, f"errno {failure.errno}")
    what = f"the VM could not be started: {step}{f' ({detail})' if detail else ''} failed: {os.strerror(failure.errno)} ({name})"
    if step == "mount" and failure.detail in operator_sources:
        return Unsupported(f"{what}: {detail} cannot be mounted with the rights of this process")
    for steps, numbers, advice in _HOST_LIMITS:
        if step in steps and failure.errno in numbers:
            return Unsupported(f"{what}: {advice}")
    return InternalError(what)
