"""Names of unix sockets belong to fs, abstract ones to the VM alone (catalogue 81, 82, 84, 85)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EACCES, ECONNREFUSED, EINVAL
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from callgate import HostDir
from tests.escapes.addresses import sends, unix
from tests.vm_fixtures import ORDINARY_USER, Earlier, Probe, call, deny, judged_but_allowed, results

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

STREAM, DGRAM, UNIX = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.AF_UNIX


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
    names = [f"{top}/%s", f"{top}/../{top.rpartition('/')[2]}/%s", f"{top}/link-%s"]
    lines = [
        call("symlink", "stream", f"{top}/link-stream"),
        call("symlink", "datagram", f"{top}/link-datagram"),
        call("chdir", top),
    ]
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
        "_, fds, _, _ = socket.recv_fds(b, 10, 1)\n"
        "print(os.read(fds[0], 99).decode(), os.fstat(fd).st_ino == os.fstat(fds[0]).st_ino)\n"
        "print(a.sendmsg([b'y' * 10, b'z']), b.recv(99))\n"
    )
    for permissions in (None, judged_but_allowed(), deny("/x/**", network="allow")):
        vm = vm_factory(permissions=permissions, files={"/w/plain": b"plain"})
        assert vm.run(["python3", "-c", program]).stdout == "plain True\n11 b'yyyyyyyyyyz'\n"


def test_the_peer_of_a_guest_is_never_the_supervisor(vm_factory: Callable[..., VM]) -> None:
    """Where the connection is made on its behalf the process is shown as one outside the VM, which is number 0."""
    program = (
        "import os, socket, struct\nserver = socket.socket(socket.AF_UNIX); server.bind('/tmp/s'); server.listen()\n"
        "pid = os.fork()\nif pid == 0:\n    client = socket.socket(socket.AF_UNIX); client.connect('/tmp/s')\n"
        "    client.recv(1); os._exit(0)\n"
        "peer, _ = server.accept()\n"
        "process, *ids = struct.unpack('3i', peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))\n"
        "print('itself' if process == pid else process, ids == [os.getuid(), os.getgid()])\n"
    )
    for permissions in ({"network": "allow"}, None, judged_but_allowed()):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == "0 True\n"


def test_nor_does_a_guest_get_a_descriptor_of_it(vm_factory: Callable[..., VM]) -> None:
    """SO_PEERPIDFD and SO_PASSPIDFD would make one of whoever connected or sent, which may have been done on behalf."""
    program = (
        "import socket\nserver = socket.socket(socket.AF_UNIX); server.bind('/tmp/s'); server.listen()\n"
        "client = socket.socket(socket.AF_UNIX); client.connect('/tmp/s')\npeer, _ = server.accept()\n"
        "def attempt(call, *arguments):\n    try: return call(*arguments)\n    except OSError as error: return error.errno\n"
        "print(attempt(peer.getsockopt, 1, 77), attempt(client.getsockopt, 1, 77), attempt(peer.setsockopt, 1, 76, 1),\n"
        "      attempt(peer.getsockopt, 1, 3))\n"
    )
    for permissions in ({"network": "allow"}, None, judged_but_allowed()):
        assert vm_factory(permissions=permissions).run(["python3", "-c", program]).stdout == "92 92 92 1\n"


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
