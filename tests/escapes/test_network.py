"""Ways round `network: "deny"`: odd calls, odd sockets and names of sockets (catalogue 71 to 74, 78 to 82)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EACCES, EAFNOSUPPORT, ECONNREFUSED, EINVAL
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import HostDir
from tests.vm_fixtures import ORDINARY_USER, Argument, Earlier, Out, Probe, Raw, Words, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
INET, INET6, UNIX = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX
MSG_FASTOPEN = 0x2000_0000
IPPROTO_MPTCP, IPPROTO_UDPLITE, IPPROTO_DCCP = 262, 136, 33


def inet(host: str, port: int) -> Raw:
    return Raw(struct.pack("<H", INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8))


def inet6(host: str, port: int) -> Raw:
    return Raw(struct.pack("<H", INET6) + struct.pack(">HI", port, 0) + socket.inet_pton(INET6, host) + bytes(4))


def unix(path: bytes) -> Raw:
    return Raw(struct.pack("<H", UNIX) + path)


def message(name: Raw | None, data: bytes = b"x") -> Words:
    """struct msghdr."""
    named: tuple[Argument, Argument] = (name, len(name.content)) if name else (0, 0)
    return Words((*named, Words((Raw(data), len(data))), 1, 0, 0, 0))


def sends(fd: Argument, peer: Raw) -> list[str]:
    """Every call that sends to an address."""
    several = Words((*message(peer).words, 0, *message(peer).words, 0))
    return [
        call("sendto", fd, Raw(b"x"), 1, 0, peer, len(peer.content)),
        call("sendmsg", fd, message(peer), 0),
        call("sendmmsg", fd, several, 2, 0),
    ]


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
        for permissions in (None, {"network": "deny", "fs": "deny"}, {"network": {"rules": [{"mode": "allow", "patterns": ["a.b"]}]}}):
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
        more = [call("sendmmsg", Earlier(0), several, 1, MSG_FASTOPEN), call("setsockopt", Earlier(0), 6, 30, Raw(b"\1\0\0\0"), 4)]
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
    lines = [call("socket", family, kind | extra, protocol) for family, kind, protocol in SOCKETS.values() for extra in (0, flags)]
    pairs = [call("socketpair", family, kind, protocol, Out(8)) for family, kind, protocol in SOCKETS.values()]
    assert set(results(probe.in_vm(vm, [*lines, *pairs]))) <= {-EACCES, -EAFNOSUPPORT}


@pytest.mark.parametrize("permissions", [{}, {"network": "allow"}], ids=["deny", "allow"])
def test_the_kinds_that_programs_need_can_be_made(vm_factory: Callable[..., VM], probe: Probe, permissions: dict[str, object]) -> None:
    kinds = [(INET, STREAM, 0), (INET, STREAM, 6), (INET, DGRAM, 17), (INET6, STREAM, 0), (UNIX, STREAM, 0), (UNIX, DGRAM, 0), (UNIX, 5, 0)]
    lines = [*(call("socket", *kind) for kind in kinds), call("socket", socket.AF_NETLINK, 3, 0), call("socketpair", UNIX, STREAM, 0, Out(8))]
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
    policy = {"network": {"rules": [{"mode": "allow", "patterns": ["127.0.0.1"]}, {"mode": "deny", "operations": ["http"], "patterns": ["127.0.0.1:8082"]}]}}
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


def test_dangerous_socket_options_are_refused(vm_factory: Callable[..., VM], probe: Probe) -> None:
    options = [(1, 25), (1, 26), (1, 36), (1, 50), (0, 19), (6, 19), (6, 30), (6, 31), (41, 75), (0, 64)]
    lines = [call("socket", INET, STREAM, 0), *(call("setsockopt", 3, level, option, Raw(bytes(16)), 16) for level, option in options)]
    assert results(probe.in_vm(vm_factory(files=probe.files), lines)) == [3] + [-EACCES] * len(options)
    assert results(probe.in_vm(vm_factory(permissions={"network": "allow"}, files=probe.files), lines)) == [3] + [-1] * len(options)


# -- names of unix sockets -------------------------------------------------------------------------------------------------


@contextmanager
def host_service(path: Path) -> Iterator[Callable[[], int]]:
    """A unix socket of the host's, as of an agent or a daemon; how many connections and datagrams it got."""
    with socket.socket(UNIX, STREAM) as stream, socket.socket(UNIX, DGRAM) as datagrams:
        stream.bind(str(path / "stream"))
        stream.listen()
        datagrams.bind(str(path / "datagram"))
        for one in (stream, datagrams):
            one.settimeout(0.2)
        for name in ("stream", "datagram"):
            (path / name).chmod(0o666)
            if os.geteuid() == 0:
                os.chown(path / name, ORDINARY_USER, ORDINARY_USER)

        def got() -> int:
            count = 0
            for receive in (stream.accept, lambda: datagrams.recv(99)):
                try:
                    while True:
                        received = receive()
                        count += 1
                        if isinstance(received, tuple):
                            received[0].close()
                except TimeoutError:
                    pass
            return count

        yield got


def to_services(top: str) -> list[str]:
    """Connecting and sending by absolute, linked and relative names."""
    names = [f"{top}/%s", f"{top}/../{os.path.basename(top)}/%s", f"{top}/link-%s"]
    lines = [call("symlink", "stream", f"{top}/link-stream"), call("symlink", "datagram", f"{top}/link-datagram"), call("chdir", top)]
    for name in [*names, "%s", "./%s"]:
        stream, datagram = unix(os.fsencode(name % "stream") + b"\0"), unix(os.fsencode(name % "datagram") + b"\0")
        lines.append(call("socket", UNIX, STREAM, 0))
        lines.append(call("connect", Earlier(len(lines) - 1), stream, len(stream.content)))
        lines.append(call("socket", UNIX, DGRAM, 0))
        lines += sends(Earlier(len(lines) - 1), datagram)[:2]
        lines.append(call("connect", Earlier(len(lines) - 3), datagram, len(datagram.content)))
    return lines


def test_a_service_of_the_host_is_reached_only_where_writing_to_it_is_allowed(
    vm_factory: Callable[..., VM], probe: Probe, host_dir: Path
) -> None:
    services = host_dir / "services"
    services.mkdir()
    if os.geteuid() == 0:
        os.chown(services, ORDINARY_USER, ORDINARY_USER)
    with host_service(services) as got:
        on_host = results(probe.on_host(to_services(str(services)), cwd=host_dir))
        assert min(on_host) >= 0
        assert got() == 15
        mounts = {"/services": HostDir(services, mode="rw")}
        allowing = vm_factory(permissions=judged_but_allowed(), mounts=mounts, files=probe.files)
        answers = results(probe.in_vm(allowing, to_services("/services")))
        assert min(answers[3:]) >= 0
        assert got() == 15
        denying = vm_factory(permissions=deny("/services/**", operations=["write"]), mounts=mounts, files=probe.files)
        answers = results(probe.in_vm(denying, to_services("/services")))[3:]
        assert [answer for answer in answers if answer < 3] == [-EACCES] * 20
        assert got() == 0
        read_only = vm_factory(permissions=judged_but_allowed(), mounts={"/services": HostDir(services)}, files=probe.files)
        answers = results(probe.in_vm(read_only, to_services("/services")))[3:]
        assert [answer for answer in answers if answer < 3] == [-EACCES] * 20
        assert got() == 0


def test_a_long_name_is_not_mistaken_for_another(vm_factory: Callable[..., VM], probe: Probe) -> None:
    """All 108 bytes may be used, with no NUL at the end."""
    folder = "/w/" + "d" * 50
    path = f"{folder}/" + "s" * (108 - len(folder) - 1)
    assert len(path) == 108
    lines = [
        call("mkdir", "/w", 0o755),
        call("mkdir", folder, 0o755),
        call("socket", UNIX, STREAM, 0),
        call("bind", Earlier(2), unix(path.encode()), 110),
        call("listen", Earlier(2), 5),
        call("socket", UNIX, STREAM, 0),
        call("connect", Earlier(5), unix(path.encode()), 110),
    ]
    allowing = vm_factory(permissions=judged_but_allowed(), files=probe.files)
    assert results(probe.in_vm(allowing, lines)) == [0, 0, 3, 0, 0, 4, 0]
    denying = vm_factory(permissions=deny(path, operations=["write"]), files=probe.files)
    assert results(probe.in_vm(denying, lines)) == [0, 0, 3, -EACCES, -EINVAL, 4, -EACCES]


def test_an_abstract_name_of_the_host_does_not_exist(vm_factory: Callable[..., VM], probe: Probe, host_dir: Path) -> None:
    name = b"\0callgate-test-%d" % os.getpid()
    with socket.socket(UNIX, STREAM) as listener:
        listener.bind(name)
        listener.listen()
        listener.settimeout(0.2)
        lines = [call("socket", UNIX, STREAM, 0), call("connect", Earlier(0), unix(name), 2 + len(name))]
        assert results(probe.on_host(lines, cwd=host_dir)) == [3, 0]
        listener.accept()[0].close()
        for permissions in (None, judged_but_allowed(), {"network": "allow"}):
            vm = vm_factory(permissions=permissions, files=probe.files)
            assert results(probe.in_vm(vm, lines)) == [3, -ECONNREFUSED]
            bound = [call("socket", UNIX, STREAM, 0), call("bind", Earlier(0), unix(name), 2 + len(name))]
            assert results(probe.in_vm(vm, bound)) == [3, 0]  # the VM has abstract names of its own
        with pytest.raises(TimeoutError):
            listener.accept()


def test_descriptors_are_passed_between_guests(vm_factory: Callable[..., VM]) -> None:
    program = (
        "import os, socket\na, b = socket.socketpair()\n"
        "fd = os.open('/w/plain', os.O_RDONLY)\nsocket.send_fds(a, [b'x'], [fd])\n"
        "_, fds, _, _ = socket.recv_fds(b, 10, 1)\nprint(os.read(fds[0], 99).decode(), os.fstat(fd).st_ino == os.fstat(fds[0]).st_ino)\n"
        "print(a.sendmsg([b'y' * 10, b'z']), b.recv(99))\n"
    )
    for permissions in (None, judged_but_allowed(), deny("/x/**", network="allow")):
        vm = vm_factory(permissions=permissions, files={"/w/plain": b"plain"})
        assert vm.run(["python3", "-c", program]).stdout == "plain True\n11 b'yyyyyyyyyyz'\n"


def test_the_peer_of_a_guest_is_never_the_supervisor(vm_factory: Callable[..., VM]) -> None:
    """Where the connection is made on its behalf the process is shown as one outside the VM, which is number 0."""
    program = (
        "import os, socket, struct\nserver = socket.socket(socket.AF_UNIX); server.bind('/tmp/s'); server.listen()\n"
        "pid = os.fork()\nif pid == 0:\n    client = socket.socket(socket.AF_UNIX); client.connect('/tmp/s'); client.recv(1); os._exit(0)\n"
        "peer, _ = server.accept()\n"
        "process, *ids = struct.unpack('3i', peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))\n"
        "print('itself' if process == pid else process, ids == [os.getuid(), os.getgid()])\n"
    )
    for permissions, process in (({"network": "allow"}, "itself"), (None, "0"), (judged_but_allowed(), "0")):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == f"{process} True\n"


def test_nobody_hangs_while_a_connection_waits(vm_factory: Callable[..., VM]) -> None:
    """A full queue of a listener in the VM: the caller waits, others do not, and a signal ends the wait."""
    program = (
        "import os, signal, socket, threading\n"
        "server = socket.socket(socket.AF_UNIX); server.bind('/tmp/s'); server.listen(0)\n"
        "first = socket.socket(socket.AF_UNIX); first.connect('/tmp/s')\n"
        "def wait():\n    second = socket.socket(socket.AF_UNIX); second.connect('/tmp/s')\n"
        "thread = threading.Thread(target=wait); thread.start()\n"
        "print(sum(os.path.exists('/etc/passwd') for _ in range(1000)))\n"
        "server.accept(); server.accept(); thread.join(); print('done')\n"
    )
    for permissions in (None, judged_but_allowed()):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program], timeout=60).stdout == "1000\ndone\n"


