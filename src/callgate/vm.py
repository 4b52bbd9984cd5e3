"""A VM as its user sees it: one policy, one private machine, and the programs run in it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from callgate.bindings.binding import CALL_SECONDS, Binding
from callgate.bindings.registry import BindingRegistry
from callgate.guest import guest_programs
from callgate.guest.arguments import kind, mapping, path_of_vm
from callgate.guest.callers import Callers
from callgate.guest.environment import GuestEnvironment
from callgate.guest.host_service import HostServiceHandle, PolicyGate
from callgate.guest.process import NativeGuest
from callgate.guest.run_denials import RunDenials
from callgate.kernel.audit import Denial, DenialLog
from callgate.kernel.confinement import host_service
from callgate.kernel.confinement.environment import base_environment, checked
from callgate.kernel.confinement.limit_plan import cgroup_for, plan_limits
from callgate.kernel.confinement.limits import Limits, as_limits, checked_best_effort
from callgate.kernel.confinement.operator_paths import Mount
from callgate.kernel.egress.service import NameService
from callgate.kernel.launch import Supervisor
from callgate.kernel.plan import compile_plan
from callgate.programs import Programs, Spawned
from callgate.scopes.endpoints import host_endpoints
from callgate.scopes.endpoints import host_ports as checked_ports
from callgate.scopes.errors import Unsupported, denied
from callgate.scopes.policy import Policy
from callgate.scopes.request import Verdict

if TYPE_CHECKING:
    from callgate.bindings.registry import Bindings
    from callgate.guest.filesystem import GuestFiles
    from callgate.guest.ports import Response
    from callgate.scopes.permissions import Permissions
    from callgate.status import Status
    from callgate.vfs.host_directory import HostDir


_F = TypeVar("_F", bound=Callable[..., Any])


class VM(Programs):
    """A private process tree with its own filesystem, network, process table and environment, under one policy.

    The VM is started by the constructor and ends with `close`, at the end of a `with` block, or with this process. Every
    method may be called from any thread.
    """

    def __init__(
        self,
        permissions: Permissions | Mapping[str, object] | Policy | None = None,
        *,
        files: Mapping[str, bytes | str] | None = None,
        mounts: Mapping[str, HostDir] | None = None,
        env: Mapping[str, str] | None = None,
        bindings: Bindings | None = None,
        hosts: Mapping[str, str] | None = None,
        host_ports: Iterable[int] = (),
        cwd: str | os.PathLike[str] | None = None,
        user: str = "agentos",
        limits: Limits | Mapping[str, object] | None = None,
        best_effort: Iterable[str] = (),
        guest: Literal["native", "wasm"] = "native",
        engine: Literal["auto", "notify"] = "auto",
        runtime_image: Iterable[str] | None = None,
        noexec: bool = False,
        audit: object = None,
    ) -> None:
        """Start a VM.

        *permissions*: the policy (SPEC section 2); None is the secure default. *files*: content by path, owned by the guest's
        user; scripts and ELF programs are executable. *mounts*: host directories by destination. *env*: variables added to
        the VM's own. *bindings*: host functions for `call`. *hosts*: names that stand for an endpoint of the operator's choice,
        such as `{"api.example.com": "127.0.0.1:8443"}`, a local one too; *host_ports*: ports of the host's own loopback that
        programs reach as ports of theirs; the policy judges both all the same. *cwd*: where programs start and relative paths
        of `fs` lead from; the user's home by default. *user*: the name programs run as; "root" has id 0 in the VM, and no more
        rights than any other. *runtime_image*: path globs that programs may read in order to start, whatever the `fs` default
        says. *noexec*: nothing that a guest can write can be executed, neither files nor memory files; that includes *files* and
        writable *mounts*. *limits*: how much the VM may use. *best_effort*: limits, or "cgroup" for all that need one, that may
        be enforced less than fully where this host gives no cgroup; `status` then tells what is lost.

        Raises `PolicyError` for a wrong policy, `ValueError` or `TypeError` for other wrong arguments, `PermissionDenied`
        for a mount that the policy refuses and `Unsupported` if this host cannot enforce the policy or a limit; nothing is left
        running.
        """
        _refuse_unbuilt(guest=guest, engine=engine, audit=audit)
        if not isinstance(user, str):
            raise TypeError(f"user is {kind(user)}, not the name of a user")
        endpoints = host_endpoints(hosts)
        self._bindings = BindingRegistry(bindings)
        self._log = DenialLog()
        with ExitStack() as failed:
            failed.callback(self._bindings.close)
            self._grants_bindings = bool(self._bindings)
            self._policy = (
                permissions if isinstance(permissions, Policy) else Policy.parse(permissions, has_bindings=self._grants_bindings)
            )
            limits, degradable = as_limits(limits), checked_best_effort(best_effort)
            cgroup = cgroup_for(limits)
            if cgroup is not None:
                failed.callback(cgroup.remove)
            self._plan = compile_plan(
                self._policy,
                files={path: _content(path, content) for path, content in mapping(files, "files", "paths to contents").items()},
                mounts=[_mount(path, source) for path, source in mapping(mounts, "mounts", "destinations to HostDir").items()],
                user=user,
                cwd=None if cwd is None else path_of_vm(cwd, "cwd"),
                runtime_image=runtime_image,
                host_programs=guest_programs.programs(self._bindings.commands()),
                noexec=noexec,
                host_ports=checked_ports(host_ports),
                limits=plan_limits(limits, cgroup=cgroup, best_effort=degradable),
            )
            may_read_all = self._policy.compiled()["env"].constant("read")
            self._env = GuestEnvironment(
                {**base_environment(self._plan.user), **checked({} if env is None else env)},
                authorize=lambda operation, name: self._authorize("env", operation, name),
                may_read=lambda name: may_read_all or self._policy.judge("env", "read", name).allowed,
            )
            self._supervisor = Supervisor.start(self._plan, cgroup=cgroup)
            failed.callback(self._supervisor.close)
            failed.pop_all()
        denials = RunDenials(self._log)
        self._gate = PolicyGate(self._plan.policy, denials, Callers(self._supervisor.init_pid), self._supervisor.pid)
        listener = self._supervisor.listeners[self._plan.listeners.index(host_service.LISTENER)]
        self._service = HostServiceHandle(listener, self._bindings, self._gate, self)
        self._guest = NativeGuest(
            self._supervisor,
            self._log.add,
            self._log.add_unsent,
            output_limit=limits.number("output"),
            wall_seconds=limits.wall_seconds,
            by_host=denials,
            services=(self._service, NameService(self._supervisor, self._plan, endpoints, self._log.add)),
        )
        self._spawned = Spawned()

    # -- what the guest has, judged like the guest -------------------------------------------------------------------

    @property
    def fs(self) -> GuestFiles:
        """The VM's filesystem; `fs.unchecked` is the same without the policy."""
        from callgate.guest.filesystem import GuestFiles

        return GuestFiles(self._supervisor, self._plan.workdir, self._log.add)

    @property
    def env(self) -> GuestEnvironment:
        """The environment of programs started from now on."""
        return self._env

    def connect(self, port: int, *, timeout: float | None = None, wait: float = 0.0, udp: bool = False) -> socket.socket:
        """A socket connected to a server that listens on *port* of the VM's loopback; no port of the host is involved.

        For *wait* seconds a refused connection is tried again, for a server that is starting. *timeout* (seconds) is for
        connecting, and stays set on the socket. Raises `ConnectionRefusedError` if nobody listens.
        """
        from callgate.guest.ports import connect

        return connect(self._supervisor.socket, port, timeout=timeout, wait=wait, udp=udp)

    def fetch(
        self,
        port: int,
        path: str = "/",
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
        *,
        timeout: float = 30.0,
        wait: float = 0.0,
    ) -> Response:
        """An HTTP request to a server that listens on *port* inside the VM, all of it within *timeout* seconds.

        Redirects are not followed. Raises `ConnectionRefusedError` if nobody listens (*wait* as for `connect`), `TimeoutError`,
        and `ConnectionError` for an answer that is not HTTP.
        """
        from callgate.guest.ports import fetch

        return fetch(self._supervisor.socket, port, path, method, headers, body, timeout=timeout, wait=wait)

    def call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        """Call a binding as the guest would, and get what the guest would get: plain JSON data, or an iterator over it.

        Raises `PermissionDenied` if the policy refuses, `KeyError` if there is no such binding, `TypeError` for arguments it
        does not take and for a result that is not JSON, `TimeoutError` where the function takes longer than its `timeout` (a sync
        one goes on in its thread, and its result is thrown away), `ValueError` if the VM is closed, and whatever the function
        raises.
        """
        from callgate.bindings.host_call import call_here

        if not isinstance(name, str):
            raise TypeError(f"the name of a binding must be str, not {type(name).__name__}")
        self._refuse_closed()
        self._authorize("binding", "*", name)
        if name not in self._bindings:
            raise KeyError(f"there is no binding {name!r}; there are: {', '.join(self._bindings) or 'none'}")
        return call_here(self._bindings[name], args, kwargs, lambda: self)

    @overload
    def binding(self, function: _F, /) -> _F: ...

    @overload
    def binding(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        timeout: float | None = CALL_SECONDS,
        schema: Mapping[str, Any] | None = None,
    ) -> Callable[[_F], _F]: ...

    def binding(
        self,
        function: _F | None = None,
        /,
        *,
        name: str | None = None,
        timeout: float | None = CALL_SECONDS,
        schema: Mapping[str, Any] | None = None,
    ) -> _F | Callable[[_F], _F]:
        """Register a function as a binding of this VM, as a decorator: under its own name, or under *name* (`group:name`).

        Where no `binding` policy was given, the first binding grants the scope, as it does at construction.
        """

        def register(function: _F) -> _F:
            if not callable(function):
                raise TypeError(f"a binding is a function; {function!r:.80} is {kind(function)}, which cannot be called")
            self._register(name or str(getattr(function, "__name__", "")), Binding(function, schema=schema, timeout=timeout))
            return function

        return register if function is None else register(function)

    @property
    def bindings(self) -> list[dict[str, Any]]:
        """Name, description and JSON Schema (`inputSchema`) of every binding, in the form of MCP tools."""
        return [binding.as_tool() for binding in self._bindings.values()]

    # -- what is decided and what was ------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The effective policy: the given permissions over the secure default."""
        return self._policy

    def explain(self, scope: str, operation: str, subject: str) -> Verdict:
        """The verdict on an operation, without doing anything; `ValueError` for an unknown scope or operation.

        No name is looked up: a connection by name is also judged by where the name leads.
        """
        from callgate.kernel.egress.guard import with_guard

        return with_guard(self._plan.policy, scope, operation, subject)

    @property
    def runtime_image(self) -> tuple[str, ...]:
        """Globs over the paths that programs may read in order to start."""
        return self._plan.runtime_image

    @property
    def denials(self) -> tuple[Denial, ...]:
        """The latest refusals, oldest first; `status` says how many there were."""
        self._spawned.hear()
        return self._log.latest()

    def status(self) -> Status:
        """What enforces the policy, the limits in force, and the VM's counters."""
        from callgate.status import Status, enforcement, feature_names

        self._spawned.hear()
        stats = self._supervisor.stats()
        return Status(
            engine="notify",
            guest="native",
            enforcement=enforcement(self._plan),
            limits=dict(self._plan.limits.in_force),
            limits_enforced_by=dict(self._plan.limits.enforced_by),
            degradations=self._plan.degradations,
            notified=tuple(sorted(self._plan.notified)),
            features=feature_names(self._supervisor.features),
            supervisor_pid=self._supervisor.pid,
            calls_notified=stats.notified,
            programs_running=stats.runs_alive,
            denials=self._log.total,
            denials_dropped=self._log.dropped,
        )

    # -- life --------------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the VM was closed."""
        return self._supervisor.closed

    def close(self) -> None:
        """End every program and the VM itself, and wait until nothing of it is left. Calling it again does nothing."""
        self._guest.close()
        self._bindings.close()
        self._spawned.hear()  # their return codes, for who asks without polling

    def __enter__(self) -> Self:
        self._refuse_closed()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<VM {'closed' if self.closed else f'supervisor {self._supervisor.pid}'}>"

    def _refuse_closed(self) -> None:
        """What needs no supervisor would go on as if nothing had happened."""
        if self.closed:
            raise ValueError("the VM is closed")

    def _authorize(self, scope: str, operation: str, subject: str) -> None:
        verdict = self._policy.judge(scope, operation, subject)
        if not verdict.allowed:
            error = denied(scope, operation, subject, rule=verdict.rule)
            self._log.add(Denial.from_error(error))
            raise error

    def _register(self, name: str, binding: Binding) -> None:
        self._refuse_closed()
        known = set(self._bindings.commands())
        self._bindings.register(name, binding)
        for command in self._bindings.commands():
            if command not in known:
                path, text = guest_programs.link(command)
                self.fs.unchecked.symlink(text, path)
        if not self._grants_bindings:
            self._grants_bindings = True
            self._policy = self._policy.with_bindings()
            self._plan = replace(self._plan, policy=self._plan.policy.with_bindings())
            self._gate.replace(self._plan.policy)


def _mount(path: str, source: HostDir) -> Mount:
    from callgate.vfs.host_directory import HostDir

    if not isinstance(source, HostDir):
        raise TypeError(f"mounts[{path!r}] is {kind(source)}, not a directory of the host, which is HostDir({str(source)!r})")
    return Mount(path, source.path, source.mode == "ro")


def _content(path: str, content: bytes | str) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"the content of file {path!r} is {type(content).__name__}, not bytes or str")
    return bytes(content)


def agentos(**kwargs: Any) -> VM:
    """`VM` under another name."""
    return VM(**kwargs)


def _refuse_unbuilt(*, guest: str, engine: str, audit: object) -> None:
    """Arguments whose meaning is fixed but not built yet: refused, because ignoring one would confine less than was asked for."""
    if guest not in ("native", "wasm"):
        raise ValueError(f"guest {guest!r} is not one of 'native', 'wasm'")
    if engine not in ("auto", "notify", "ptrace"):
        raise ValueError(f"engine {engine!r} is not one of 'auto', 'notify', 'ptrace'")
    unbuilt = {
        "guest='wasm'": guest == "wasm",
        "engine='ptrace'": engine == "ptrace",
        "audit": audit is not None,
    }
    asked = [name for name, given in unbuilt.items() if given]
    if asked:
        raise Unsupported(f"not yet supported by this version: {', '.join(asked)}")
