"""A datagram to the outside opens a port of the host's: nobody is heard there but whom the program was allowed to send to."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from tests.escapes.canaries import LOOPBACK

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
