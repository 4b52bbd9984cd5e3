"""Running programs in a VM: to their end with captured output, or beside the caller as `subprocess.Popen` does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload
from weakref import WeakSet

from callgate.guest.arguments import listener, path_of_vm, seconds, stdin_bytes
from callgate.guest.process import NativeGuest, NativeProcess, prepare
from callgate.guest.stdio import BY_DEFAULT
from callgate.guest.streams import bytes_listener, text_listener, text_output

if TYPE_CHECKING:
    from callgate.guest.environment import GuestEnvironment
    from callgate.guest.interface import Listeners, Program
    from callgate.guest.popen import Process
    from callgate.guest.result import Command, Result
    from callgate.guest.stdio import Stream
    from callgate.kernel.plan import Plan

Directory = str | os.PathLike[str] | None


class Spawned:
    """The spawned programs that somebody still holds. For any thread."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._processes: WeakSet[Process[Any]] = WeakSet()

    def add(self, process: Process[Any]) -> None:
        """One more."""
        with self._lock:
            self._processes.add(process)

    def hear(self) -> None:
        """Take what they have told meanwhile, their refusals above all. A fork would take it from its parent."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            processes = list(self._processes)
        for process in processes:
            process.poll()


class Programs:
    """The part of a `VM` that runs programs."""

    _guest: NativeGuest
    _env: GuestEnvironment
    _plan: Plan
    _spawned: Spawned

    @overload
    def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: Literal[True] = True,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
    ) -> Result[str]: ...

    @overload
    def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: Literal[False],
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> Result[bytes]: ...

    def run(
        self,
        argv: Command,
        *,
        input: str | bytes | None = None,  # noqa: A002 - the name subprocess.run has
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        check: bool = False,
        text: bool = True,
        on_stdout: Callable[[Any], object] | None = None,
        on_stderr: Callable[[Any], object] | None = None,
    ) -> Result[str] | Result[bytes]:
        """Run a program to its end, standard output and error captured; everything it started is gone when this returns.

        A list is the argument vector, a string a command line for /bin/sh. *input* is its standard input, empty by default.
        *cwd* may be relative to the VM's. *env* is added to the VM's environment, and lies over it. After *timeout* seconds
        everything it started is killed and `Timeout` is raised; None and infinity are no limit. With *check* a return code
        other than 0 raises `CalledProcessError`. With *text* false, output is bytes as they were written. A program that is not
        found gives return code 127 and one that cannot be executed 126, with a line on standard error. *on_stdout* and
        *on_stderr* are called, in the calling thread, with each piece of output as it arrives; an exception they raise ends the
        program and leaves from here.
        """
        timeout = seconds(timeout, "timeout")
        program, stdin, listeners = self._prepared(argv, env, cwd, input, text, on_stdout, on_stderr)
        if text:
            result = self._guest.run(program, argv, stdin=stdin, timeout=timeout, decode=text_output, listeners=listeners)
            return checked_result(result, check)
        return checked_result(
            self._guest.run(program, argv, stdin=stdin, timeout=timeout, decode=bytes, listeners=listeners), check
        )

    @overload
    def spawn(
        self,
        argv: Command,
        *,
        stdin: Stream = BY_DEFAULT,
        stdout: Stream = BY_DEFAULT,
        stderr: Stream = BY_DEFAULT,
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        text: Literal[True] = True,
        pty: bool = False,
        size: tuple[int, int] | None = None,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
    ) -> Process[str]: ...

    @overload
    def spawn(
        self,
        argv: Command,
        *,
        stdin: Stream = BY_DEFAULT,
        stdout: Stream = BY_DEFAULT,
        stderr: Stream = BY_DEFAULT,
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        text: Literal[False],
        pty: bool = False,
        size: tuple[int, int] | None = None,
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> Process[bytes]: ...

    def spawn(
        self,
        argv: Command,
        *,
        stdin: Stream = BY_DEFAULT,
        stdout: Stream = BY_DEFAULT,
        stderr: Stream = BY_DEFAULT,
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        text: bool = True,
        pty: bool = False,
        size: tuple[int, int] | None = None,
        on_stdout: Callable[[Any], object] | None = None,
        on_stderr: Callable[[Any], object] | None = None,
    ) -> Process[str] | Process[bytes]:
        """Start a program and return at once; see `Process`, which has the methods of `subprocess.Popen`.

        Each stream is PIPE, DEVNULL, STDOUT (*stderr* alone), None for the caller's own, or an open file or descriptor; what is
        neither pipe nor null is relayed by a thread, because a guest never holds a descriptor of the host. Relayed bytes are
        the guest's, control sequences for a terminal too. With *pty* all three are one terminal of *size* rows and columns (24
        and 80 by default): `Process.stdin` and `stdout` are its two directions. *on_stdout* and *on_stderr* are called in a
        thread with each piece of output, in the place of a file to read. `FileNotFoundError` or `PermissionError` if there is
        no such program to execute.
        """
        from callgate.guest.popen import Process, window_size
        from callgate.guest.stdio import Stdio

        program, _, listeners = self._prepared(argv, env, cwd, None, text, on_stdout, on_stderr)
        if pty:
            if any(stream is not BY_DEFAULT for stream in (stdin, stdout, stderr)) or on_stderr is not None:
                raise ValueError("with pty=True stdin, stdout and stderr are one terminal: leave them out, and on_stderr= too")
            stdio = Stdio.terminal(*self._open_pty(window_size((24, 80) if size is None else size)), listeners[0])
        else:
            if size is not None:
                raise ValueError("size= is that of a terminal: it goes with pty=True")
            stdio = Stdio.pipes(stdin, stdout, stderr, listeners)
        process: Process[str] | Process[bytes]
        if text:
            process = Process(self._guest, program, argv, stdio, text_output, tty=pty)
        else:
            process = Process(self._guest, program, argv, stdio, bytes, tty=pty)
        self._spawned.add(process)
        return process

    def start(
        self,
        argv: Command,
        stdio: tuple[int, int, int],
        *,
        cwd: Directory = None,
        env: Mapping[str, str] | None = None,
        tty: bool = False,
    ) -> NativeProcess:
        """Start a program with descriptors of the caller's for its standard streams, and leave its events to the caller.

        They must be pipes, /dev/null, or with *tty* the far side of a terminal made by `open_pty`. `ValueError` for a file,
        directory, socket or terminal of the host, which would be a way out of the VM.
        """
        for name, fd in zip(("stdin", "stdout", "stderr"), stdio, strict=True):
            if not self._guest.may_hold(fd):
                raise ValueError(f"{name}: descriptor {fd} is neither a pipe nor a terminal of the VM's; spawn() would relay it")
        return self._guest.start(prepare(argv, self._env.for_program(env), self._directory(cwd)), stdio, tty=tty)

    def open_pty(self) -> tuple[int, int]:
        """A new terminal of the VM's, in its own /dev/pts: the master for the caller, and the other side for `start`."""
        return self._guest.open_pty()

    def _open_pty(self, size: tuple[int, int]) -> tuple[int, int]:
        import termios

        master, slave = self._guest.open_pty()
        termios.tcsetwinsize(master, size)
        return master, slave

    def _prepared(
        self,
        argv: Command,
        env: Mapping[str, str] | None,
        cwd: Directory,
        given: str | bytes | None,
        text: bool,
        *listeners: Callable[[Any], object] | None,
    ) -> tuple[Program, bytes, Listeners]:
        """What every way of starting a program begins with."""
        program = prepare(argv, self._env.for_program(env), self._directory(cwd))
        stdin = stdin_bytes(given)
        adapt = text_listener if text else bytes_listener
        told = [listener(given, what) for given, what in zip(listeners, ("on_stdout", "on_stderr"), strict=True)]
        out, err = (None if one is None else adapt(one) for one in told)
        return program, stdin, (out, err)

    def _directory(self, cwd: Directory) -> str:
        if cwd is None:
            return self._plan.workdir
        path = path_of_vm(cwd, "cwd")
        return path if path.startswith("/") else f"{self._plan.workdir.rstrip('/')}/{path}"


def checked_result(result: Result[Any], check: bool) -> Result[Any]:
    """*result*; with *check*, `CalledProcessError` for a return code other than 0."""
    if check:
        result.check_returncode()
    return result
