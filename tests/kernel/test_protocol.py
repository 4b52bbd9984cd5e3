"""The wire format: what is written is read back, nothing malformed gets through, and the constants are those of the header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.kernel import launch_blob, protocol
from callgate.kernel.launch_blob import BindFlag, Launch, LaunchFlag, Limit, Listener, ListenKind, SetupStep, StepKind
from callgate.kernel.protocol import (
    CpuClockRequest,
    DenialEvent,
    DenialRecord,
    ExecFailed,
    Exited,
    Feature,
    FsCall,
    FsFlag,
    FsRequest,
    LaunchFailed,
    LookupDenied,
    NameFlag,
    NameRequest,
    Ready,
    Reply,
    RunFlag,
    RunRequest,
    SignalRequest,
    SignalWhom,
    SocketRequest,
    Started,
    Stats,
    StatsRequest,
    decode_answer,
    decode_event,
    decode_request,
    encode,
    encode_run_in_memfd,
)
from callgate.kernel.wire import BYTES, U32, ProtocolError, Reader, Record, several

HEADER = Path(protocol.__file__).with_name("native") / "protocol.h"

u32 = st.integers(0, 2**32 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
u64 = st.integers(0, 2**64 - 1)
text = st.binary(max_size=40)
texts = st.lists(text, max_size=4).map(tuple)

denials = st.builds(DenialRecord, u32, u32, i32, u32, u64, text, text, text, text)
answers = st.one_of(
    st.builds(Ready, u32, i32, st.sampled_from(Feature)),
    st.builds(LaunchFailed, text, i32, text),
    st.builds(Reply, i32, u64, text, st.none() | denials),
)
requests = st.one_of(
    st.builds(RunRequest, st.sampled_from(RunFlag), text, texts, texts),
    st.builds(SignalRequest, u32, u32, st.sampled_from(SignalWhom)),
    st.just(CpuClockRequest()),
    st.builds(FsRequest, st.sampled_from(FsCall), st.sampled_from(FsFlag), u32, u32, text, text),
    st.just(StatsRequest()),
    st.builds(NameRequest, text, text, text, st.sampled_from(NameFlag), u32, texts),
    st.builds(SocketRequest, u32, u32),
    st.builds(LookupDenied, u32, u32, i32, text, text),
)
events = st.one_of(
    st.builds(Started, u32),
    st.builds(ExecFailed, i32, text),
    st.builds(DenialEvent, denials),
    st.builds(Exited, i32, u64, u64, u64, u64, u64, u32),
)
steps = st.builds(SetupStep, st.sampled_from(StepKind), text, text, u32, st.sampled_from(BindFlag))
launches = st.builds(
    Launch,
    flags=st.sampled_from(LaunchFlag),
    host_pid=u32,
    guest_uid=u32,
    guest_gid=u32,
    hostname=text,
    workdir=text,
    disk_bytes=u64,
    disk_inodes=u64,
    setup=st.lists(steps, max_size=4).map(tuple),
    limits=st.lists(st.builds(Limit, u32, u64, u64), max_size=4).map(tuple),
    listeners=st.lists(st.builds(Listener, st.sampled_from(ListenKind), text, u32), max_size=4).map(tuple),
    host_ports=st.lists(u32, max_size=4).map(tuple),
    filter=text,
    policy=text,
)


@given(answers, u32)
def test_answers_survive_the_wire(message: protocol.Answer, number: int) -> None:
    assert decode_answer(encode(message, number)) == (number, message)


@given(requests, u32)
def test_requests_survive_the_wire(message: protocol.Request, number: int) -> None:
    assert decode_request(encode(message, number)) == (number, message)


@given(events, u32)
def test_events_survive_the_wire(message: protocol.Event, number: int) -> None:
    assert decode_event(encode(message, number)) == (number, message)


@given(launches)
def test_launch_blobs_survive_the_wire(launch: Launch) -> None:
    assert Launch.decode(launch.encode()) == launch


@given(st.one_of(answers, requests, events), u32, st.data())
def test_a_packet_cut_short_or_with_bytes_left_over_is_refused(
    message: protocol.Answer | protocol.Request | protocol.Event, number: int, data: st.DataObject
) -> None:
    packet = encode(message, number)
    kinds = ((protocol.Event, decode_event), (protocol.Request, decode_request), (protocol.Answer, decode_answer))
    decode = next(decode for kind, decode in kinds if isinstance(message, kind))
    assert decode(packet) == (number, message)  # the control: only the change below makes it unreadable
    cut = data.draw(st.integers(0, len(packet) - 1))
    for wrong in (packet[:cut], packet + b"\0"):
        with pytest.raises(ProtocolError):
            decode(wrong)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_protocol_errors(data: bytes) -> None:
    for decode in (decode_answer, decode_request, decode_event, Launch.decode, Stats.decode):
        try:
            decode(data)
        except ProtocolError:
            continue


@given(st.one_of(answers, requests, events, launches), st.data())
def test_a_flipped_byte_raises_nothing_but_a_protocol_error(
    message: protocol.Answer | protocol.Request | protocol.Event | Launch, data: st.DataObject
) -> None:
    packet = bytearray(message.encode() if isinstance(message, Launch) else encode(message, 1))
    position = data.draw(st.integers(0, len(packet) - 1))
    packet[position] ^= data.draw(st.integers(1, 255))
    for decode in (decode_answer, decode_request, decode_event, Launch.decode):
        try:
            decode(bytes(packet))
        except ProtocolError:
            continue


def test_an_absurd_count_is_refused_before_anything_is_allocated() -> None:
    reader = Reader((0xFFFF_FFFF).to_bytes(4, "little") + b"\0" * 8)
    with pytest.raises(ProtocolError, match="4294967295 elements"):
        several(BYTES).read(reader)


@pytest.mark.parametrize("value", [-1, 2**32, "7", None])
def test_a_value_that_does_not_fit_its_field_is_refused_when_written(value: object) -> None:
    with pytest.raises(ProtocolError):
        U32.write([], value)


def test_unknown_flags_are_refused_in_requests_but_not_among_the_features_a_newer_supervisor_announces() -> None:
    run = bytearray(encode(RunRequest(RunFlag(0), b"/", (b"a",), ()), 1))
    run[8] |= 0x80
    with pytest.raises(ProtocolError, match="RunFlag"):
        decode_request(bytes(run))
    ready = bytearray(encode(Ready(1, 2, Feature.SYNC_WAKE_UP), 0))
    ready[16] |= 0x80
    assert decode_answer(bytes(ready)) == (0, Ready(1, 2, Feature.SYNC_WAKE_UP))


def test_a_run_in_a_memfd_keeps_its_flags_in_the_packet_and_the_rest_in_the_memfd() -> None:
    message = RunRequest(RunFlag.TTY, b"/w", (b"a", b"b" * 9), (b"K=v",))
    packet, payload = encode_run_in_memfd(message, 5)
    whole = encode(RunRequest(RunFlag.TTY | RunFlag.IN_MEMFD, message.cwd, message.argv, message.envp), 5)
    assert packet + payload == whole
    assert len(packet) == 12


def test_every_record_has_one_form_for_each_of_its_fields() -> None:
    defined = [*vars(launch_blob).values(), *vars(protocol).values()]
    kinds = {kind for kind in defined if isinstance(kind, type) and issubclass(kind, Record)} - {Record}
    assert len(kinds) >= 20
    for kind in kinds:
        assert len(kind.LAYOUT) == len(kind.__match_args__), kind


def test_constants_are_those_of_the_header() -> None:
    header = dict(_header_constants())
    for kind, prefix in (
        (LaunchFlag, "CG_LAUNCH_"),
        (StepKind, "CG_STEP_"),
        (BindFlag, "CG_BIND_"),
        (protocol.MessageType, "CG_MSG_"),
        (protocol.EventType, "CG_EVENT_"),
        (ListenKind, "CG_LISTEN_"),
        (RunFlag, "CG_RUN_"),
        (Feature, "CG_FEATURE_"),
        (protocol.RuleOrigin, "CG_RULE_"),
    ):
        ours = {f"{prefix}{member.name}": int(member) for member in kind}
        theirs = {name: value for name, value in header.items() if name.startswith(prefix) and not name.endswith("_MAGIC")}
        assert ours == theirs, kind
    operations = {name for name in header if name.startswith("CG_FS_OP_")} | {"CG_FS_OPS"}
    fs_names = {name: value for name, value in header.items() if name.startswith("CG_FS_") and name not in operations}
    members: list[IntEnum | FsFlag] = [*FsCall, *FsFlag]
    assert {f"CG_FS_{member.name}": int(member) for member in members} == fs_names
    for name, constant in (
        ("CG_PROTOCOL_VERSION", protocol.PROTOCOL_VERSION),
        ("CG_FD_CONTROL", protocol.FD_CONTROL),
        ("CG_FD_LAUNCH", protocol.FD_LAUNCH),
        ("CG_MESSAGE_MAX", protocol.MESSAGE_MAX),
        ("CG_LAUNCH_MAGIC", launch_blob.LAUNCH_MAGIC),
        ("CG_POLICY_MAGIC", launch_blob.POLICY_MAGIC),
    ):
        assert constant == header[name], name


def test_scopes_and_operations_are_numbered_as_in_the_header() -> None:
    from callgate.scopes.operations import OPERATIONS, SCOPES

    header = dict(_header_constants())
    words = {"childProcess": "CHILD_PROCESS"}
    for number, scope in enumerate(SCOPES):
        assert header[f"CG_SCOPE_{words.get(scope, scope.upper())}"] == number
    assert header["CG_SCOPES"] == len(SCOPES)
    for scope, prefix in (("fs", "CG_FS_OP_"), ("network", "CG_NET_OP_")):
        theirs = {name: value for name, value in header.items() if name.startswith(prefix)}
        assert theirs == {f"{prefix}{name.upper()}": number for number, name in enumerate(OPERATIONS[scope])}


def _header_constants() -> Iterator[tuple[str, int]]:
    """Every #define of a number and every enumerator of the header."""
    source = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    for name, value in re.findall(r"#define (CG_\w+) (0x[0-9a-fA-F]+|\d+)u?\b", source):
        yield name, int(value, 0)
    for body in re.findall(r"enum\s+\w*\s*\{(.*?)\}", source, flags=re.DOTALL):
        following = 0
        for enumerator in filter(None, (part.strip() for part in body.split(","))):
            name, _, value = (part.strip() for part in enumerator.partition("="))
            following = int(value.removesuffix("u"), 0) if value else following
            yield name, following
            following += 1
