"""From the host to a server in a VM (`vm.connect`, `vm.fetch`), and from a VM to ports and names that the operator opened."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from callgate.guest import ports
from tests.network.servers import Canary, WebServer

if TYPE_CHECKING:
    from callgate import VM

pytestmark = pytest.mark.vm

Make = Callable[..., "VM"]

LISTEN = {"network": {"default": "deny", "rules": [{"mode": "allow", "operations": ["listen"], "patterns": ["*"]}]}}
EACCES = 13

HTTP_SERVER = """
import http.server, json, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        length = int(self.headers.get('Content-Length') or 0)
        body = self.rfile.read(length).decode()
        told = {'method': self.command, 'path': self.path, 'headers': dict(self.headers), 'body': body}
        body = json.dumps(told).encode()
        self.send_response(404 if self.path == '/missing' else 200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('X-Made-By', 'the guest')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(body)
    do_POST = do_HEAD = do_PUT = do_GET
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


@contextmanager
def serving(vm: VM, program: str, *arguments: str) -> Iterator[None]:
    """A program that runs in the VM until the block ends."""
    null = os.open("/dev/null", os.O_WRONLY)
    reader, stdin = os.pipe()
    stdout, writer = os.pipe()
    process = vm.start(["python3", "-W", "ignore", "-c", program, *arguments], (reader, writer, writer))
    for fd in (null, reader, stdin, writer, stdout):
        os.close(fd)
    listening = threading.Thread(target=_listen, args=(process,))
    listening.start()
    try:
        yield
    finally:
        process.kill_tree()
        listening.join()
        process.close()


def _listen(process: Any) -> None:
    while type(process.next_event()).__name__ not in ("Exited", "ExecFailed", "NoneType"):
        pass


# -- vm.connect and vm.fetch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_server_in_the_vm_is_reached_from_the_host_wherever_it_listens(vm_factory: Make, address: str) -> None:
    vm = vm_factory(LISTEN)
    with serving(vm, HTTP_SERVER, address, "8000"):
        answer = vm.fetch(8000, "/a?b=c", wait=20)
        told = answer.json()
        assert (answer.status, answer.reason, told["method"], told["path"]) == (200, "OK", "GET", "/a?b=c")
        assert answer.headers["x-made-by"] == "the guest"
        assert told["headers"]["Host"] == "localhost:8000"
        told = vm.fetch(8000, "/x", "POST", {"X-Extra": "1"}, "body: ä").json()
        assert (told["method"], told["body"], told["headers"]["X-Extra"]) == ("POST", "body: ä", "1")
        assert vm.fetch(8000, method="HEAD").body == b""
        missing = vm.fetch(8000, "/missing")
        assert (missing.status, "missing" in missing.text) == (404, True)


def test_no_port_of_the_host_is_opened_and_none_of_another_vms(vm_factory: Make) -> None:
    vm, other = vm_factory(LISTEN), vm_factory(LISTEN)
    with serving(vm, HTTP_SERVER, "0.0.0.0", "8000"):
        assert vm.fetch(8000, wait=20).status == 200
        with socket.socket() as sock, pytest.raises(ConnectionRefusedError):
            sock.connect(("127.0.0.1", 8000))
        with pytest.raises(ConnectionRefusedError):
            other.connect(8000)
    with pytest.raises(ConnectionRefusedError, match="nobody listens on port 8000 of the VM"):
        vm.fetch(8000)


def test_a_server_that_is_starting_is_waited_for(vm_factory: Make) -> None:
    vm = vm_factory(LISTEN)
    started = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        vm.connect(8000, wait=0.3)
    assert time.monotonic() - started >= 0.3
    with serving(vm, "import time; time.sleep(1)\n" + HTTP_SERVER, "127.0.0.1", "8000"):
        assert vm.fetch(8000, wait=30).status == 200


ECHO = """
import socket, sys
sock = socket.socket(type=socket.SOCK_DGRAM if sys.argv[1] == 'udp' else socket.SOCK_STREAM)
sock.bind(('127.0.0.1', 9000))
if sys.argv[1] == 'udp':
    while True:
        data, sender = sock.recvfrom(65536)
        sock.sendto(data[::-1], sender)
sock.listen()
while True:
    connection, _ = sock.accept()
    while data := connection.recv(65536):
        connection.sendall(data[::-1])
"""


def test_connect_gives_a_plain_socket(vm_factory: Make) -> None:
    vm = vm_factory(LISTEN)
    with serving(vm, ECHO, "tcp"), vm.connect(9000, wait=20) as sock:
        assert sock.gettimeout() is None
        assert not os.get_inheritable(sock.fileno())
        sock.sendall(b"abc")
        assert sock.recv(3) == b"cba"
    # A server's datagrams are sends like any other: with `listen` alone it hears, and may not answer.
    allow = {"mode": "allow", "operations": ["listen", "http"], "patterns": ["127.0.0.1"]}
    vm = vm_factory({"network": {"default": "deny", "rules": [allow]}})
    with serving(vm, ECHO, "udp"):
        deadline = time.monotonic() + 20
        while True:
            with vm.connect(9000, udp=True, timeout=0.5) as sock:
                sock.send(b"abc")
                try:
                    assert sock.recv(3) == b"cba"
                    break
                except (ConnectionRefusedError, TimeoutError):  # it has not come so far yet
                    assert time.monotonic() < deadline
                    time.sleep(0.05)


RUDE = """
import socket, sys, time
server = socket.socket()
server.bind(('127.0.0.1', 9000))
server.listen()
while True:
    connection, _ = server.accept()
    if not connection.recv(65536):
        continue  # it only came to see
    if sys.argv[1] == 'silent':
        time.sleep(60)
    if sys.argv[1] == 'slow':
        for byte in b'HTTP/1.0 200 OK\\r\\n' + b'X: y\\r\\n' * 1000:
            connection.send(bytes([byte]))
            time.sleep(0.05)
    if sys.argv[1] == 'noise':
        connection.send(b'\\0\\xff' * 100 + b'\\r\\n\\r\\n')
    if sys.argv[1] == 'short':
        connection.send(b'HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nno')
    if sys.argv[1] == 'endless':
        connection.send(b'HTTP/1.0 200 OK\\r\\n\\r\\n')
        try:
            while True: connection.send(b'x' * 65536)
        except OSError: pass
    if sys.argv[1] == 'charset':
        connection.send(b'HTTP/1.0 200 OK\\r\\nContent-Type: text/plain; charset=no-such\\r\\n\\r\\n\\xe9')
    connection.close()
"""


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("silent", TimeoutError),
        ("slow", TimeoutError),
        ("noise", ConnectionError),
        ("short", ConnectionError),
        ("endless", ConnectionError),
        ("hangs-up", ConnectionError),
    ],
)
def test_a_server_that_misbehaves_is_an_error_and_no_more(
    vm_factory: Make, monkeypatch: pytest.MonkeyPatch, how: str, error: type[Exception]
) -> None:
    monkeypatch.setattr(ports, "BODY_MAX", 1 << 20)
    vm = vm_factory(LISTEN)
    with serving(vm, RUDE, how):
        vm.connect(9000, wait=20).close()
        with pytest.raises(error):
            vm.fetch(9000, timeout=1 if error is TimeoutError else 20)


def test_text_in_a_charset_that_does_not_exist_is_text_all_the_same(vm_factory: Make) -> None:
    vm = vm_factory(LISTEN)
    with serving(vm, RUDE, "charset"):
        assert vm.fetch(9000, wait=20).text == "\ufffd"


@pytest.mark.parametrize("port", [0, -1, 65536, "80", 80.0, True, None])
def test_what_is_no_port_is_refused(vm_factory: Make, port: Any) -> None:
    with pytest.raises(ValueError, match="is not a port"):
        vm_factory().connect(port)


@pytest.mark.parametrize("path", ["", "x", "/a b", "/a\r\nX: y", "/ä", "http://127.0.0.1/"])
def test_what_is_no_path_is_refused(vm_factory: Make, path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        vm_factory().fetch(80, path)


def test_a_closed_vm_says_so(vm_factory: Make) -> None:
    vm = vm_factory()
    vm.close()
    with pytest.raises(ValueError, match="closed"):
        vm.connect(80)


# -- hosts= and host_ports= ----------------------------------------------------------------------------------------------------

GET = """
import sys, urllib.request
try: print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode().strip())
except OSError as error: print(getattr(error, 'reason', error).errno)
"""


def get(vm: VM, url: str) -> str:
    return vm.run(["python3", "-c", GET, url], timeout=60).stdout.strip()


def test_a_port_of_the_host_is_reached_only_if_it_is_listed(vm_factory: Make) -> None:
    policy = {"network": "allow"}
    with WebServer() as listed, Canary() as unlisted:
        vm = vm_factory(policy, host_ports=[listed.port])
        assert get(vm, f"http://127.0.0.1:{listed.port}/") == f"127.0.0.1:{listed.port} /"
        assert get(vm, f"http://localhost:{listed.port}/") == f"localhost:{listed.port} /"
        assert get(vm, f"http://127.0.0.1:{unlisted.port}/") == "111"  # the VM's own loopback, where nobody listens
        assert unlisted.contacts() == 0
        other = vm_factory(policy)
        assert get(other, f"http://127.0.0.1:{listed.port}/") == "111"
        assert len(listed.requests) == 2


def test_a_listed_port_is_judged_all_the_same(vm_factory: Make) -> None:
    with WebServer() as web:
        vm = vm_factory(host_ports=[web.port])
        assert get(vm, f"http://127.0.0.1:{web.port}/") == "13"
        assert vm.denials[-1].message == (
            f"EACCES: permission denied, tcp://127.0.0.1:{web.port}: blocked by network.http policy"
        )
        rule = {"mode": "allow", "patterns": ["localhost"]}
        vm = vm_factory({"network": {"default": "deny", "rules": [rule]}}, host_ports=[web.port])
        assert get(vm, f"http://127.0.0.1:{web.port}/") == f"127.0.0.1:{web.port} /"


def test_the_host_has_a_name_where_some_of_its_ports_are_open(vm_factory: Make) -> None:
    with WebServer() as listed, Canary() as unlisted:
        vm = vm_factory({"network": "allow"}, host_ports=[listed.port])
        assert get(vm, f"http://host.callgate.internal:{listed.port}/") == f"host.callgate.internal:{listed.port} /"
        assert get(vm, f"http://host.callgate.internal:{unlisted.port}/") == "13"
        assert unlisted.contacts() == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_name_of_the_operators_leads_to_its_endpoint_alone(vm_factory: Make, host: str) -> None:
    allow = {"mode": "allow", "operations": ["*"], "patterns": ["api.example.com:80", "api.example.com:443"]}
    policy = {"network": {"default": "deny", "rules": [allow]}}
    with WebServer(host=host) as web, Canary(host) as canary:
        vm = vm_factory(policy, hosts={"api.example.com": web.endpoint, "other.example.com": web.endpoint})
        assert get(vm, "http://api.example.com/") == "api.example.com /"
        assert get(vm, "http://api.example.com:443/") == "api.example.com:443 /"
        assert get(vm, f"http://api.example.com:{canary.port}/") == "13"
        assert get(vm, f"http://api.example.com:{web.port}/") == "13"  # the port is the endpoint's, not the name's
        assert get(vm, "http://other.example.com/") == "13"
        literal = f"[{host}]" if ":" in host else host
        assert get(vm, f"http://{literal}:{web.port}/") == "13"
        assert (len(web.requests), canary.contacts()) == (2, 0)


def test_an_endpoint_without_a_port_keeps_the_guest_s(vm_factory: Make) -> None:
    with WebServer() as web:
        vm = vm_factory({"network": "allow"}, hosts={"api.example.com": "127.0.0.1"})
        assert get(vm, f"http://api.example.com:{web.port}/") == f"api.example.com:{web.port} /"


def test_wrong_hosts_and_ports_start_nothing(vm_factory: Make) -> None:
    with pytest.raises(ValueError, match=r'^hosts\["a b"\]'):
        vm_factory(hosts={"a b": "127.0.0.1:1"})
    with pytest.raises(ValueError, match=r"^host_ports: 0 is not a port"):
        vm_factory(host_ports=[0])
    with pytest.raises(TypeError, match=r"^host_ports"):
        vm_factory(host_ports="5432")
