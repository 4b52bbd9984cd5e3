"""The messages that cross between the host and the supervisor, as dataclasses with an exact byte form.

The other end is `native/protocol.h`, which describes every field; the constants here carry the names of its enumerations
without the `CG_` prefix, and a test reads the header to compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import ClassVar, TypeVar

from callgate.kernel.wire import (
    BYTES,
    I32,
    U32,
    U64,
    ProtocolError,
    Reader,
    Record,
    flags,
    member,
    optional,
    record,
    several,
)

PROTOCOL_VERSION = 1
FD_CONTROL = 3
FD_LAUNCH = 4
MESSAGE_MAX = 131072


class MessageType(IntEnum):
    """The first field of every packet (`CG_MSG_*`)."""

    READY = 1
    LAUNCH_FAILED = 2
    REPLY = 3
    RUN = 16
    SIGNAL = 17
    FS = 18
    STATS = 19
    CPU_CLOCK = 20
    NAME = 24
    SOCKET = 25
    LOOKUP_DENIED = 26


class EventType(IntEnum):
    """The first field of every packet on a run's events socket (`CG_EVENT_*`)."""

    STARTED = 32
    EXEC_FAILED = 33
    DENIAL = 34
    EXITED = 35


class RunFlag(IntFlag):
    """Switches of a run (`CG_RUN_*`)."""

    TTY = 1
    IN_MEMFD = 2


class SignalWhom(IntEnum):
    """Whom of a run a signal is for (`CG_SIGNAL_*`)."""

    FIRST = 0
    TREE = 1
    GROUP = 2


class NameFlag(IntFlag):
    """What a name's addresses are (`CG_NAME_*`)."""

    OPERATOR = 1
    HOST_PORTS = 2


class Feature(IntFlag):
    """What the kernel's seccomp offers beyond the minimum (`CG_FEATURE_*`)."""

    WAIT_KILLABLE = 1
    SYNC_WAKE_UP = 2


class FsCall(IntEnum):
    """Operations of `vm.fs` (`CG_FS_*`)."""

    OPEN = 1
    STAT = 2
    MKDIR = 3
    UNLINK = 4
    RENAME = 5
    SYMLINK = 6
    READLINK = 7
    CHMOD = 8
    LINK = 9
    TRUNCATE = 10


class FsFlag(IntFlag):
    """Switches of a `vm.fs` operation."""

    UNCHECKED = 1


class RuleOrigin(IntEnum):
    """What decided when it was not a rule of the user's (`CG_RULE_*`); those are numbered from 0."""

    DEFAULT = -1
    MODE = -2
    RUNTIME_IMAGE = -3
    MOUNT = -4
    DEVICE = -5
    UNSUPPORTED = -6
    WIDENING = -7
    LOCAL_ADDRESS = -8
    UNRESOLVED = -9
    HOST_SERVICE = -10


# -- supervisor -> host ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DenialRecord(Record):
    """One refused operation as the supervisor reports it: numbers and bytes, nothing interpreted yet."""

    LAYOUT = (U32, U32, I32, U32, U64, BYTES, BYTES, BYTES, BYTES)
    scope: int
    operation: int
    rule: int
    pid: int
    time_ns: int
    subject: bytes
    requested: bytes
    program: bytes
    reason: bytes = b""


@dataclass(frozen=True, slots=True)
class Ready(Record):
    """The VM stands: first message of a successful launch, with the listeners' descriptors beside it."""

    TYPE: ClassVar = MessageType.READY
    LAYOUT = (U32, I32, flags(Feature, lenient=True))
    version: int
    init_pid: int
    features: Feature


@dataclass(frozen=True, slots=True)
class LaunchFailed(Record):
    """The VM could not be made; nothing ran."""

    TYPE: ClassVar = MessageType.LAUNCH_FAILED
    LAYOUT = (BYTES, I32, BYTES)
    step: bytes
    errno: int
    detail: bytes


@dataclass(frozen=True, slots=True)
class Reply(Record):
    """The answer to one request; a descriptor may come beside it."""

    TYPE: ClassVar = MessageType.REPLY
    LAYOUT = (I32, U64, BYTES, optional(record(DenialRecord)))
    errno: int
    value: int = 0
    data: bytes = b""
    denial: DenialRecord | None = None


# -- host -> supervisor ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunRequest(Record):
    """Start a program. Its stdin, stdout, stderr and events socket are passed beside the packet, in this order."""

    TYPE: ClassVar = MessageType.RUN
    LAYOUT = (flags(RunFlag), BYTES, several(BYTES), several(BYTES))
    flags: RunFlag
    cwd: bytes
    argv: tuple[bytes, ...]
    envp: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SignalRequest(Record):
    """Send a signal to a run's first program or its group, or kill everything the run started."""

    TYPE: ClassVar = MessageType.SIGNAL
    LAYOUT = (U32, U32, member(SignalWhom))
    run: int
    signal: int
    whom: SignalWhom


@dataclass(frozen=True, slots=True)
class FsRequest(Record):
    """One `vm.fs` operation; what *a*, *b* and *second* mean depends on the operation (see `native/protocol.h`)."""

    TYPE: ClassVar = MessageType.FS
    LAYOUT = (member(FsCall), flags(FsFlag), U32, U32, BYTES, BYTES)
    operation: FsCall
    flags: FsFlag
    a: int
    b: int
    path: bytes
    second: bytes = b""


@dataclass(frozen=True, slots=True)
class StatsRequest(Record):
    """Ask for the supervisor's counters."""

    TYPE: ClassVar = MessageType.STATS
    LAYOUT = ()


@dataclass(frozen=True, slots=True)
class CpuClockRequest(Record):
    """Hand over the cpu.stat of the VM's cgroup, passed beside the packet, for `Watch.CPU`."""

    TYPE: ClassVar = MessageType.CPU_CLOCK
    LAYOUT = ()


@dataclass(frozen=True, slots=True)
class NameRequest(Record):
    """What *name* means inside the VM: two addresses made up for it, and the real *addresses* (packed) that they stand for.

    *port* is dialled instead of the one asked for unless it is 0.
    """

    TYPE: ClassVar = MessageType.NAME
    LAYOUT = (BYTES, BYTES, BYTES, flags(NameFlag), U32, several(BYTES))
    name: bytes
    ipv4: bytes
    ipv6: bytes
    flags: NameFlag
    port: int
    addresses: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SocketRequest(Record):
    """Ask for a new socket in the VM's network namespace; it comes beside the reply."""

    TYPE: ClassVar = MessageType.SOCKET
    LAYOUT = (U32, U32)
    domain: int
    type: int


@dataclass(frozen=True, slots=True)
class LookupDenied(Record):
    """A name was refused to whoever asked for it from *port* of the VM's loopback over *protocol* (`IPPROTO_*`)."""

    TYPE: ClassVar = MessageType.LOOKUP_DENIED
    LAYOUT = (U32, U32, I32, BYTES, BYTES)
    protocol: int
    port: int
    rule: int
    subject: bytes
    reason: bytes = b""


@dataclass(frozen=True, slots=True)
class Stats(Record):
    """The supervisor's counters since the VM started: the data of the reply to `StatsRequest`."""

    LAYOUT = (U64, U64, U64, U64, U64)
    notified: int
    denials: int
    dropped_denials: int
    threads: int
    runs_alive: int


# -- events of a run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started(Record):
    """The program runs; *pid* is its process id in the VM."""

    TYPE: ClassVar = EventType.STARTED
    LAYOUT = (U32,)
    pid: int


@dataclass(frozen=True, slots=True)
class ExecFailed(Record):
    """The program could not be started; *stage* is `chdir`, `lookup` or `exec`. The run is over."""

    TYPE: ClassVar = EventType.EXEC_FAILED
    LAYOUT = (I32, BYTES)
    errno: int
    stage: bytes


@dataclass(frozen=True, slots=True)
class DenialEvent(Record):
    """A process of the run was refused something."""

    TYPE: ClassVar = EventType.DENIAL
    LAYOUT = (record(DenialRecord),)
    denial: DenialRecord


@dataclass(frozen=True, slots=True)
class Exited(Record):
    """The program and everything it started are gone; *status* is a wait status as of waitpid(2).

    *exceeded* has bit `1 << (watch - Watch.WALL)` for each watched limit for which the supervisor ended the run.
    """

    TYPE: ClassVar = EventType.EXITED
    LAYOUT = (I32, U64, U64, U64, U64, U64, U32)
    status: int
    user_us: int = 0
    system_us: int = 0
    max_rss_kib: int = 0
    notified: int = 0
    denials_dropped: int = 0
    exceeded: int = 0


# -- packets ---------------------------------------------------------------------------------------------------------

Answer = Ready | LaunchFailed | Reply
Request = RunRequest | SignalRequest | FsRequest | StatsRequest | CpuClockRequest | NameRequest | SocketRequest | LookupDenied
Event = Started | ExecFailed | DenialEvent | Exited

_M = TypeVar(
    "_M",
    Ready | LaunchFailed | Reply,
    RunRequest | SignalRequest | FsRequest | StatsRequest | CpuClockRequest | NameRequest | SocketRequest | LookupDenied,
    Event,
)

_ANSWERS: dict[int, type[Answer]] = {Ready.TYPE: Ready, LaunchFailed.TYPE: LaunchFailed, Reply.TYPE: Reply}
_REQUESTS: dict[int, type[Request]] = {
    RunRequest.TYPE: RunRequest,
    SignalRequest.TYPE: SignalRequest,
    FsRequest.TYPE: FsRequest,
    StatsRequest.TYPE: StatsRequest,
    CpuClockRequest.TYPE: CpuClockRequest,
    NameRequest.TYPE: NameRequest,
    SocketRequest.TYPE: SocketRequest,
    LookupDenied.TYPE: LookupDenied,
}
_EVENTS: dict[int, type[Event]] = {
    Started.TYPE: Started,
    ExecFailed.TYPE: ExecFailed,
    DenialEvent.TYPE: DenialEvent,
    Exited.TYPE: Exited,
}


def encode(message: Answer | Request | Event, request: int) -> bytes:
    """The packet that carries *message* under the number *request*."""
    parts: list[bytes] = []
    U32.write(parts, message.TYPE)
    U32.write(parts, request)
    message.write(parts)
    return b"".join(parts)


def encode_run_in_memfd(message: RunRequest, request: int) -> tuple[bytes, bytes]:
    """Packet and memfd content for a run whose arguments and environment do not fit a packet: the flags stay in the packet."""
    head: list[bytes] = []
    for number in (message.TYPE, request, message.flags | RunFlag.IN_MEMFD):
        U32.write(head, number)
    payload: list[bytes] = []
    for form, value in zip(message.LAYOUT[1:], (message.cwd, message.argv, message.envp), strict=True):
        form.write(payload, value)
    return b"".join(head), b"".join(payload)


def decode_answer(packet: bytes) -> tuple[int, Answer]:
    """Request number and message of a packet from the supervisor; `ProtocolError` if it is not exactly one."""
    return _decode(packet, _ANSWERS)


def decode_request(packet: bytes) -> tuple[int, Request]:
    """Request number and message of a packet to the supervisor; `ProtocolError` if it is not exactly one."""
    return _decode(packet, _REQUESTS)


def decode_event(packet: bytes) -> tuple[int, Event]:
    """Run number and event of a packet on an events socket; `ProtocolError` if it is not exactly one."""
    return _decode(packet, _EVENTS)


def _decode(packet: bytes, known: dict[int, type[_M]]) -> tuple[int, _M]:
    reader = Reader(packet)
    kind, request = U32.read(reader), U32.read(reader)
    if kind not in known:
        raise ProtocolError(f"a message of type {kind} was not expected here")
    message = known[kind].read(reader)
    reader.finish()
    return request, message
