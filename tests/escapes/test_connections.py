"""A connection to the outside is the socket that a program would have had on the bare host (catalogue 87 to 89)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.escapes.canaries import LOOPBACK, Canary, silent

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Make = Callable[..., "VM"]
NAME: Final = "server.example"
PERMISSIONS: Final = {"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": [NAME]}]}}


@pytest.fixture
def canary() -> Iterator[Canary]:
    with Canary() as made:
        yield made


@pytest.fixture
def make(vm_factory: Make) -> Make:
    """A VM that may reach the host's loopback as NAME, and nothing else."""

    def made(**more: Any) -> VM:
        return vm_factory(permissions=PERMISSIONS, hosts={NAME: LOOPBACK}, **more)

    return made


def alike(vm: VM, program: str, *arguments: object) -> str:
    """What a Python program prints in the VM, where HOST is the name, and that it prints the same on the host."""
    words = [str(argument) for argument in arguments]
    inside = vm.run(["python3", "-c", f"HOST = {NAME!r}\n{program}", *words], timeout=60)
    assert (inside.returncode, inside.stderr, inside.denials) == (0, "", ())
    outside = subprocess.run(
        [sys.executable, "-c", f"HOST = {LOOPBACK!r}\n{program}", *words], capture_output=True, text=True, check=True, timeout=60
    )
    assert inside.stdout == outside.stdout
    return inside.stdout


OPTIONS = """
import fcntl, os, socket, struct, sys
port = int(sys.argv[1])
NUMBERS = [(1, 9, 1), (1, 10, 1), (1, 12, 5), (1, 18, 7), (0, 1, 16), (0, 2, 33), (0, 10, 2), (6, 1, 1), (6, 4, 100),
           (6, 5, 11), (6, 6, 3), (6, 7, 4), (6, 8, 30), (6, 18, 9000), (6, 25, 5000)]
TIMES = (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO, socket.SO_LINGER)
for kind in (socket.SOCK_STREAM, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, socket.SOCK_DGRAM):
    one = socket.socket(type=kind)
    stream = one.type == socket.SOCK_STREAM
    mine = [option for option in NUMBERS if stream or option[0] != 6 and option[1] != 18]
    for level, name, value in mine: one.setsockopt(level, name, value)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 7, 500000))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 8, 0))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50000)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 60000)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 9))
    one.connect_ex((socket.gethostbyname(HOST), port))
    print([one.getsockopt(level, name) for level, name, value in mine])
    print([one.getsockopt(socket.SOL_SOCKET, name, 16).hex() for name in TIMES])
    print(one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
    print(fcntl.fcntl(one, fcntl.F_GETFL), fcntl.fcntl(one, fcntl.F_GETFD), one.getpeername())
"""


def test_options_and_flags_are_kept(make: Make, canary: Canary) -> None:
    assert len(alike(make(), OPTIONS, canary.port).splitlines()) == 12


DUPLICATES = """
import fcntl, os, select, socket, sys
port = int(sys.argv[1])
address = (socket.gethostbyname(HOST), port)
one = socket.socket(); one.setblocking(False)
kept = os.dup(one.fileno()); fcntl.fcntl(kept, fcntl.F_SETFD, 0)
high = fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 200)
epoll, second = select.epoll(), select.epoll()
epoll.register(one, select.EPOLLIN | select.EPOLLOUT); second.register(high, select.EPOLLIN | select.EPOLLET)
one.connect_ex(address)
print(sorted(event & select.EPOLLOUT for _, event in epoll.poll(5)), one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
print([socket.socket(fileno=os.dup(fd)).getpeername() for fd in (kept, high)])
print([fcntl.fcntl(fd, fcntl.F_GETFD) for fd in (one, kept, high)])
os.write(kept, b'by the duplicate')
print(second.poll(5) == [(high, select.EPOLLIN)], one.recv(50))
epoll.modify(one, select.EPOLLIN); print(epoll.poll(0)); os.write(high, b'again'); print(len(epoll.poll(5)), os.read(kept, 9))
epoll.unregister(one); second.unregister(high); sys.stdout.flush()
left = f'import os; print([os.path.exists("/proc/self/fd/%d" % fd) for fd in ({kept}, {high})])'
os.execv(sys.executable, [sys.executable, '-c', left])
"""


def test_duplicates_and_watches_made_before_the_connection_go_along(make: Make, canary: Canary) -> None:
    alike(make(), DUPLICATES, canary.port)


DATAGRAMS = """
import select, socket, sys
port = int(sys.argv[1])
address = (socket.gethostbyname(HOST), port)
one = socket.socket(type=socket.SOCK_DGRAM); one.bind(('', 0)); one.setblocking(False)
epoll = select.epoll(); epoll.register(one, select.EPOLLIN)
print(one.sendto(b'first', address), len(epoll.poll(5)), one.recv(50))
print(one.sendmsg([b'sec', b'ond'], [], 0, address), len(epoll.poll(5)), one.recv(50))
one.connect(address); print(one.send(b'third'), len(epoll.poll(5)), one.recv(50), one.getpeername()[1] == port)
print(one.sendmsg([b'fo', b'urth']), len(epoll.poll(5)), one.recv(50))
"""


def test_datagram_sockets_that_were_bound_and_watched_before(make: Make, canary: Canary) -> None:
    alike(make(), DATAGRAMS, canary.port)


READERS = """
import os, select, socket, struct, sys, threading, time
address = (socket.gethostbyname(HOST), int(sys.argv[1]))
def poll(one): poll = select.poll(); poll.register(one, select.POLLIN); poll.poll(); return one.recv(50)
def epoll(one): epoll = select.epoll(); epoll.register(one, select.EPOLLIN); epoll.poll(); return one.recv(50)
def timeout(one): one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 9, 0)); return one.recv(50)
def choose(one): select.select([one], [], []); return one.recv(50)
def read(one): return os.read(one.fileno(), 50)
def by_duplicate(one): return one.dup().recv(50)
ways = [lambda one: one.recv(50), lambda one: one.recvmsg(50)[0], read, by_duplicate, poll, choose, epoll, timeout]
def connect(one): one.bind(('', 0)); time.sleep(0.1); one.connect(address); one.send(b'first')
def asleep(thread):
    return open(f'/proc/self/task/{thread.native_id}/stat').read().rpartition(')')[2].split()[0] == 'S'
pipe = os.pipe(); other = []
idle = threading.Thread(target=lambda: other.append(os.read(pipe[0], 50))); idle.start()
for number, way in enumerate(ways):
    for first in (lambda one: one.sendto(b'first', address), connect):
        one = socket.socket(type=socket.SOCK_DGRAM); got = []
        reader = threading.Thread(target=lambda: got.append(way(one)), daemon=True); reader.start()
        while not asleep(reader): pass
        first(one); reader.join(10); print(number, got)
print(other); os.write(pipe[1], b'x'); idle.join(); print(other)
"""


def test_threads_that_wait_for_an_answer_before_the_first_datagram_is_sent(make: Make, canary: Canary) -> None:
    assert alike(make(), READERS, canary.port).count("[b'first']") == 16


AT_ONCE = """
import socket, sys, threading
address = (socket.gethostbyname(HOST), int(sys.argv[1]))
for _ in range(20):
    one = socket.socket(type=socket.SOCK_DGRAM); start = threading.Barrier(3)
    def send(datagram): start.wait(); one.sendto(datagram, address)
    threads = [threading.Thread(target=send, args=(datagram,)) for datagram in (b'a', b'b', b'c')]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    one.settimeout(10); print(sorted(one.recv(9) for _ in threads))
"""


def test_threads_that_send_the_first_datagram_at_once_all_get_their_answers(make: Make, canary: Canary) -> None:
    alike(make(), AT_ONCE, canary.port)


ASYNCIO = """
import asyncio, socket, sys
port = int(sys.argv[1])
async def stream(number):
    reader, writer = await asyncio.open_connection(HOST, port, family=socket.AF_INET)
    writer.writelines([b'number ', str(number).encode(), b'\\n']); await writer.drain()
    line = await reader.readline(); writer.close(); await writer.wait_closed()
    return line
class Datagram(asyncio.DatagramProtocol):
    def __init__(self): self.got = asyncio.get_running_loop().create_future()
    def datagram_received(self, data, peer): self.got.set_result(data)
async def main():
    print(sorted(await asyncio.gather(*map(stream, range(50)))))
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(Datagram, remote_addr=(HOST, port), family=socket.AF_INET)
    transport.sendto(b'datagram'); print(await asyncio.wait_for(protocol.got, 5)); transport.close()
asyncio.run(main())
"""


def test_an_event_loop_with_many_connections(make: Make, canary: Canary) -> None:
    alike(make(), ASYNCIO, canary.port)


ERRORS = """
import errno, select, socket, sys
open_port, closed_port = map(int, sys.argv[1:])
host = socket.gethostbyname(HOST)
def said(call, *arguments):
    try: return call(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
one = socket.socket()
closed, here = (host, closed_port), (host, open_port)
print([said(one.connect, to) for to in (closed, closed, here, here)])
print(said(one.connect, (host, closed_port)), one.getpeername()[1] == open_port)
other = socket.socket(); other.setblocking(False)
first = other.connect_ex((host, closed_port))
if first == errno.EINPROGRESS: select.select([], [other], [], 5); first = other.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
print(errno.errorcode[first], said(other.send, b'x'))
third = socket.socket(); third.bind(('127.0.0.1', 0)); third.listen(); print(said(third.connect, here))
gone = socket.socket(); gone.connect(here); gone.shutdown(socket.SHUT_WR)
print(gone.recv(5), said(gone.send, b'x', socket.MSG_NOSIGNAL))
"""


def test_errors_are_those_of_the_bare_host(vm_factory: Make, canary: Canary) -> None:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        rules = [{"mode": "allow", "patterns": [NAME]}, {"mode": "allow", "operations": ["listen"], "patterns": [LOOPBACK]}]
        vm = vm_factory(permissions={"network": {"default": "deny", "rules": rules}}, hosts={NAME: LOOPBACK})
        alike(vm, ERRORS, canary.port, free.getsockname()[1])


WAITS = """
import errno, signal, socket, struct, sys, time
port = int(sys.argv[1])
host = socket.gethostbyname(HOST)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
address = struct.pack('<H', socket.AF_INET) + struct.pack('>H', port) + socket.inet_aton(host) + bytes(8)
def connect(one):
    return 0 if libc.connect(one.fileno(), address, 16) == 0 else errno.errorcode[ctypes.get_errno()]
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append(1)); signal.siginterrupt(signal.SIGALRM, True)
one = socket.socket(); signal.setitimer(signal.ITIMER_REAL, 0.3); print(connect(one), hits)
one.setblocking(False); print(connect(one))
two = socket.socket(); two.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 0, 300000)); print(connect(two))
three = socket.socket(); three.settimeout(0.3)
try: three.connect((host, port))
except TimeoutError as error: print('timed out')
"""


def test_a_connection_that_hangs_ends_with_a_signal_or_its_timeout(make: Make) -> None:
    with silent() as port:
        assert alike(make(), WAITS, port).splitlines() == ["EINTR [1]", "EALREADY", "EINPROGRESS", "timed out"]


def test_dials_that_hang_stall_nobody_else_and_end_with_their_programs(make: Make, canary: Canary) -> None:
    program = (
        "import socket, sys, threading\n"
        f"host = socket.gethostbyname({NAME!r})\n"
        "def hang():\n    s = socket.socket()\n    s.connect((host, int(sys.argv[1])))\n"
        "for _ in range(30): threading.Thread(target=hang, daemon=True).start()\n"
        "open('/tmp/hanging', 'w').close()\nimport time; time.sleep(100)\n"
    )
    quick = f"import socket\nfor _ in range(50): socket.create_connection(({NAME!r}, {canary.port})).close()\nprint('done')\n"
    vm = make()
    with silent() as port, ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(vm.run, ["timeout", "-s", "KILL", "3", "python3", "-c", program, str(port)], timeout=60)
        while not vm.fs.exists("/tmp/hanging"):
            assert not hanging.done(), hanging.result()
        assert vm.run(["python3", "-c", quick], timeout=30).stdout == "done\n"
        assert not hanging.done()
        assert hanging.result().returncode in (137, -9)
    assert canary.connections == 50


def test_what_goes_over_a_connection_costs_no_notification(make: Make, canary: Canary) -> None:
    """send, write, writev, select and recv, thousands of each; sendmsg, which holds an address in memory, is the control."""
    program = (
        "import os, select, socket, sys\n"
        f"one = socket.create_connection(({NAME!r}, {canary.port}))\n"
        "for _ in range(int(sys.argv[1])):\n    one.send(b'abc'); os.write(one.fileno(), b'de')\n"
        "    os.writev(one.fileno(), [b'f', b'g'])\n"
        "    n = 7\n    while n: select.select([one], [], []); n -= len(one.recv(n))\n"
        "for _ in range(int(sys.argv[2])):\n    one.sendmsg([b'x']); one.recv(1)\n"
    )
    vm = make()

    def notified(few: int, by_message: int) -> int:
        before = vm._supervisor.stats().notified
        assert vm.run(["python3", "-c", program, str(few), str(by_message)], timeout=60).returncode == 0
        return vm._supervisor.stats().notified - before

    start = notified(1, 0)
    assert notified(2000, 0) == start
    assert notified(1, 100) == start + 100


def test_ten_thousand_connections_leave_nothing_behind(make: Make, canary: Canary) -> None:
    program = (
        "import os, socket, struct, sys\n"
        f"host = socket.gethostbyname({NAME!r})\n"
        "at_once = struct.pack('ii', 1, 0)\n"
        f"def once():\n    one = socket.socket(); one.connect((host, {canary.port}))\n"
        "    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once); one.close()\n"
        f"def send():\n    two = socket.socket(type=socket.SOCK_DGRAM); two.sendto(b'', (host, {canary.port})); two.close()\n"
        "def count(): return len(os.listdir('/proc/self/fd'))\n"
        "once(); before = count()\n"
        "for n in range(int(sys.argv[1])):\n    once()\n    if n % 10 == 0: send()\n"
        "print(count() - before)\n"
    )
    vm = make()
    supervisor = f"/proc/{vm._supervisor.pid}"

    def held() -> int:
        return len(os.listdir(f"{supervisor}/fd")) if os.geteuid() == 0 else 0  # it is not dumpable: for root alone to see

    vm.run(["python3", "-c", program, "20"])
    before = held()
    assert vm.run(["python3", "-c", program, "10000"], timeout=300).stdout == "0\n"
    deadline = time.monotonic() + 5
    while held() > before and time.monotonic() < deadline:
        time.sleep(0.05)  # workers that were needed for a moment are on their way out
    assert held() <= before + 4  # what each of them keeps is bounded by their number
