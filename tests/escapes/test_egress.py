"""What leaves a VM under a policy that lets something leave: only what was judged (catalogue 72, 75, 77, 79, 86)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from errno import EACCES, EADDRINUSE, ECONNREFUSED, EINVAL, EOPNOTSUPP, EPERM
from typing import TYPE_CHECKING, Any, Final

import pytest

from callgate.kernel.protocol import NameFlag, NameRequest
from tests.escapes.addresses import inet, inet6, message, sends
from tests.escapes.canaries import LOOPBACK, Canary
from tests.vm_fixtures import Earlier, Probe, Raw, Words, call, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
INET, INET6 = socket.AF_INET, socket.AF_INET6
Make = Callable[..., "VM"]

#: Stand for whatever name a test gives them; of those that the resolver hands out.
STAND_IN, STAND_IN_6 = "198.19.200.1", "2001:2::c613:c801"
OTHER, OTHER_6 = "198.19.200.2", "2001:2::c613:c802"


def allow(*patterns: str, **more: Any) -> dict[str, Any]:
    return {"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": list(patterns)}]}, **more}


def packed(address: str) -> bytes:
    return socket.inet_pton(INET6 if ":" in address else INET, address)


NO_FLAGS: Final = NameFlag(0)


def learn(vm: VM, name: str, *addresses: str, flags: NameFlag = NO_FLAGS, port: int = 0, stand_in: str = STAND_IN) -> None:
    """Tell the supervisor what a name leads to, as the resolver does before it answers."""
    six = STAND_IN_6 if stand_in == STAND_IN else OTHER_6
    request = NameRequest(name.encode(), packed(stand_in), packed(six), flags, port, tuple(map(packed, addresses)))
    assert vm._supervisor.set_name(request)


@pytest.fixture
def canary() -> Iterator[Canary]:
    with Canary() as made:
        yield made


def tries(address: str, port: int) -> list[str]:
    """A connection, a connected datagram socket, and every call that sends a datagram to an address."""
    family, peer = (INET6, inet6(address, port)) if ":" in address else (INET, inet(address, port))
    size = len(peer.content)
    return [
        call("socket", family, STREAM | socket.SOCK_NONBLOCK, 0),
        call("connect", Earlier(0), peer, size),
        call("socket", family, DGRAM, 0),
        call("connect", Earlier(2), peer, size),
        call("socket", family, DGRAM, 0),
        *sends(Earlier(4), peer),
    ]


REFUSED: Final = [3, -EACCES, 4, -EACCES, 5, -EACCES, -EACCES, -EACCES]

LOCAL: Final = {
    "10.1.2.3": "a private address",
    "172.31.255.254": "a private address",
    "192.168.0.1": "a private address",
    "169.254.169.254": "a cloud metadata address",
    "169.254.1.1": "a link-local address",
    "100.100.1.1": "a shared (CGNAT) address",
    "0.1.2.3": "a loopback address",
    "224.0.0.251": "a multicast address",
    "255.255.255.255": "a reserved address",
    "::ffff:10.1.2.3": "a private address",
    "::ffff:169.254.169.254": "a cloud metadata address",
    "::10.1.2.3": "a private address",
    "64:ff9b::7f00:1": "a loopback address",
    "64:ff9b::a9fe:a9fe": "a cloud metadata address",
    "64:ff9b:1::808:808": "a private address",
    "2002:7f00:1::1": "a loopback address",
    "2001:0:a9fe:a9fe::1": "a cloud metadata address",
    "fe80::1": "a link-local address",
    "fd12:3456::1": "a private address",
    "ff02::fb": "a multicast address",
    "fd00:ec2::254": "a cloud metadata address",
}


@pytest.mark.parametrize("address", LOCAL)
def test_no_local_address_is_reached_under_a_bare_allow(vm_factory: Make, probe: Probe, canary: Canary, address: str) -> None:
    vm = vm_factory(permissions={"network": "allow"}, files=probe.files)
    assert results(probe.in_vm(vm, tries(address, canary.port))) == REFUSED
    assert {(denial.rule, denial.reason) for denial in vm.denials} == {("local address", LOCAL[address])}
    assert {vm.explain("network", "http", denial.subject).rule for denial in vm.denials} == {"local address"}
    assert canary.contacts == 0


@pytest.mark.parametrize("address", [LOOPBACK, "127.1.2.3", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_the_loopback_of_a_guest_is_the_vms_whatever_is_allowed(
    vm_factory: Make, probe: Probe, canary: Canary, address: str
) -> None:
    vm = vm_factory(permissions={"network": "allow"}, files=probe.files)
    first = results(probe.in_vm(vm, tries(address, canary.port)))[1]
    assert first in (-ECONNREFUSED, -115)
    assert (vm.denials, canary.contacts) == ((), 0)


def test_control_a_port_that_the_operator_opened_is_reached_and_no_other(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    with Canary() as other:
        vm = vm_factory(permissions={"network": "allow"}, files=probe.files, host_ports=[canary.port])
        for address in (LOOPBACK, "::1", "::ffff:127.0.0.1", "0.0.0.0"):
            answers = results(probe.in_vm(vm, tries(address, canary.port)))
            assert answers[1] in (0, -115)
            assert answers[3:] == [0, 5, 1, 1, 2]
            probe.in_vm(vm, tries(address, other.port))
        vm.run(["true"])
        assert canary.connections == 4
        assert canary.datagrams == 16
        assert other.contacts == 0
        assert vm.denials == ()


@pytest.mark.parametrize("address", ["10.1.2.3", "169.254.169.254"])
def test_a_rule_that_names_the_address_opens_it(vm_factory: Make, probe: Probe, address: str) -> None:
    for pattern, opened in ((address, True), (address[:-1] + "?", True), ("*", False), ("*:80", False), ("*.*", False)):
        vm = vm_factory(permissions=allow(pattern), files=probe.files)
        peer = inet(address, 80)
        answers = results(probe.in_vm(vm, [call("socket", INET, DGRAM, 0), call("connect", Earlier(0), peer, 16)]))
        assert (answers[1] != -EACCES) is opened, pattern  # whether there is a way to it is the host's matter


@pytest.mark.parametrize("address", [LOOPBACK, "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0", "::"])
@pytest.mark.parametrize("rules", [["evil.example"], ["evil.example", LOOPBACK, "[::1]"]], ids=["name", "loopback-too"])
def test_a_name_that_leads_to_the_hosts_loopback_is_refused(
    vm_factory: Make, probe: Probe, canary: Canary, address: str, rules: list[str]
) -> None:
    """DNS rebinding. A rule on the loopback speaks of the VM's own; the control is the operator's word for the host's."""
    vm = vm_factory(permissions=allow(*rules), files=probe.files)
    learn(vm, "evil.example", address)
    stand_in = STAND_IN_6 if packed(address)[4:] and ":" in address else STAND_IN
    assert results(probe.in_vm(vm, tries(stand_in, canary.port))) == REFUSED
    assert {denial.rule for denial in vm.denials} == {"local address"}
    assert {denial.subject.partition("://")[2] for denial in vm.denials} == {f"evil.example:{canary.port}"}
    assert "a loopback address" in vm.denials[0].reason
    assert canary.contacts == 0
    if address in (LOOPBACK, "::1"):
        learn(vm, "evil.example", address, flags=NameFlag.OPERATOR)
        assert results(probe.in_vm(vm, tries(stand_in, canary.port)))[3:] == [0, 5, 1, 1, 2]
        assert canary.contacts == 5


def test_the_hosts_own_name_opens_the_listed_ports_alone(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    with Canary() as other:
        vm = vm_factory(permissions=allow("host.callgate.internal"), files=probe.files, host_ports=[canary.port])
        learn(vm, "host.callgate.internal", LOOPBACK, "::1", flags=NameFlag.OPERATOR | NameFlag.HOST_PORTS)
        for address in (STAND_IN, STAND_IN_6):
            assert results(probe.in_vm(vm, tries(address, other.port))) == REFUSED
            assert results(probe.in_vm(vm, tries(address, canary.port)))[3:] == [0, 5, 1, 1, 2]
        assert other.contacts == 0
        assert "not among host_ports" in vm.denials[0].reason


def test_only_the_allowed_name_and_port_lead_through(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    """Two names share one address: another port, the other name and the address itself stay refused."""
    vm = vm_factory(
        permissions=allow(f"one.example:{canary.port}"),
        files=probe.files,
        hosts={"one.example": LOOPBACK, "two.example": LOOPBACK},
    )
    learn(vm, "one.example", LOOPBACK, flags=NameFlag.OPERATOR)
    learn(vm, "two.example", LOOPBACK, flags=NameFlag.OPERATOR, stand_in=OTHER)
    with Canary() as elsewhere:
        for address, port in ((STAND_IN, elsewhere.port), (OTHER, canary.port), (LOOPBACK, canary.port), (OTHER_6, canary.port)):
            assert results(probe.in_vm(vm, tries(address, port))) == REFUSED
        assert (canary.contacts, elsewhere.contacts) == (0, 0)
    assert results(probe.in_vm(vm, tries(STAND_IN, canary.port)))[3:] == [0, 5, 1, 1, 2]
    assert canary.contacts == 5


@pytest.mark.parametrize("address", ["198.18.77.77", "198.19.255.254", "2001:2::1", "2001:2::c612:4d4d"])
def test_an_address_that_stands_for_no_name_leads_nowhere(vm_factory: Make, probe: Probe, address: str) -> None:
    vm = vm_factory(permissions={"network": "allow"}, files=probe.files)
    assert results(probe.in_vm(vm, tries(address, 80))) == REFUSED
    assert {denial.rule for denial in vm.denials} == {"local address"}


def test_a_rule_on_the_real_address_refuses_the_name_that_leads_there(vm_factory: Make, probe: Probe) -> None:
    rules = [
        {"mode": "deny", "patterns": ["192.0.2.1:25"]},
        {"mode": "deny", "patterns": ["198.51.100.*"]},
        {"mode": "allow", "patterns": ["mail.example"]},
    ]
    vm = vm_factory(permissions={"network": {"default": "deny", "rules": rules}}, files=probe.files)
    for address, port, rule in (("192.0.2.1", 25, 0), ("198.51.100.9", 443, 1), ("64:ff9b::c000:201", 25, 0)):
        learn(vm, "mail.example", address)
        seen = len(vm.denials)
        assert results(probe.in_vm(vm, tries(STAND_IN_6 if ":" in address else STAND_IN, port))) == REFUSED
        assert {denial.rule for denial in vm.denials[seen:]} == {rule}
        assert "an address that a rule denies" in vm.denials[seen].reason
    learn(vm, "mail.example", "192.0.2.1")
    lines = [call("socket", INET, DGRAM, 0), call("connect", Earlier(0), inet(STAND_IN, 26), 16)]
    assert results(probe.in_vm(vm, lines))[1] != -EACCES


def test_the_next_answer_of_the_resolver_replaces_the_last(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    """Rebinding between a look-up and a connection: what the host was told last is what counts, never the guest's copy."""
    vm = vm_factory(permissions=allow("turns.example"), files=probe.files)
    learn(vm, "turns.example", LOOPBACK, flags=NameFlag.OPERATOR)
    assert results(probe.in_vm(vm, tries(STAND_IN, canary.port)))[3:] == [0, 5, 1, 1, 2]
    seen = canary.contacts
    learn(vm, "turns.example", LOOPBACK)
    assert results(probe.in_vm(vm, tries(STAND_IN, canary.port))) == REFUSED
    assert canary.contacts == seen


def test_a_datagram_socket_that_went_outside_is_judged_at_every_send(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    with Canary() as denied:
        vm = vm_factory(
            permissions=allow(f"udp://{LOOPBACK}:{canary.port}"), files=probe.files, host_ports=[canary.port, denied.port]
        )
        good, bad = inet(LOOPBACK, canary.port), inet(LOOPBACK, denied.port)
        both = Words((*message(good, b"a").words, 0, *message(bad, b"b").words, 0))
        lines = [
            call("socket", INET, DGRAM, 0),
            call("sendto", Earlier(0), Raw(b"x"), 1, 0, good, 16),
            *sends(Earlier(0), bad),
            call("connect", Earlier(0), good, 16),
            call("connect", Earlier(0), bad, 16),
            *sends(Earlier(0), bad),
            call("connect", Earlier(0), Raw(bytes(16)), 16),
            *sends(Earlier(0), bad),
            call("sendmmsg", Earlier(0), both, 2, 0),
            call("connect", Earlier(0), bad, 16),
        ]
        wanted = [3, 1, *[-EACCES] * 3, 0, *[-EACCES] * 4, 0, *[-EACCES] * 3, 1, -EACCES]
        assert results(probe.in_vm(vm, lines)) == wanted
        assert canary.datagrams == 2
        assert denied.contacts == 0


def test_a_socket_that_went_outside_does_not_listen_on_the_host(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    vm = vm_factory(permissions={"network": "allow"}, files=probe.files, host_ports=[canary.port])
    good, nobody, any_port = inet(LOOPBACK, canary.port), Raw(bytes(16)), inet("0.0.0.0", port)
    lines: list[str] = []
    for kind in (STREAM, DGRAM):
        start = len(lines)
        lines += [
            call("socket", INET, kind, 0),
            call("connect", Earlier(start), good, 16),
            call("connect", Earlier(start), nobody, 16),
            call("bind", Earlier(start), any_port, 16),
        ]
    lines.append(call("listen", Earlier(0), 5))
    answers = results(probe.in_vm(vm, lines))
    assert answers == [3, 0, 0, 0, 4, 0, 0, 0, 0]
    program = (
        "import socket\n"
        f"def out(kind):\n    s = socket.socket(type=kind); s.connect(('127.0.0.1', {canary.port}))\n"
        "    import ctypes; ctypes.CDLL(None).connect(s.fileno(), bytes(16), 16); return s\n"
        "t, u = out(socket.SOCK_STREAM), out(socket.SOCK_DGRAM)\n"
        f"t.bind(('0.0.0.0', {port})); t.listen(); u.bind(('0.0.0.0', {port}))\n"
        "import os; open('/tmp/ready', 'w').close()\nwhile os.path.exists('/tmp/ready'): pass\n"
    )
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(vm.run, ["python3", "-c", program], timeout=60)
        while not vm.fs.exists("/tmp/ready"):
            assert not running.done(), running.result()
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((LOOPBACK, port))
        with socket.socket(type=DGRAM) as mine:
            mine.bind((LOOPBACK, port))  # nobody has it
        vm.fs.remove("/tmp/ready")
        assert running.result().returncode == 0


def test_an_outside_socket_tells_nothing_of_the_hosts_interfaces(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    vm = vm_factory(permissions={"network": "allow"}, files=probe.files, host_ports=[canary.port])
    name = Raw(b"lo".ljust(40, b"\0"))
    siocgifindex, siocgifaddr = 0x8933, 0x8915
    lines = [
        call("socket", INET, DGRAM, 0),
        call("ioctl", Earlier(0), siocgifindex, name),
        call("ioctl", Earlier(0), siocgifaddr, name),
        call("connect", Earlier(0), inet(LOOPBACK, canary.port), 16),
        call("ioctl", Earlier(0), siocgifindex, name),
        call("ioctl", Earlier(0), siocgifaddr, name),
        call("ioctl", 0, siocgifindex, name),
    ]
    assert results(probe.in_vm(vm, lines)) == [3, 0, 0, 0, -EACCES, -EACCES, -25]


def test_no_malformed_address_is_taken_for_another(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    vm = vm_factory(permissions=allow("one.example", LOOPBACK), files=probe.files, host_ports=[])
    learn(vm, "one.example", LOOPBACK, flags=NameFlag.OPERATOR)
    whole = inet(STAND_IN, canary.port)
    six = inet6(STAND_IN_6, canary.port)
    lines = [call("socket", INET, STREAM, 0), call("socket", INET, DGRAM, 0), call("socket", INET6, DGRAM, 0)]
    for length in range(1, 16):
        lines += [call("connect", 3, whole, length), call("sendto", 4, Raw(b"x"), 1, 0, whole, length)]
    lines += [call("sendto", 5, Raw(b"x"), 1, 0, six, length) for length in range(1, 24)]
    unspecified = Raw(b"\0\0" + whole.content[2:])
    lines += [
        call("sendto", 4, Raw(b"x"), 1, 0, unspecified, 16),  # the kernel would take it for IPv4
        call("sendto", 5, Raw(b"x"), 1, 0, Raw(b"\0\0" + six.content[2:]), 28),
        call("connect", 3, six, 28),
        call("connect", 3, whole, 129),
        call("connect", 3, 0, 16),
        call("connect", 3, 8, 16),
        call("sendmsg", 4, message(unspecified), 0),
    ]
    answers = results(probe.in_vm(vm, lines))[3:]
    assert max(answers) < 0
    assert -EINVAL in answers
    assert canary.contacts == 0


def test_connecting_while_sending_is_refused_or_not_supported(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    """Catalogue 73, where the peer is allowed and where it is not; the control is the connection that such programs then make."""
    fast_open = 0x2000_0000
    with Canary() as denied:
        vm = vm_factory(permissions=allow(f"{LOOPBACK}:{canary.port}"), files=probe.files, host_ports=[canary.port, denied.port])
        for peer, errno in ((inet(LOOPBACK, canary.port), EOPNOTSUPP), (inet(LOOPBACK, denied.port), EACCES)):
            several = Words((*message(peer).words, 0))
            lines = [
                call("socket", INET, STREAM, 0),
                call("sendto", Earlier(0), Raw(b"x"), 1, fast_open, peer, 16),
                call("sendmsg", Earlier(0), message(peer), fast_open),
                call("sendmmsg", Earlier(0), several, 1, fast_open),
                call("sendto", Earlier(0), Raw(b"x"), 1, fast_open, 0, 0),
                call("setsockopt", Earlier(0), 6, 30, Raw(b"\1\0\0\0"), 4),
            ]
            assert results(probe.in_vm(vm, lines)) == [3, -errno, -errno, -errno, -EOPNOTSUPP, -EACCES]
        assert (canary.contacts, denied.contacts) == (0, 0)
        reached = [
            call("socket", INET, STREAM, 0),
            call("connect", Earlier(0), inet(LOOPBACK, canary.port), 16),
            call(
                "sendto", Earlier(0), Raw(b"x"), 1, 0, inet(LOOPBACK, denied.port), 16
            ),  # a stream goes where it is connected to
        ]
        assert results(probe.in_vm(vm, reached)) == [3, 0, 1]
        assert (canary.connections, denied.contacts) == (1, 0)


@pytest.mark.parametrize("permissions", [{"network": "deny"}, {"network": "allow"}], ids=["deny", "allow"])
def test_the_resolver_is_reached_under_any_policy_and_nobody_can_take_its_place(
    vm_factory: Make, probe: Probe, permissions: dict[str, Any]
) -> None:
    resolver, beside = inet("127.0.0.53", 53), inet("127.0.0.53", 54)
    one = Raw(b"\1\0\0\0")
    lines: list[str] = []
    for kind in (STREAM, DGRAM):
        lines += [
            call("socket", INET, kind, 0),
            call("setsockopt", Earlier(len(lines)), 1, 2, one, 4),
            call("setsockopt", Earlier(len(lines)), 1, 15, one, 4),
            call("bind", Earlier(len(lines)), resolver, 16),
            call("bind", Earlier(len(lines)), inet("0.0.0.0", 53), 16),
            call("connect", Earlier(len(lines)), resolver, 16),
        ]
    lines += [
        call("socket", INET, DGRAM, 0),
        *sends(Earlier(12), resolver),
        call("socket", INET, STREAM | socket.SOCK_NONBLOCK, 0),
        call("connect", Earlier(16), beside, 16),
        call("socket", INET6, DGRAM, 0),
        call("connect", Earlier(18), inet6("::ffff:127.0.0.53", 53), 28),
    ]
    answers = results(probe.in_vm(vm_factory(permissions=permissions, files=probe.files), lines))
    for start in (0, 6):
        assert answers[start + 1 : start + 3] == [0, 0]
        assert set(answers[start + 3 : start + 5]) <= {-EACCES, -EADDRINUSE}
        assert answers[start + 5] == 0
    assert answers[12:16] == [5, 1, 1, 2]
    assert (answers[17] == -EACCES) is (permissions["network"] == "deny")
    assert answers[19] == 0


def test_a_datagram_socket_bound_to_anything_is_no_server(vm_factory: Make, probe: Probe) -> None:
    """musl's resolver binds one so; what names an address or a port is a server's."""
    nothing, six = inet("0.0.0.0", 0), inet6("::", 0)
    lines = [
        call("socket", INET, DGRAM, 0),
        call("bind", Earlier(0), nothing, 16),
        call("socket", INET6, DGRAM, 0),
        call("bind", Earlier(2), six, 28),
        call("socket", INET, DGRAM, 0),
        call("bind", Earlier(4), inet(LOOPBACK, 0), 16),
        call("bind", Earlier(4), inet("0.0.0.0", 5000), 16),
        call("socket", INET, STREAM, 0),
        call("bind", Earlier(7), nothing, 16),
    ]
    answers = results(probe.in_vm(vm_factory(files=probe.files), lines))
    assert answers == [3, 0, 4, 0, 5, -EACCES, -EACCES, 6, -EACCES]


def test_what_a_message_says_of_its_way_is_checked(vm_factory: Make, probe: Probe, canary: Canary) -> None:
    """A time to live passes, an interface's number is taken out, options that hold a route and credentials are refused."""

    def with_control(level: int, kind: int, data: bytes) -> Words:
        whole = struct.pack("<QII", 16 + len(data), level, kind) + data
        peer = inet(LOOPBACK, canary.port)
        return Words((peer, 16, Words((Raw(b"x"), 1)), 1, Raw(whole + bytes(-len(whole) % 8)), len(whole), 0))

    vm = vm_factory(permissions={"network": "allow"}, files=probe.files, host_ports=[canary.port])
    lines = [
        call("socket", INET, DGRAM, 0),
        call("sendmsg", Earlier(0), with_control(0, 2, struct.pack("<i", 9)), 0),
        call("sendmsg", Earlier(0), with_control(0, 8, struct.pack("<i", 9999) + bytes(8)), 0),
        call("sendmsg", Earlier(0), with_control(0, 7, bytes(8)), 0),
        call("sendmsg", Earlier(0), with_control(41, 57, bytes(24)), 0),
        call("sendmsg", Earlier(0), with_control(1, 2, bytes(12)), 0),
    ]
    assert results(probe.in_vm(vm, lines)) == [3, 1, 1, -EPERM, -EPERM, -EPERM]
    assert canary.datagrams == 2


# -- netlink -----------------------------------------------------------------------------------------------------------

RECONFIGURE: Final = """
import socket, struct, subprocess
def said(send):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as one:
        body = struct.pack('<BxHiII', 0, 0, 1, 0, 0) + struct.pack('<HHI', 8, 4, 1400)  # the MTU of lo
        request = struct.pack('<IHHII', 16 + len(body), 16, 5, 1, 0) + body
        try: send(one, request)
        except OSError as error: return -error.errno
        return struct.unpack_from('<i', one.recv(4096), 16)[0]
def connected(one, request): one.connect((0, 0)); one.send(request)
print([said(lambda one, request: one.send(request)), said(lambda one, request: one.sendto(request, (0, 0))),
       said(lambda one, request: one.sendmsg([request], [], 0, (0, 0))), said(connected),
       said(lambda one, request: one.sendto(request, (1, 0))), said(lambda one, request: one.sendto(request, (0, 1))),
       said(lambda one, request: one.connect((1, 0)))], len(socket.if_nameindex()))
"""


@pytest.mark.parametrize("permissions", [{}, {"network": "allow"}], ids=["deny", "allow"])
def test_netlink_does_not_lend_a_guest_the_rights_over_its_network(vm_factory: Make, permissions: dict[str, Any]) -> None:
    """An addressed send is allowed by the rights of whoever makes it, and the supervisor owns the VM's namespaces. Lists work."""
    assert vm_factory(permissions=permissions).run(["python3", "-c", RECONFIGURE]).stdout == f"{[-1] * 7} 1\n"
