"""Ways round `network: "deny"`: odd calls, odd sockets, odd addresses (catalogue 71 to 74, 78 to 80, 90)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EACCES, EAFNOSUPPORT, EINVAL
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.escapes.addresses import inet, inet6, message, sends, unix
from tests.vm_fixtures import Earlier, Out, Probe, Raw, Words, call, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
INET, INET6, UNIX = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
MSG_FASTOPEN = 0x2000_0000
IPPROTO_MPTCP, IPPROTO_UDPLITE, IPPROTO_DCCP = 262, 136, 33


@contextmanager
def counting(kind: int, host: str = "127.0.0.1") -> Iterator[tuple[int, Callable[[], int]]]:
    """A socket of the host: its port, and how many connections or datagrams it has got."""
    with socket.socket(INET6 if ":" in host else INET, kind) as listener:
        listener.bind((host, 0))
        if kind == STREAM:
            listener.listen()
        listener.settimeout(0.2)

        def got() -> int:
            count = 0
            while True:
                try:
                    if kind == STREAM:
                        listener.accept()[0].close()
                    else:
                        listener.recv(100)
                except TimeoutError:
                    return count
                count += 1

        yield listener.getsockname()[1], got


def test_every_datagram_call_is_refused_and_none_arrives(vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> None:
    with counting(DGRAM) as (port, got):
        peer = inet("127.0.0.1", port)
        lines = [
            call("socket", INET, DGRAM, 0),
            *sends(Earlier(0), peer),
            call("connect", Earlier(0), peer, 16),
            call("write", Earlier(0), Raw(b"x"), 1),
        ]
        assert results(probe.on_host(lines, cwd=host_dir)) == [3, 1, 1, 2, 0, 1]
        assert got() == 5
        for permissions in (
            None,
            {"network": "deny", "fs": "deny"},
            {"network": {"rules": [{"mode": "allow", "patterns": ["a.b"]}]}},
        ):
            vm = vm_factory(permissions=permissions, files=probe.files)
            answers = results(probe.in_vm(vm, lines))
            assert answers[:5] == [3, -EACCES, -EACCES, -EACCES, -EACCES]
            assert answers[5] < 0
        assert got() == 0


def test_every_stream_call_is_refused_and_none_arrives(vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> None:
    with counting(STREAM) as (port, got):
        peer = inet("127.0.0.1", port)
        lines = [
            call("socket", INET, STREAM, 0),
            call("sendto", Earlier(0), Raw(b"x"), 1, MSG_FASTOPEN, peer, 16),
            call("socket", INET, STREAM, 0),
            call("sendmsg", Earlier(2), message(peer), MSG_FASTOPEN),
            call("socket", INET, STREAM, 0),
            call("connect", Earlier(4), peer, 16),
        ]
        assert results(probe.on_host(lines, cwd=host_dir)) == [3, 1, 4, 1, 5, 0]
        assert got() == 3
        several = Words((*message(peer).words, 0))
        more = [
            call("sendmmsg", Earlier(0), several, 1, MSG_FASTOPEN),
            call("setsockopt", Earlier(0), 6, 30, Raw(b"\1\0\0\0"), 4),
        ]
        for permissions in (None, {"fs": "deny"}):
            answers = results(probe.in_vm(vm_factory(permissions=permissions, files=probe.files), [*lines, *more]))
            assert answers == [3, -EACCES, 4, -EACCES, 5, -EACCES, -EACCES, -EACCES]
        assert got() == 0


@pytest.mark.parametrize("address", ["::1", "::ffff:127.0.0.1", "::", "::ffff:0.0.0.0"])
def test_other_spellings_of_the_loopback_are_refused(vm_factory: Callable[..., VM], probe: Probe, address: str) -> None:
    lines = []
    for n, kind in enumerate((STREAM, DGRAM)):
        lines += [call("socket", INET6, kind, 0), call("connect", Earlier(2 * n), inet6(address, 80), 28)]
    vm = vm_factory(files=probe.files)
    assert results(probe.in_vm(vm, lines)) == [3, -EACCES, 4, -EACCES]
    hosts = {denial.subject.partition("://")[2] for denial in vm.denials}
    assert hosts == ({"127.0.0.1:80"} if "ffff" in address else {"[::1]:80"})


def test_dissolving_an_association_does_not_lead_past_the_policy(vm_factory: Callable[..., VM], probe: Probe) -> None:
    policy = {"network": {"rules": [{"mode": "allow", "patterns": ["127.0.0.1:9"]}]}}
    lines = [
        call("socket", INET, DGRAM, 0),
        call("connect", Earlier(0), inet("127.0.0.1", 9), 16),
        call("connect", Earlier(0), inet("127.0.0.1", 10), 16),
        call("connect", Earlier(0), Raw(struct.pack("<H", 0) + inet("127.0.0.1", 10).content[2:]), 16),
        *sends(Earlier(0), inet("127.0.0.1", 10)),
        call("connect", Earlier(0), inet("127.0.0.1", 9), 16),
    ]
    answers = results(probe.in_vm(vm_factory(permissions=policy, files=probe.files), lines))
    assert answers == [3, 0, -EACCES, 0, -EACCES, -EACCES, -EACCES, 0]


SOCKETS = {
    "mptcp": (INET, STREAM, IPPROTO_MPTCP),
    "sctp": (INET, STREAM, socket.IPPROTO_SCTP),
    "sctp-seqpacket": (INET, socket.SOCK_SEQPACKET, socket.IPPROTO_SCTP),
    "dccp": (INET, 6, IPPROTO_DCCP),
    "udplite": (INET, DGRAM, IPPROTO_UDPLITE),
    "icmp": (INET, DGRAM, socket.IPPROTO_ICMP),
    "raw": (INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "raw-6": (INET6, socket.SOCK_RAW, 58),
    "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0x0300),
    "packet-old": (INET, 10, 0x0300),
    "vsock": (socket.AF_VSOCK, STREAM, 0),
    "alg": (socket.AF_ALG, socket.SOCK_SEQPACKET, 0),
    "netlink-netfilter": (socket.AF_NETLINK, socket.SOCK_RAW, 12),
    "netlink-audit": (socket.AF_NETLINK, socket.SOCK_RAW, 9),
    "netlink-uevent": (socket.AF_NETLINK, DGRAM, 15),
    "netlink-generic": (socket.AF_NETLINK, socket.SOCK_RAW, 16),
    "xdp": (44, socket.SOCK_RAW, 0),
    "rds": (21, socket.SOCK_SEQPACKET, 0),
    "tipc": (30, STREAM, 0),
    "smc": (43, STREAM, 0),
    "can": (29, socket.SOCK_RAW, 1),
    "kcm": (41, DGRAM, 0),
    "bluetooth": (31, STREAM, 3),
    "x25": (9, socket.SOCK_SEQPACKET, 0),
    "key": (15, socket.SOCK_RAW, 2),
    "unknown": (200, STREAM, 0),
    "negative": (-1, STREAM, 0),
}


@pytest.mark.parametrize("permissions", [{}, {"network": "allow"}], ids=["deny", "allow"])
def test_other_kinds_of_sockets_do_not_exist(vm_factory: Callable[..., VM], probe: Probe, permissions: dict[str, object]) -> None:
    vm = vm_factory(permissions=permissions, files=probe.files)
    flags = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    lines = [
        call("socket", family, kind | extra, protocol) for family, kind, protocol in SOCKETS.values() for extra in (0, flags)
    ]
    pairs = [call("socketpair", family, kind, protocol, Out(8)) for family, kind, protocol in SOCKETS.values()]
    assert set(results(probe.in_vm(vm, [*lines, *pairs]))) <= {-EACCES, -EAFNOSUPPORT}


@pytest.mark.parametrize("permissions", [{}, {"network": "allow"}], ids=["deny", "allow"])
def test_the_kinds_that_programs_need_can_be_made(
    vm_factory: Callable[..., VM], probe: Probe, permissions: dict[str, object]
) -> None:
    kinds = [
        (INET, STREAM, 0),
        (INET, STREAM, 6),
        (INET, DGRAM, 17),
        (INET6, STREAM, 0),
        (UNIX, STREAM, 0),
        (UNIX, DGRAM, 0),
        (UNIX, 5, 0),
    ]
    lines = [
        *(call("socket", *kind) for kind in kinds),
        call("socket", socket.AF_NETLINK, 3, 0),
        call("socketpair", UNIX, STREAM, 0, Out(8)),
    ]
    assert min(results(probe.in_vm(vm_factory(permissions=permissions, files=probe.files), lines))) >= 0


def test_interfaces_can_be_listed(vm_factory: Callable[..., VM]) -> None:
    program = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert vm_factory().run(["python3", "-c", program]).stdout == "['lo']\n"


def test_an_address_of_another_family_than_the_socket_reaches_nobody(vm_factory: Callable[..., VM], probe: Probe) -> None:
    lies = [
        call("socket", UNIX, STREAM, 0),
        call("connect", Earlier(0), inet("127.0.0.1", 9), 16),
        call("socket", INET, STREAM, 0),
        call("connect", Earlier(2), unix(b"/tmp/x\0"), 9),
        call("connect", Earlier(2), inet6("::1", 9), 28),
        call("connect", Earlier(2), Raw(b"\2"), 1),
        call("connect", Earlier(2), Raw(b"\2\0"), 2),
        call("connect", Earlier(2), inet("127.0.0.1", 9), 200),
        call("connect", Earlier(2), inet("127.0.0.1", 9), -1),
    ]
    for permissions in ({}, {"network": "allow"}, judged_but_allowed(network="allow")):
        answers = results(probe.in_vm(vm_factory(permissions=permissions, files=probe.files), lies))
        assert answers[0::2][:2] == [3, 4]
        assert set(answers[1:2] + answers[3:]) - {4} <= {-EINVAL, -EAFNOSUPPORT, -EACCES}


def test_of_several_messages_the_denied_one_is_not_sent(vm_factory: Callable[..., VM], probe: Probe) -> None:
    policy = {
        "network": {
            "rules": [
                {"mode": "allow", "patterns": ["127.0.0.1"]},
                {"mode": "deny", "operations": ["http"], "patterns": ["127.0.0.1:8082"]},
            ]
        }
    }
    allowed, denied = inet("127.0.0.1", 8081), inet("127.0.0.1", 8082)
    both = Words((*message(allowed, b"first").words, 0, *message(denied, b"second").words, 0))
    lines = [
        call("socket", INET, DGRAM | socket.SOCK_NONBLOCK, 0),
        call("bind", Earlier(0), allowed, 16),
        call("socket", INET, DGRAM | socket.SOCK_NONBLOCK, 0),
        call("bind", Earlier(2), denied, 16),
        call("socket", INET, DGRAM, 0),
        call("sendmmsg", Earlier(4), both, 2, 0),
        call("recvfrom", Earlier(0), Out(16), 16, 0, 0, 0),
        call("recvfrom", Earlier(2), Out(16), 16, 0, 0, 0),
    ]
    answers = probe.in_vm(vm_factory(permissions=policy, files=probe.files), lines)
    assert results(answers[:6]) == [3, 0, 4, 0, 5, 1]
    assert (answers[6].outputs, answers[7].result) == ((b"first",), -11)
    free = probe.in_vm(vm_factory(permissions={"network": "allow"}, files=probe.files), lines)
    assert (results(free[5:6]), free[7].outputs) == ([2], (b"second",))


def test_a_denied_port_is_not_bound_by_any_way(vm_factory: Callable[..., VM], probe: Probe) -> None:
    policy = {"network": {"rules": [{"mode": "allow", "patterns": ["127.0.0.1:8081"]}]}}
    lines = [
        call("socket", INET, STREAM, 0),
        call("listen", Earlier(0), 5),
        call("bind", Earlier(0), inet("127.0.0.1", 0), 16),
        call("bind", Earlier(0), inet("0.0.0.0", 8081), 16),
        call("bind", Earlier(0), inet("127.0.0.1", 8082), 16),
        call("bind", Earlier(0), inet("127.0.0.1", 8081), 16),
        call("listen", Earlier(0), 5),
    ]
    assert results(probe.in_vm(vm_factory(permissions=policy, files=probe.files), lines)) == [3, -13, -13, -13, -13, 0, 0]


def test_a_port_denied_at_the_loopback_is_not_served_at_any_address(vm_factory: Callable[..., VM], probe: Probe) -> None:
    deny = {"mode": "deny", "operations": ["listen"], "patterns": ["localhost:8081"]}
    lines = [
        call("socket", INET, STREAM, 0),
        call("bind", Earlier(0), inet("127.0.0.1", 8081), 16),
        call("bind", Earlier(0), inet("0.0.0.0", 8081), 16),
        call("socket", INET6, STREAM, 0),
        call("bind", Earlier(3), inet6("::", 8081), 28),
        call("bind", Earlier(0), inet("0.0.0.0", 8082), 16),
        call("listen", Earlier(0), 5),
    ]
    vm = vm_factory(permissions={"network": {"default": "allow", "rules": [deny]}}, files=probe.files)
    assert results(probe.in_vm(vm, lines)) == [3, -EACCES, -EACCES, 4, -EACCES, 0, 0]
    for denial in vm.denials:
        assert denial.rule == 0
        assert vm.explain("network", "listen", denial.subject).rule == 0
    named = {"mode": "allow", "operations": ["listen"], "patterns": ["0.0.0.0:8081"]}
    vm = vm_factory(permissions={"network": {"default": "allow", "rules": [deny, named]}}, files=probe.files)
    assert results(probe.in_vm(vm, lines))[:3] == [3, -EACCES, 0]


def test_dangerous_socket_options_are_refused(vm_factory: Callable[..., VM], probe: Probe) -> None:
    options = [(1, 25), (1, 26), (1, 36), (1, 50), (0, 19), (0, 51), (6, 19), (6, 30), (6, 31), (41, 75), (0, 64)]
    lines = [
        call("socket", INET, STREAM, 0),
        *(call("setsockopt", 3, level, option, Raw(bytes(16)), 16) for level, option in options),
    ]
    assert results(probe.in_vm(vm_factory(files=probe.files), lines)) == [3] + [-EACCES] * len(options)
    answers = results(probe.in_vm(vm_factory(permissions={"network": "allow"}, files=probe.files), lines))
    assert answers == [3] + [-EACCES] * len(options)
