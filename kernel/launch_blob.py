"""All that a supervisor is told before it starts, as dataclasses with an exact byte form: the launch blob.

The other end is `native/protocol.h`, which describes every field; the constants here carry the names of its enumerations
without the `CG_` prefix, and a test reads the header to compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Self

from callgate.kernel.wire import BYTES, U32, U64, ProtocolError, Reader, Record, flags, member, record, several

LAUNCH_MAGIC = 0x314C4743

POLICY_MAGIC = 0x31504743


class LaunchFlag(IntFlag):
    """Switches of a launch (`CG_LAUNCH_*`)."""

    LOOPBACK = 1
    REGISTER = 2
    NO_SETID = 4
    NO_EXEC = 64


class StepKind(IntEnum):
    """What one set-up step of the private root does (`CG_STEP_*`)."""

    DIRECTORY = 1
    FILE = 2
    SYMLINK = 3
    BIND = 4
    PROC = 5
    DEVPTS = 6


class BindFlag(IntFlag):
    """How a host path is bound into the root (`CG_BIND_*`)."""

    READ_ONLY = 1
    OPTIONAL = 2
    DEVICE = 4
    OPERATOR = 8
    OWNER = 16
    NO_EXEC = 64


NO_BIND_FLAGS = BindFlag(0)


class ListenKind(IntEnum):
    """What kind of socket the host serves inside the VM (`CG_LISTEN_*`)."""

    UNIX = 1
    UDP = 2
    TCP = 3


class Watch(IntEnum):
    """Limits that the supervisor watches itself, in the place of an rlimit's number (`CG_WATCH_*`)."""

    WALL = 1000
    CPU = 1001
    MEMORY = 1002


@dataclass(frozen=True, slots=True)
class SetupStep(Record):
    """One step in building the private root; which fields mean something depends on the kind."""

    LAYOUT = (member(StepKind), BYTES, BYTES, U32, flags(BindFlag))
    kind: StepKind
    destination: bytes
    source: bytes = b""
    mode: int = 0
    flags: BindFlag = NO_BIND_FLAGS
    _wire: list[bytes] = field(init=False, repr=False, compare=False, default_factory=list)

    def write(self, parts: list[bytes]) -> None:
        """Append this step's wire form, made once: every VM has the steps of the base root."""
        if not self._wire:
            Record.write(self, self._wire)
        parts += self._wire


@dataclass(frozen=True, slots=True)
class Limit(Record):
    """One resource limit set in every guest program before exec (setrlimit(2)), or one of `Watch` and its *soft* value."""

    LAYOUT = (U32, U64, U64)
    resource: int
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Listener(Record):
    """A socket that the host serves inside the VM: *address* is a path, or a packed internet address."""

    LAYOUT = (member(ListenKind), BYTES, U32)
    kind: ListenKind
    address: bytes
    port: int = 0


@dataclass(frozen=True, slots=True)
class Launch(Record):
    """Everything the supervisor needs to make a VM."""

    LAYOUT = (
        flags(LaunchFlag), U32, U32, U32, BYTES, BYTES, U64, U64,
        several(record(SetupStep)), several(record(Limit)), several(record(Listener)), several(U32), BYTES, BYTES,
    )  # fmt: skip
    flags: LaunchFlag
    host_pid: int
    guest_uid: int
    guest_gid: int
    hostname: bytes
    workdir: bytes
    disk_bytes: int
    disk_inodes: int
    setup: tuple[SetupStep, ...]
    limits: tuple[Limit, ...]
    listeners: tuple[Listener, ...]
    host_ports: tuple[int, ...]
    filter: bytes
    policy: bytes

    def write(self, parts: list[bytes]) -> None:
        """Append the magic number and the fields to *parts*."""
        U32.write(parts, LAUNCH_MAGIC)
        Record.write(self, parts)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Take a launch blob off *reader*."""
        if (magic := U32.read(reader)) != LAUNCH_MAGIC:
            raise ProtocolError(f"{magic:#x} is not the magic number of a launch blob")
        return cls(*[form.read(reader) for form in cls.LAYOUT])
