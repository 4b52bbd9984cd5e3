"""Guests that send the resolver what it does not expect, and more than it takes: nobody else notices, and nothing is left."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Make = Callable[..., "VM"]

# Mutated queries by UDP and TCP for some seconds; every answer must be a response. Prints how many were sent and answered.
NOISE = """
import json, random, socket, struct, sys, time
source = random.Random(int(sys.argv[1]))
seeds = [struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + b'\\3www\\7example\\3com\\0\\0\\1\\0\\1',
         struct.pack('!HHHHHH', 9, 0x100, 1, 0, 0, 1) + b'\\1a\\0\\0\\x1c\\0\\1' + b'\\0' + struct.pack('!HHIH', 41, 1232, 0, 0)]
def mutant():
    data = bytearray(source.choice(seeds))
    for _ in range(source.randint(0, 5)):
        at = source.randrange(len(data) + 1)
        what = source.randrange(4)
        if what == 0: data[at:at + 1] = bytes([source.randrange(256)])
        elif what == 1: del data[at:at + source.randint(1, 6)]
        elif what == 2: data[at:at] = source.randbytes(source.randint(1, 300))
        else: data += source.randbytes(source.randint(0, 2000))
    return bytes(data)
udp = socket.socket(type=socket.SOCK_DGRAM)
udp.connect(('127.0.0.53', 53))
udp.setblocking(False)
tcp, sent, answered, until = None, 0, 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    data = mutant()
    try:
        udp.send(data)
        sent += 1
        answer = udp.recv(4096)
        assert answer[2] & 0x80, answer
        answered += 1
    except BlockingIOError: pass
    except ConnectionRefusedError: print('the resolver is gone')
    if source.random() < 0.1:
        try:
            if tcp is None:
                tcp = socket.create_connection(('127.0.0.53', 53), 5)
            length = len(data) if source.random() < 0.8 else source.randrange(65536)
            tcp.sendall(struct.pack('!H', length) + data)
            if source.random() < 0.3: tcp.close(); tcp = None
        except OSError: tcp = None
print(json.dumps([sent, answered]))
"""
GOOD = "import socket\nprint(socket.getaddrinfo('good.example', 80, type=1)[0][4][0])"
# A name that nobody asked for before, as often as it can.
NAMES = """
import json, socket, sys, time
found, until = 0, time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    try:
        socket.getaddrinfo(f'n{found}.{sys.argv[2]}', 80, type=1)
        found += 1
    except OSError: pass
print(json.dumps(found))
"""
POLICY = {"network": {"default": "deny", "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["good.example"]}]}}


def _beside(vm: VM, command: list[str], meanwhile: Callable[[], None]) -> Any:
    """What a program of the VM prints as JSON, and what is done until it has ended."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(vm.run(command, timeout=300)))
    thread.start()
    while thread.is_alive():
        meanwhile()
        thread.join(0.1)
    assert results[0].returncode == 0, results[0].stderr
    return json.loads(results[0].stdout)


def _fuzz(vm_factory: Make, seed: int, seconds: float) -> None:
    hosts = {"good.example": "127.0.0.1:1"}
    noisy, other = vm_factory(POLICY, hosts=hosts), vm_factory(POLICY, hosts=hosts)

    def look() -> None:
        done = other.run(["python3", "-c", GOOD], timeout=60)
        assert (done.stdout, done.stderr) == ("198.18.0.1\n", "")

    sent, answered = _beside(noisy, ["python3", "-c", NOISE, str(seed), str(seconds)], look)
    assert sent > 100
    assert answered > 10
    assert noisy.run(["python3", "-c", GOOD], timeout=60).stdout.startswith("198.18.")


def test_noise_is_answered_or_dropped_and_other_vms_are_served(vm_factory: Make) -> None:
    _fuzz(vm_factory, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
def test_half_a_minute_of_noise_is_answered_or_dropped_and_other_vms_are_served(vm_factory: Make, seed: int) -> None:
    _fuzz(vm_factory, seed, 30)


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_a_flood_of_denied_names_takes_few_threads_and_no_name_from_others(vm_factory: Make) -> None:
    vm = vm_factory(POLICY, hosts={"good.example": "127.0.0.1:1"})
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, _threads())
        assert vm.run(["python3", "-c", GOOD], timeout=60).stdout.startswith("198.18.")

    before = _threads()
    assert _beside(vm, ["python3", "-c", NAMES, "2", "denied.example"], look) > 50
    # One that runs the flood, the resolver, and of each kind of job no more than there are places.
    assert most - before < 30
    assert {denial.operation for denial in vm.denials} == {"dns"}
