"""`callgate run`: one program in a fresh VM, between the caller's standard streams and with the caller's signals."""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from callgate.cli.messages import CANNOT_START, OUTPUT_LOST, SIGNALLED, TIMED_OUT, StartError, UsageError, complain
from callgate.cli.policy import load_permissions, policy_warnings_as_lines
from callgate.guest.process import exceeded_limits
from callgate.guest.terminal import StdioRelay
from callgate.kernel.audit import Denial
from callgate.kernel.protocol import ExecFailed, Exited

if TYPE_CHECKING:
    from callgate.guest.process import NativeProcess
    from callgate.vfs.host_directory import HostDir
    from callgate.vm import VM

FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FROM_KEYS: Final = (signal.SIGINT, signal.SIGQUIT)
"""What a terminal sends to a whole process group, and so does this command in the terminal's place."""

INTERRUPTS_BEFORE_KILL: Final = 3
"""Ctrl-C this often ends a program that does not listen, and everything it started."""

SUMMARY_LINES: Final = 20
LIMITS: Final = ("memory", "disk", "file_size", "processes", "open_files", "cpu_seconds")
MOUNT_MODES: Final = ("ro", "rw", "cow")


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Runs `argv`; the exit code. Mistakes of the user leave as UsageError or PolicyError, before anything is started."""
    if not argv or not argv[0]:
        raise UsageError("run what? (usage: callgate run [options] -- PROGRAM [ARGUMENT ...])")
    timeout = _seconds(arguments.timeout)
    with ExitStack() as stack:
        audit = _open_audit(arguments.audit, stack)
        vm = vm_of(arguments)
        stack.callback(vm.close)
        session = Session(timeout)
        signals = stack.enter_context(_signals())
        relay = stack.enter_context(StdioRelay(open_pty=vm.open_pty))
        try:
            process = vm.start(list(argv), relay.guest, tty=relay.tty)
            stack.callback(process.close)
            relay.started()
            session.follow(vm, process, relay, signals)
        except OSError as error:
            session.failure = f"--cwd {error.filename}: {error.strerror}"
            session.returncode = CANNOT_START
        relay.close()
        session.lost = relay.lost
        return session.report(audit, as_json=arguments.json)


def vm_of(arguments: argparse.Namespace) -> VM:
    """The VM that the options ask for. Mistakes of the user leave as UsageError or PolicyError, a refusing host as StartError."""
    from callgate.vm import VM

    permissions = load_permissions(arguments.policy) if arguments.policy is not None else {}
    allow_hosts(permissions, arguments.allow_host)
    env = dict(_variable(text) for text in arguments.env)
    mounts = dict(_mount(text) for text in arguments.mount)
    limits = dict(_limit(text) for text in arguments.limit)
    hosts = _hosts(arguments.host)
    host_ports = [_host_port(text) for text in arguments.host_port]
    with policy_warnings_as_lines():
        try:
            return VM(
                permissions,
                env=env,
                mounts=mounts,
                hosts=hosts,
                host_ports=host_ports,
                cwd=arguments.cwd,
                guest=arguments.guest,
                engine=arguments.engine,
                limits=limits,
                best_effort=arguments.best_effort,
                noexec=arguments.noexec,
            )
        except (ValueError, TypeError) as error:
            if type(error).__module__.startswith("callgate."):
                raise  # PolicyError is a ValueError too, and has a voice of its own
            raise UsageError(str(error)) from None
        except OSError as error:
            if type(error).__module__.startswith("callgate."):
                raise
            raise StartError(f"the VM could not be started: {error}") from None


class Session:
    """One program from its start to its end, as the caller sees it."""

    def __init__(self, timeout: float | None) -> None:
        self.returncode: int | None = None
        self.failure = ""
        self.lost: dict[str, str] = {}
        self._timeout = timeout
        self._started = time.monotonic()
        self._timed_out = False
        self._interrupts = 0
        self._denials: list[Denial] = []
        self._dropped = 0
        self._exceeded: tuple[str, ...] = ()

    def follow(self, vm: VM, process: NativeProcess, relay: StdioRelay, signals: int) -> None:
        """Takes events and passes signals on until the program has ended and nothing it started is left."""
        deadline = None if self._timeout is None else self._started + self._timeout
        poll = select.poll()
        poll.register(process.fileno(), select.POLLIN)
        poll.register(signals, select.POLLIN)
        while self.returncode is None:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = dict(poll.poll(None if wait is None else math.ceil(wait * 1000)))
            if process.fileno() in ready:
                if not self._take(process):
                    raise process.gone()
            elif deadline is not None and time.monotonic() >= deadline:
                self._timed_out = True
                self._end(vm, process, TIMED_OUT)
            if signals in ready and self.returncode is None:
                for number in os.read(signals, 64):
                    self._pass_on(number, process, relay)
                if self._interrupts >= INTERRUPTS_BEFORE_KILL:
                    self._end(vm, process, SIGNALLED + signal.SIGKILL)

    def _end(self, vm: VM, process: NativeProcess, code: int) -> None:
        """Ends the VM and with it everything in it; what was refused until then is still told."""
        vm.close()
        while self._take(process):
            pass
        self.returncode = code

    def _take(self, process: NativeProcess) -> bool:
        """Takes one event; False if there is none any more."""
        event = process.next_event()
        if isinstance(event, Denial):
            self._denials.append(event)
        elif isinstance(event, Exited):
            code = os.waitstatus_to_exitcode(event.status)
            self.returncode = SIGNALLED - code if code < 0 else code
            self._dropped = event.denials_dropped
            self._exceeded = exceeded_limits(event)
            # What the host's services refused comes by no event.
            self._denials = sorted([*self._denials, *process.host_denials], key=lambda denial: denial.time)
        elif isinstance(event, ExecFailed):
            self.returncode, self.failure = process.exec_failure(event)
        return event is not None

    def _pass_on(self, number: int, process: NativeProcess, relay: StdioRelay) -> None:
        if number == signal.SIGWINCH:
            relay.resize()
        elif number == signal.SIGCONT:
            relay.enter_raw_mode()
        elif number == signal.SIGTSTP:
            self._stop(process, relay)
        elif number in FORWARDED:
            self._interrupts += number == signal.SIGINT
            with suppress(ProcessLookupError):
                process.send_signal(number, group=number in FROM_KEYS)

    def _stop(self, process: NativeProcess, relay: StdioRelay) -> None:
        """Stops the program's group and then this process, so that the caller's shell sees a stopped job; both go on together."""
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP, group=True)
        relay.leave_raw_mode()
        os.kill(os.getpid(), signal.SIGSTOP)
        relay.enter_raw_mode()
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT, group=True)

    def report(self, audit: IO[str] | None, *, as_json: bool) -> int:
        """Says on stderr what the caller has to know, and returns the exit code."""
        code = CANNOT_START if self.returncode is None else self.returncode
        lost = "; ".join(f"{name}: {reason}" for name, reason in self.lost.items())
        if lost:
            code = code or OUTPUT_LOST
        if audit is not None:
            for denial in self._denials:
                audit.write(json.dumps(asdict(denial)) + "\n")
        if as_json:
            _print_json(
                {
                    "returncode": code,
                    "timed_out": self._timed_out,
                    "duration": round(time.monotonic() - self._started, 6),
                    "error": self.failure or lost or None,
                    "exceeded": list(self._exceeded),
                    "denials": [asdict(denial) for denial in self._denials],
                    "dropped_denials": self._dropped,
                }
            )
            return code
        if self._timed_out:
            complain(f"timeout: ended after {self._timeout:g} seconds")
        for name in self._exceeded:
            complain(f"ended for going over the limit {name}")
        if self.failure:
            complain(self.failure)
        if lost:
            complain(f"{lost}; what the program wrote there is lost")
        for line in summary(self._denials, self._dropped):
            complain(line)
        return code


def summary(denials: Sequence[Denial], dropped: int) -> Iterator[str]:
    """What was refused, for a person: equal messages once, and never more than a screenful."""
    total = len(denials) + dropped
    if not total:
        return
    yield f"{total} operation{'s' if total != 1 else ''} refused"
    counts: dict[str, int] = {}
    for denial in denials:
        text = denial.message + (f" ({denial.reason})" if denial.reason else "")
        counts[text] = counts.get(text, 0) + 1
    for text in list(counts)[:SUMMARY_LINES]:
        yield f"  {text}" + (f" ({counts[text]} times)" if counts[text] > 1 else "")
    left_out = len(counts) - SUMMARY_LINES
    if left_out > 0 or dropped:
        yield f"  and {max(left_out, 0) + dropped} more"


def _print_json(report: Mapping[str, Any]) -> None:
    with suppress(OSError):  # a caller that closed stderr does not want it
        os.write(2, (json.dumps(report) + "\n").encode())


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that gives the number of every signal that arrives during the block, in place of its usual effect.

    What the caller chose to ignore (nohup) stays ignored.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    wanted = [*FORWARDED, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT]
    taken = {number: handler for number in wanted if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        for number in taken:
            signal.signal(number, lambda *_: None)
        yield reader
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


# -- what the options mean --


def allow_hosts(permissions: dict[str, Any], hosts: Iterable[str]) -> None:
    """Lays a rule that allows `hosts` over the network policy, in place."""
    patterns = list(hosts)
    if not patterns or permissions.get("network") == "allow":
        return
    network = permissions.get("network", "deny")
    rule = {"mode": "allow", "operations": ["*"], "patterns": patterns}
    if network == "deny":
        permissions["network"] = {"default": "deny", "rules": [rule]}
    elif isinstance(network, dict) and isinstance(network.get("rules", []), list):
        permissions["network"] = {**network, "rules": [*network.get("rules", []), rule]}


def _hosts(texts: Iterable[str]) -> dict[str, str]:
    hosts: dict[str, str] = {}
    for text in texts:
        name, equals, endpoint = text.partition("=")
        if not equals:
            raise UsageError(f"--host {text}: write NAME=ADDRESS or NAME=ADDRESS:PORT")
        if name in hosts:
            raise UsageError(f"--host {text}: {name} is given twice")
        hosts[name] = endpoint
    return hosts


def _host_port(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"--host-port {text}: must be a number")
    return int(text)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"--timeout {text}: must be a number of seconds greater than 0")
    return seconds


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--env {text}: must be NAME=VALUE")
    return name, value


def _limit(text: str) -> tuple[str, int | float | str]:
    name, equals, value = text.partition("=")
    if not equals or name not in LIMITS:
        from callgate.scopes.operations import did_you_mean

        hint = "; --timeout bounds the time" if name == "wall_seconds" else did_you_mean(name, LIMITS)
        raise UsageError(f"--limit {text}: must be NAME=N, NAME one of {', '.join(LIMITS)}{hint}")
    try:
        return name, float(value) if name == "cpu_seconds" else int(value)
    except ValueError:
        return name, value  # a size such as 512M, or a mistake that is told with the limit's name


def _mount(text: str) -> tuple[str, HostDir]:
    from callgate.vfs.host_directory import HostDir

    rest, colon, mode = text.rpartition(":")
    if not colon or mode not in MOUNT_MODES:
        rest, mode = text, "ro"
    source, colon, destination = rest.rpartition(":")
    if not source or not destination.startswith("/"):
        raise UsageError(f"--mount {text}: must be SRC:DST or SRC:DST:MODE with an absolute DST and MODE one of ro, rw, cow")
    try:
        return destination, HostDir(source, mode=mode)  # type: ignore[arg-type]  # "cow" is refused there, with advice
    except OSError as error:
        raise UsageError(f"--mount {text}: {error.strerror or error}") from None


def _open_audit(name: str | None, stack: ExitStack) -> IO[str] | None:
    if name is None:
        return None
    try:
        return stack.enter_context(Path(name).open("a", encoding="utf-8", errors="backslashreplace"))
    except OSError as error:
        raise UsageError(f"--audit {name}: {error.strerror}") from None
