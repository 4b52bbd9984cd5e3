"""What goes outside opens a port of the host's: none of a program's choice, none to listen at, and to hear few there."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.escapes.canaries import LOOPBACK, Canary
from tests.vm_fixtures import PROGRAMS

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

BOTH: Final = {"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": ["first.example", "second.example"]}]}}

HEARS: Final = """
import socket, sys

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.settimeout(20)
    one.sendto(b"hello", (sys.argv[1], int(sys.argv[2])))
    print(one.recv(100).decode())
    one.settimeout(1)
    try:
        print(one.recv(100).decode())
    except TimeoutError:
        print("silence")
"""


class Peer:
    """A datagram server whose caller hears from a stranger before the answer comes."""

    def __init__(self) -> None:
        self.server, self.stranger = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self.server.settimeout(20)
        self.server.bind((LOOPBACK, 0))
        self.port = self.server.getsockname()[1]

    def serve(self, times: int) -> None:
        for _ in range(times):
            _, caller = self.server.recvfrom(100)
            self.stranger.sendto(b"stranger", caller)
            self.server.sendto(b"answer", caller)

    def close(self) -> None:
        self.server.close()
        self.stranger.close()


def test_a_socket_outside_hears_only_whom_it_may_send_to(vm_factory: Callable[..., VM]) -> None:
    peers = Peer(), Peer()
    ports = [str(peer.port) for peer in peers]
    vm = vm_factory(
        permissions=BOTH,
        hosts={"first.example": f"{LOOPBACK}:{ports[0]}", "second.example": f"{LOOPBACK}:{ports[1]}"},
    )
    with ThreadPoolExecutor(2) as pool:
        pool.submit(peers[0].serve, 3)
        pool.submit(peers[1].serve, 1)
        try:
            on_host = subprocess.run(
                [sys.executable, "-c", HEARS, LOOPBACK, ports[0]], capture_output=True, text=True, check=True
            )
            assert on_host.stdout.split() == ["stranger", "answer"]
            in_vm = vm.run(["python3", "-c", HEARS, "first.example", ports[0]])
            assert (in_vm.stdout.split(), in_vm.stderr) == (["answer", "silence"], "")
            both = HEARS.replace("one.settimeout(1)", 'one.sendto(b"hello", ("second.example", 9))')
            assert vm.run(["python3", "-c", both, "first.example", ports[0]], check=True).stdout.split() == ["answer", "answer"]
        finally:
            for peer in peers:
                peer.close()


WHERE: Final = """
import ctypes, errno, socket, sys

def where(one):
    cookie = lambda each: each.getsockopt(socket.SOL_SOCKET, 71, 8)  # SO_NETNS_COOKIE
    with socket.socket() as inside: return ("inside" if cookie(one) == cookie(inside) else "outside"), one.getsockname()[1] != 0
def bind(one):
    try: return one.bind(("127.0.0.1", 0))
    except OSError as error: return errno.errorcode[error.errno]
to = (socket.gethostbyname(sys.argv[1]), int(sys.argv[2]))
one, two, three = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM), socket.socket()
one.connect(to); print(where(one), bind(one), where(one))
ctypes.CDLL(None).connect(one.fileno(), bytes(16), 16); print(where(one))
one.sendto(b"x", to); print(where(one), bind(one), where(one), one.recv(1))
two.sendto(b"y", to); print(where(two), bind(two), where(two), two.recv(1))
three.connect(to); print(where(three), bind(three), where(three), three.send(b"z"), three.recv(1))
"""


def test_no_port_of_the_host_is_chosen_with_a_guests_options(vm_factory: Callable[..., VM]) -> None:
    """SO_REUSEADDR would take one that others have, with what is sent to them.

    So a socket outside has its port before a guest has it, and is no longer outside when it loses the port.
    """
    with Canary() as canary:
        rules = [{"mode": "allow", "patterns": ["first.example"]}, {"mode": "allow", "operations": ["listen"], "patterns": ["*"]}]
        vm = vm_factory(permissions={"network": {"default": "deny", "rules": rules}}, hosts={"first.example": LOOPBACK})
        done = vm.run(["python3", "-c", WHERE, "first.example", str(canary.port)], timeout=60)
    outside, unbound = "('outside', True)", "('inside', False)"
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            f"{outside} EINVAL {outside}",
            unbound,
            f"{outside} EINVAL {outside} b'x'",
            f"{outside} EINVAL {outside} b'y'",
            f"{outside} EINVAL {outside} 1 b'z'",
        ],
        "",
    )


def test_a_connection_that_ends_while_it_is_listened_at_is_no_server_of_the_host(
    vm_factory: Callable[..., VM], compile_c: Callable[..., Path]
) -> None:
    with Canary() as canary:
        program = compile_c(PROGRAMS / "listen_race.c").read_bytes()
        vm = vm_factory(permissions={"network": "allow"}, hosts={"first.example": LOOPBACK}, files={"/opt/race": program})
        done = vm.run(["/opt/race", "first.example", str(canary.port), "6"], timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    tries, outside = map(int, done.stdout.split())
    assert tries > 0
    assert outside == 0
