"""A VM as its user sees it: one policy, one private machine, and the programs run in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from callgate.bindings.binding import CALL_SECONDS, Binding
from callgate.bindings.registry import BindingRegistry
from callgate.guest import guest_programs
from callgate.guest.callers import Callers
from callgate.guest.environment import GuestEnvironment
from callgate.guest.host_service import HostServiceHandle, PolicyGate
from callgate.guest.process import NativeGuest, NativeProcess, prepare
from callgate.guest.run_denials import RunDenials
from callgate.guest.streams import text_output
from callgate.kernel.audit import Denial, DenialLog
from callgate.kernel.confinement import host_service
from callgate.kernel.confinement.environment import base_environment, checked
from callgate.kernel.confinement.operator_paths import Mount
from callgate.kernel.launch import Supervisor
from callgate.kernel.plan import compile_plan
from callgate.scopes.errors import Unsupported, denied
from callgate.scopes.policy import Policy
from callgate.scopes.request import Verdict

if TYPE_CHECKING:
    from callgate.bindings.registry import Bindings
    from callgate.guest.filesystem import GuestFiles
    from callgate.guest.result import Command, Result
    from callgate.scopes.permissions import Permissions
    from callgate.status import Status
    from callgate.vfs.host_directory import HostDir


_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])


def _ends_bindings_on_failure(init: Callable[Concatenate[VM, _P], None]) -> Callable[Concatenate[VM, _P], None]:
    """A VM that cannot be made leaves nothing running, processes that serve its bindings included."""

    @wraps(init)
    def guarded(self: VM, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            init(self, *args, **kwargs)
        except BaseException:
            if "_bindings" in self.__dict__:
                self._bindings.close()
            raise

    return guarded


class VM:
    """A private process tree with its own filesystem, network, process table and environment, under one policy.

    The VM is started by the constructor and ends with `close`, at the end of a `with` block, or with this process. Every
    method may be called from any thread.
    """

    @_ends_bindings_on_failure
    def __init__(
        self,
        permissions: Permissions | Mapping[str, object] | None = None,
        *,
        files: Mapping[str, bytes | str] | None = None,
        mounts: Mapping[str, HostDir] | None = None,
        env: Mapping[str, str] | None = None,
        bindings: Bindings | None = None,
        hosts: Mapping[str, str] | None = None,
        host_ports: Iterable[int] = (),
        cwd: str | os.PathLike[str] | None = None,
        user: str = "agentos",
        limits: object = None,
        guest: Literal["native", "wasm"] = "native",
        engine: Literal["auto", "notify"] = "auto",
        runtime_image: Iterable[str] | None = None,
        noexec: bool = False,
        audit: object = None,
    ) -> None:
        """Start a VM.

        *permissions*: the policy (SPEC section 2); None is the secure default. *files*: content by path, owned by the guest's
        user; scripts and ELF programs are executable. *mounts*: host directories by destination. *env*: variables added to
        the VM's own. *bindings*: host functions for `call`. *cwd*: where programs start and relative paths of `fs` lead from;
        the user's home by default. *user*: the name programs run as; "root" has id 0 in the VM, and no more rights than any
        other. *runtime_image*: path globs that programs may read in order to start, whatever the `fs` default says. *noexec*:
        nothing that a guest can write can be executed, neither files nor memory files; that includes *files* and writable
        *mounts*.

        Raises `PolicyError` for a wrong policy, `ValueError` or `TypeError` for other wrong arguments, `PermissionDenied`
        for a mount that the policy refuses and `Unsupported` if this host cannot enforce the policy; nothing is left running.
        """
        _refuse_unbuilt(hosts=hosts, host_ports=tuple(host_ports), limits=limits, guest=guest, engine=engine, audit=audit)
        self._bindings = BindingRegistry(bindings)
        self._grants_bindings = bool(self._bindings)
        self._policy = Policy.parse(permissions, has_bindings=self._grants_bindings)
        self._log = DenialLog()
        self._plan = compile_plan(
            self._policy,
            files={path: _content(path, content) for path, content in (files or {}).items()},
            mounts=[Mount(path, source.path, source.mode == "ro") for path, source in (mounts or {}).items()],
            user=user,
            cwd=None if cwd is None else os.fspath(cwd),
            runtime_image=runtime_image,
            host_programs=guest_programs.programs(self._bindings.commands()),
            noexec=noexec,
        )
        may_read_all = self._policy.compiled()["env"].constant("read")
        self._env = GuestEnvironment(
            {**base_environment(self._plan.user), **checked(env or {})},
            authorize=lambda operation, name: self._authorize("env", operation, name),
            may_read=lambda name: may_read_all or self._policy.decide("env", "read", name).allowed,
        )
        self._supervisor = Supervisor.start(self._plan)
        denials = RunDenials(self._log)
        self._gate = PolicyGate(self._plan.policy, denials, Callers(self._supervisor.init_pid))
        listener = self._supervisor.listeners[self._plan.listeners.index(host_service.LISTENER)]
        self._service = HostServiceHandle(listener, self._bindings, self._gate, self)
        self._guest = NativeGuest(self._supervisor, self._log.add, self._log.add_unsent, by_host=denials, service=self._service)

    # -- programs ----------------------------------------------------------------------------------------------------

    @overload
    def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: Literal[True] = True,
    ) -> Result[str]: ...

    @overload
    def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: Literal[False],
    ) -> Result[bytes]: ...

    def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,  # noqa: A002 - the name subprocess.run has
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: bool = True,
    ) -> Result[str] | Result[bytes]:
        """Run a program to its end, standard output and error captured; everything it started is gone when this returns.

        A list is the argument vector, a string a command line for /bin/sh. *input* is its standard input, empty by default.
        *cwd* may be relative to the VM's. *env* is laid over the VM's environment. After *timeout* seconds everything it
        started is killed and `Timeout` is raised. With *check* a return code other than 0 raises `CalledProcessError`. A
        program that is not found gives return code 127 and one that cannot be executed 126, with a line on standard error.
        """
        program = prepare(argv, self._env.for_program(env), self._directory(cwd))
        stdin = input.encode() if isinstance(input, str) else bytes(input or b"")
        if text:
            return _checked(self._guest.run(program, argv, stdin=stdin, timeout=timeout, decode=text_output), check)
        return _checked(self._guest.run(program, argv, stdin=stdin, timeout=timeout, decode=bytes), check)

    def start(
        self,
        argv: Command,
        stdio: tuple[int, int, int],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        tty: bool = False,
    ) -> NativeProcess:
        """Start a program with descriptors of the caller's for its standard streams, and leave its events to the caller.

        The descriptors must be pipes, or with *tty* the far side of a pseudo-terminal made for it; never a file, directory,
        socket or terminal of the host, which would be a way out of the VM.
        """
        return self._guest.start(prepare(argv, self._env.for_program(env), self._directory(cwd)), stdio, tty=tty)

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

    def call(self, name: str, /, *args: object, **kwargs: object) -> Any:
        """Call a binding as the guest would, and get what the guest would get: plain JSON data, or an iterator over it.

        Raises `PermissionDenied` if the policy refuses, `KeyError` if there is no such binding, `TypeError` for arguments it
        does not take and for a result that is not JSON, `TimeoutError` where an async function takes too long, and whatever
        the function raises.
        """
        from callgate.bindings.host_call import call_here

        self._authorize("binding", "*", name)
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
        """The verdict on an operation, without doing anything; `ValueError` for an unknown scope or operation."""
        return self._plan.policy.decide(scope, operation, subject)

    @property
    def runtime_image(self) -> tuple[str, ...]:
        """Globs over the paths that programs may read in order to start."""
        return self._plan.runtime_image

    @property
    def denials(self) -> tuple[Denial, ...]:
        """The latest refusals, oldest first; `status` says how many there were."""
        return self._log.latest()

    def status(self) -> Status:
        """What enforces the policy, the limits in force, and the VM's counters."""
        from callgate.status import Status, enforcement, feature_names

        stats = self._supervisor.stats()
        return Status(
            engine="notify",
            guest="native",
            enforcement=enforcement(self._plan),
            limits=dict(self._plan.limits),
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<VM {'closed' if self.closed else f'supervisor {self._supervisor.pid}'}>"

    def _authorize(self, scope: str, operation: str, subject: str) -> None:
        verdict = self._policy.decide(scope, operation, subject)
        if not verdict.allowed:
            error = denied(scope, operation, subject, rule=verdict.rule)
            self._log.add(Denial.from_error(error))
            raise error

    def _register(self, name: str, binding: Binding) -> None:
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

    def _directory(self, cwd: str | os.PathLike[str] | None) -> str:
        if cwd is None:
            return self._plan.workdir
        path = os.fspath(cwd)
        if not path or "\0" in path:
            raise ValueError(f"cwd {path!r} is empty or holds a NUL character")
        return path if path.startswith("/") else f"{self._plan.workdir.rstrip('/')}/{path}"


def _content(path: str, content: bytes | str) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, bytes | bytearray | memoryview):
        raise TypeError(f"the content of file {path!r} is {type(content).__name__}, not bytes or str")
    return bytes(content)


def agentos(**kwargs: Any) -> VM:
    """`VM` under another name."""
    return VM(**kwargs)


def _checked(result: Result[Any], check: bool) -> Result[Any]:
    if check and result.returncode:
        raise subprocess.CalledProcessError(result.returncode, result.args, result.stdout, result.stderr)
    return result


def _refuse_unbuilt(
    *, hosts: object, host_ports: tuple[int, ...], limits: object, guest: str, engine: str, audit: object
) -> None:
    """Arguments whose meaning is fixed but not built yet: refused, because ignoring one would confine less than was asked for."""
    if guest not in ("native", "wasm"):
        raise ValueError(f"guest {guest!r} is not one of 'native', 'wasm'")
    if engine not in ("auto", "notify", "ptrace"):
        raise ValueError(f"engine {engine!r} is not one of 'auto', 'notify', 'ptrace'")
    unbuilt = {
        "hosts": bool(hosts),
        "host_ports": bool(host_ports),
        "limits": limits is not None,
        "guest='wasm'": guest == "wasm",
        "engine='ptrace'": engine == "ptrace",
        "audit": audit is not None,
    }
    asked = [name for name, given in unbuilt.items() if given]
    if asked:
        raise Unsupported(f"not yet supported by this version: {', '.join(asked)}")
