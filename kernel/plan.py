"""Compiles a policy and what the operator adds to a VM into the launch blob: all that the supervisor is told before it starts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from callgate.kernel.confinement import host_service
from callgate.kernel.confinement import runtime_image as image
from callgate.kernel.confinement.filter import build_filter
from callgate.kernel.confinement.host_service import HostPrograms
from callgate.kernel.confinement.limit_plan import DEFAULTS, Defaults, LimitPlan, plan_limits
from callgate.kernel.confinement.limits import Limits
from callgate.kernel.confinement.operator_paths import READ_ONLY_DENIES, Mount, add_files, add_mounts, vm_path
from callgate.kernel.confinement.root import DEVICES, User, base_root
from callgate.kernel.egress.listeners import DATAGRAMS, STREAMS
from callgate.kernel.launch_blob import BindFlag, Launch, LaunchFlag, Listener, SetupStep, StepKind
from callgate.kernel.policy_blob import policy_blob
from callgate.kernel.syscalls.row import NOEXEC, SETID
from callgate.scopes import CompiledRule, CompiledScope, Policy
from callgate.scopes.errors import denied
from callgate.scopes.fs import exactly, mistake, normalised, subtree
from callgate.scopes.operations import OPERATIONS, operation_mask
from callgate.scopes.rules import RULE_DEVICE, RULE_MOUNT, RULE_RUNTIME_IMAGE, RULE_UNSUPPORTED

#: Operations on devices that no policy takes away (SPEC 3.1); the others would change the VM's set-up.
_DEVICE_OPERATIONS = ("read", "write", "stat", "readdir", "readlink", "truncate")

_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class Plan:
    """A VM ready to be launched by the process that compiled it."""

    blob: bytes = field(repr=False)
    policy: Policy  # with the rules that the kernel adds: what is enforced and explained
    notified: frozenset[str]  # triggers that the supervisor decides; see kernel/syscalls/row.py
    user: User
    workdir: str
    mounts: tuple[Mount, ...]
    runtime_image: tuple[str, ...]
    hostname: str
    host_ports: tuple[int, ...]
    limits: LimitPlan
    flags: LaunchFlag
    listeners: tuple[Listener, ...] = ()  # sockets that the host serves inside the VM
    degradations: tuple[str, ...] = ()

    @property
    def operator_sources(self) -> frozenset[bytes]:
        """The host directories that the operator asked to mount."""
        return frozenset(os.fsencode(mount.source) for mount in self.mounts)


def compile_plan(
    policy: Policy,
    *,
    files: Mapping[str, bytes] | None = None,
    mounts: Iterable[Mount] = (),
    user: str = "agentos",
    cwd: str | None = None,
    runtime_image: Iterable[str] | None = None,
    host_programs: HostPrograms | None = None,
    noexec: bool = False,
    limits: LimitPlan | None = None,
    host_ports: Iterable[int] = (),
    defaults: Defaults = DEFAULTS,
) -> Plan:
    """The plan of a VM under *policy*; with *noexec* nothing that a guest can write can be executed.

    With *host_programs* the VM has a socket of the host's services, and these programs that use it.

    Raises `ValueError` for a path or name that cannot be, and `PermissionDenied` for a mount that the policy refuses.
    """
    account = _account(user, defaults)
    globs = _image_globs(runtime_image)
    root, mounted = add_mounts(base_root(account, defaults.hostname), mounts, lambda path: _judge_sensitive(policy, path))
    root = add_files(root, files or {})
    limits = plan_limits(Limits(), defaults=defaults) if limits is None else limits
    for mount in mounted:
        host_service.refuse_inside(mount.destination, "mount")
    for path in files or {}:
        host_service.refuse_inside(vm_path(path, "file"), "file")
    listeners: tuple[Listener, ...] = (DATAGRAMS, STREAMS)
    if host_programs is not None:
        root = host_service.add_host_service(root, host_programs, noexec=noexec)
        listeners = (*listeners, host_service.LISTENER)
    _check_disk(files or {}, limits.disk_bytes)
    enforced = policy.with_rules(before=_image_rules(globs), after=_kernel_rules(mounted))
    compiled = enforced.compiled()
    notified = _notified(compiled, host_is_writable=any(not mount.read_only for mount in mounted))
    if policy.names_tracing:
        notified |= {"process"}
    if noexec:
        notified |= {NOEXEC}
    enforced = enforced.refusing_tracing()  # after asking what is notified: where nothing is, the filter refuses tracing
    flags = _flags(notified)
    workdir = account.home if cwd is None else vm_path(cwd, "cwd")
    opened = tuple(host_ports)
    launch = Launch(
        flags=flags,
        host_pid=os.getpid(),
        guest_uid=account.uid,
        guest_gid=account.gid,
        hostname=defaults.hostname.encode(),
        workdir=os.fsencode(workdir),
        disk_bytes=limits.disk_bytes,
        disk_inodes=limits.disk_inodes,
        setup=_without_exec(root.steps) if noexec else root.steps,
        limits=limits.entries,
        listeners=listeners,
        host_ports=opened,
        filter=_filter(notified),
        policy=policy_blob(enforced.compiled()),
    )
    return Plan(
        blob=launch.encode(),
        policy=enforced,
        notified=notified,
        user=account,
        workdir=workdir,
        mounts=mounted,
        runtime_image=globs,
        hostname=defaults.hostname,
        host_ports=opened,
        limits=limits,
        flags=flags,
        degradations=limits.degradations,
        listeners=listeners,
    )


_filter = lru_cache(maxsize=64)(build_filter)


def _account(name: str, defaults: Defaults) -> User:
    if name == "root":
        return User("root", 0, 0, "/root")
    if not _USER_NAME.fullmatch(name) or name == "nobody":
        raise ValueError(f"user {name!r} is not a user name: lower-case letters, digits, '_' and '-', at most 32")
    return User(name, defaults.guest_id, defaults.guest_id, f"/home/{name}")


def _image_globs(given: Iterable[str] | None) -> tuple[str, ...]:
    if given is None:
        return image.default_image()
    if isinstance(given, str):
        raise TypeError("runtime_image must be several path globs, not one string")
    globs = tuple(given)
    for glob in globs:
        if (wrong := mistake(glob)) is not None:
            raise ValueError(f"runtime_image: {wrong}")
    return tuple(map(normalised, globs))


@lru_cache(maxsize=8)
def _image_rules(globs: tuple[str, ...]) -> tuple[CompiledRule, ...]:
    """Allow rules that stand before the user's, so that an explicit deny still wins."""
    if not globs:
        return ()
    return (
        CompiledRule(True, operation_mask("fs", image.OPERATIONS), RULE_RUNTIME_IMAGE, globs),
        CompiledRule(True, operation_mask("fs", image.ANCESTOR_OPERATIONS), RULE_RUNTIME_IMAGE, image.ancestors(globs)),
    )


def _kernel_rules(mounts: tuple[Mount, ...]) -> tuple[CompiledRule, ...]:
    """Rules that stand after the user's and that no policy changes: writes to read-only mounts, and the standard devices."""
    read_only = tuple(subtree(mount.destination) for mount in mounts if mount.read_only)
    rules = [CompiledRule(False, operation_mask("fs", READ_ONLY_DENIES), RULE_MOUNT, read_only)] if read_only else []
    return (*rules, *_device_rules(), *host_service.rules())


@lru_cache(maxsize=1)
def _device_rules() -> tuple[CompiledRule, ...]:
    links = ("fd", "stdin", "stdout", "stderr", "ptmx")
    return (
        CompiledRule(
            True,
            operation_mask("fs", _DEVICE_OPERATIONS),
            RULE_DEVICE,
            (*(exactly(f"/dev/{name}") for name in DEVICES), subtree("/dev/pts")),
        ),
        CompiledRule(
            True, operation_mask("fs", ("stat", "readlink")), RULE_DEVICE, tuple(exactly(f"/dev/{name}") for name in links)
        ),
    )


def _judge_sensitive(policy: Policy, path: str) -> None:
    verdict = policy.judge("fs", "mount_sensitive", path)
    if not verdict.allowed:
        raise denied("fs", "mount_sensitive", path, rule=verdict.rule)


def _check_disk(files: Mapping[str, bytes], disk_bytes: int) -> None:
    total = sum(map(len, files.values()))
    if total > disk_bytes:
        raise ValueError(f"files: {total} bytes do not fit the VM's disk of {disk_bytes}")


def _notified(compiled: Mapping[str, CompiledScope], *, host_is_writable: bool) -> frozenset[str]:
    """The operations whose verdict is not "allow" for every subject: these the supervisor is asked about.

    Also `setid` where a guest could leave a set-user-ID program of the operator's in a directory of the host, and every call on
    a path where the policy may refuse `inspect` or `ptrace`: through /proc another process is inspected, and its memory had.
    """
    triggers = {f"fs.{name}" for name in _restricted(compiled["fs"])}
    if any(_may_refuse(compiled["process"], action) for action in ("inspect", "ptrace")):
        triggers.update(_INSPECTING)
    if triggers:
        triggers.add("fs.*")
    triggers.update(scope for scope in ("childProcess", "process", "env") if _restricted(compiled[scope]))
    triggers.add("network")  # whatever the policy: outside the VM there are local addresses, which no bare "allow" opens
    if host_is_writable:
        triggers.add(SETID)
    return frozenset(triggers)


# By /proc/<pid>/fd a guest would write into another's pipes, memory files and removed files, and by /proc/<pid>/cwd beside it.
_INSPECTING = tuple(f"fs.{name}" for name in OPERATIONS["fs"] if name != "mount_sensitive")


def _may_refuse(process: CompiledScope, action: str) -> bool:
    """False only if the policy's own words can refuse no subject that starts with *action*.

    That tracing wants a rule that names it is not the policy's word: who says nothing about processes does not pay for it.
    """
    if not process.default_allow:
        return True
    for rule in process.rules:
        for glob in rule.globs if not rule.allow and rule.rule != RULE_UNSUPPORTED else ():
            literal = glob[: min((glob.find(sign) for sign in "*?" if sign in glob), default=len(glob))]
            if literal.startswith(action) or action.startswith(literal):
                return True
    return False


@lru_cache(maxsize=256)
def _restricted(scope: CompiledScope) -> tuple[str, ...]:
    """The operations that are not allowed on every subject."""
    return tuple(name for name in scope.operations if scope.constant(name) is not True)


def _flags(notified: frozenset[str]) -> LaunchFlag:
    flags = LaunchFlag.LOOPBACK  # also under network: "deny", where it leads to the VM's resolver and nowhere else
    if notified & {"childProcess", "process", "env"}:
        flags |= LaunchFlag.REGISTER
    if SETID in notified:
        flags |= LaunchFlag.NO_SETID
    if NOEXEC in notified:
        flags |= LaunchFlag.NO_EXEC
    return flags


def _without_exec(steps: tuple[SetupStep, ...]) -> tuple[SetupStep, ...]:
    """The steps with every writable host directory mounted noexec; the root's own tmpfs is by its launch flag."""
    keeps = BindFlag.READ_ONLY | BindFlag.DEVICE
    return tuple(
        replace(step, flags=step.flags | BindFlag.NO_EXEC) if step.kind is StepKind.BIND and not step.flags & keeps else step
        for step in steps
    )
