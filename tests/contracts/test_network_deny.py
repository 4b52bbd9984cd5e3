"""`network: "deny"`, which is the default: an internet address is refused by name, and nothing leaves the VM."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EACCES
from typing import TYPE_CHECKING

import pytest

from tests.vm_fixtures import callgate, messages

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

CONNECT = "import socket; socket.create_connection(('192.0.2.1', 80))"
MESSAGE = "EACCES: permission denied, tcp://192.0.2.1:80: blocked by network.http policy"
ETHERTYPE_ALL = 0x0003


def errno_of(statement: str) -> list[str]:
    """A command that prints the errno a Python statement fails with, and 0 when it does not."""
    program = f"try:\n    {statement}\nexcept OSError as error: print(error.errno)\nelse: print(0)"
    return ["python3", "-c", f"import socket\n{program}"]


def test_a_connection_fails_with_errno_13_and_the_denial_names_the_peer() -> None:
    done = callgate("run", "--", "python3", "-c", CONNECT)
    assert (done.returncode, done.stdout) == (1, "")
    assert "PermissionError: [Errno 13] Permission denied" in done.stderr
    assert MESSAGE in done.stderr


def test_the_vm_records_the_peer_the_scope_and_what_decided(vm_factory: Callable[..., VM]) -> None:
    result = vm_factory().run(["python3", "-c", CONNECT])
    assert result.returncode == 1
    (denial,) = result.denials
    assert denial.message == MESSAGE
    assert (denial.scope, denial.operation, denial.subject, denial.rule) == ("network", "http", "tcp://192.0.2.1:80", "mode")


@pytest.mark.parametrize(
    ("statement", "subject"),
    [
        ("socket.socket().connect(('127.0.0.1', 9))", "tcp://127.0.0.1:9"),
        ("socket.socket(socket.AF_INET6).connect(('::1', 9))", "tcp://[::1]:9"),
        ("socket.socket(socket.AF_INET6).connect(('::ffff:192.0.2.1', 9))", "tcp://192.0.2.1:9"),
        ("socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 53))", "udp://192.0.2.1:53"),
        ("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))", "udp://192.0.2.1:53"),
        ("socket.socket(type=socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('192.0.2.1', 53))", "udp://192.0.2.1:53"),
    ],
    ids=["loopback", "loopback-6", "mapped", "udp-connect", "udp-sendto", "udp-sendmsg"],
)
def test_every_way_to_a_peer_is_refused_by_its_name(vm_factory: Callable[..., VM], statement: str, subject: str) -> None:
    result = vm_factory().run(errno_of(statement))
    assert result.stdout == f"{EACCES}\n"
    assert messages(result) == [f"EACCES: permission denied, {subject}: blocked by network.http policy"]


@pytest.mark.parametrize(
    ("statement", "subject"),
    [
        ("socket.socket().bind(('127.0.0.1', 8080))", "tcp://127.0.0.1:8080"),
        ("socket.socket().bind(('0.0.0.0', 0))", "tcp://0.0.0.0:0"),
        ("socket.socket(type=socket.SOCK_DGRAM).bind(('127.0.0.1', 8080))", "udp://127.0.0.1:8080"),
        ("socket.socket().listen()", "tcp://0.0.0.0:0"),
    ],
    ids=["tcp", "any", "udp", "listen-without-bind"],
)
def test_every_way_to_listen_is_refused(vm_factory: Callable[..., VM], statement: str, subject: str) -> None:
    result = vm_factory().run(errno_of(statement))
    assert result.stdout == f"{EACCES}\n"
    assert messages(result) == [f"EACCES: permission denied, {subject}: blocked by network.listen policy"]


CONVERSATION = """
import socket, threading
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
def answer():
    peer, _ = server.accept(); peer.sendall(peer.recv(5)[::-1]); peer.close()
threading.Thread(target=answer).start()
client = socket.create_connection(server.getsockname()); client.sendall(b'hello'); print(client.recv(5).decode())
here = socket.socket(type=socket.SOCK_DGRAM); here.bind(('127.0.0.1', 0))
socket.socket(type=socket.SOCK_DGRAM).sendto(b'datagram', here.getsockname()); print(here.recv(20).decode())
"""


@pytest.mark.parametrize(
    "network",
    ["allow", {"default": "deny", "rules": [{"mode": "allow", "patterns": ["127.0.0.1", "localhost", "[::1]"]}]}],
    ids=["allow", "loopback-rule"],
)
def test_the_vms_own_loopback_works_where_it_is_allowed(vm_factory: Callable[..., VM], network: object) -> None:
    result = vm_factory(permissions={"network": network}).run(["python3", "-c", CONVERSATION])
    assert (result.stdout, result.stderr, result.denials) == ("olleh\ndatagram\n", "", ())


def test_the_vms_loopback_is_not_the_hosts(vm_factory: Callable[..., VM]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        address = listener.getsockname()
        with socket.create_connection(address):  # the control: the listener does accept
            listener.accept()[0].close()
        for network, refusal in (("deny", 13), ("allow", 111)):
            result = vm_factory(permissions={"network": network}).run(errno_of(f"socket.create_connection({address!r})"))
            assert result.stdout == f"{refusal}\n"
        with pytest.raises(TimeoutError):
            listener.accept()


def test_the_vm_has_no_interface_but_its_own_loopback_and_sent_nothing(vm_factory: Callable[..., VM]) -> None:
    vm = vm_factory()
    vm.run(["python3", "-c", CONNECT])
    lines = vm.run(["cat", "/proc/net/dev"]).stdout.splitlines()[2:]
    counters = {name.strip(): numbers.split() for name, _, numbers in (line.partition(":") for line in lines)}
    assert set(counters) == {"lo"}
    assert set(counters["lo"]) == {"0"}
    assert vm.run(["cat", "/proc/net/route"]).stdout.splitlines()[1:] == []


@contextmanager
def packets_of_the_host() -> Iterator[socket.socket]:
    """Every frame on every interface of the host's network namespace."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETHERTYPE_ALL)) as sniffer:
        sniffer.settimeout(0.5)
        yield sniffer


def frames_to(sniffer: socket.socket, address: str) -> int:
    wanted, found = socket.inet_aton(address), 0
    while True:
        try:
            frame, where = sniffer.recvfrom(65535)
        except TimeoutError:
            return found
        is_ipv4 = where[1] == 0x0800 and len(frame) >= 20
        found += is_ipv4 and struct.unpack_from("4s", frame, 16)[0] == wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="looking at the host's packets needs root")
def test_no_packet_leaves(vm_factory: Callable[..., VM]) -> None:
    with packets_of_the_host() as sniffer:
        with socket.socket(type=socket.SOCK_DGRAM) as control:
            control.sendto(b"x", ("127.1.2.3", 9))
        assert frames_to(sniffer, "127.1.2.3") > 0
        vm = vm_factory()
        for statement in ("socket.create_connection(('192.0.2.1', 80))", "socket.getaddrinfo('example.com', 80)"):
            vm.run(errno_of(statement))
        vm.run(errno_of("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))"))
        assert frames_to(sniffer, "192.0.2.1") == 0
