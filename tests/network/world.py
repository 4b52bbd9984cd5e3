"""A network of its own to try things in: an internet with a name server and web servers, one cable away from this machine.

    python -m tests.network.world CLAIM...

makes the two ends of the cable, starts the internet at the far one and checks claims (functions of tests/network/claims.py) at
the near one, as the user that it was started by. It must be started in network and mount namespaces that it may change.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import dns.exception
import dns.message
import dns.rcode
import dns.rrset

NAME_SERVER: Final = "203.0.113.53"
HERE, GATEWAY = "203.0.113.1", "203.0.113.2"
#: The machine's as well: a second address of one network, and one of a range that is all its own.
HERE_TOO, HERE_6 = "203.0.113.9", "2600:db8:2::77"
PUBLIC, PUBLIC_2, PUBLIC_6 = "198.51.100.10", "198.51.100.11", "2600:db8::10"
PRIVATE, METADATA, PRIVATE_6 = "10.9.8.7", "169.254.169.254", "fd12:3456::1"
ADDRESSES: Final = (NAME_SERVER, PUBLIC, PUBLIC_2, PUBLIC_6, PRIVATE, METADATA, PRIVATE_6)
PORTS: Final = (80, 8080)
_CONTROL: Final = "CALLGATE_TEST_INTERNET"
_HANGING: Final = "hang"


# -- the far end -----------------------------------------------------------------------------------------------------------


class Internet:
    """A name server and, on each address, TCP and UDP servers that say which address they are; what comes is noted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, list[str]] = {}  # name -> "A 1.2.3.4", "CNAME x.", or a response code
        self._ttl = 60
        self._came: list[str] = []

    def serve(self, control: socket.socket) -> None:
        """Serve until the other end of *control* is closed."""
        udp = socket.socket(type=socket.SOCK_DGRAM)
        udp.bind((NAME_SERVER, 53))
        threading.Thread(target=self._names, args=(udp,), daemon=True).start()
        for address in ADDRESSES:
            for port in PORTS:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    sock.bind((address, port))
                    serve = self._streams if kind == socket.SOCK_STREAM else self._datagrams
                    threading.Thread(target=serve, args=(sock, f"{address} {port}"), daemon=True).start()
        with control.makefile("rw") as lines:
            lines.write("ready\n")
            lines.flush()
            for line in lines:
                request = json.loads(line)
                with self._lock:
                    self._records |= request.get("records", {})
                    self._ttl = request.get("ttl", self._ttl)
                    answer, self._came = self._came, []
                lines.write(json.dumps(answer) + "\n")
                lines.flush()

    def _note(self, what: str) -> None:
        with self._lock:
            self._came.append(what)

    def _streams(self, sock: socket.socket, name: str) -> None:
        sock.listen()
        while True:
            connection, _ = sock.accept()
            self._note(f"tcp {name}")
            with connection:
                connection.settimeout(5)
                body = f"this is {name}\n".encode()
                try:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                except OSError:
                    pass  # it only came to see

    def _datagrams(self, sock: socket.socket, name: str) -> None:
        while True:
            _, sender = sock.recvfrom(65536)
            self._note(f"udp {name}")
            sock.sendto(f"this is {name}\n".encode(), sender)

    def _names(self, sock: socket.socket) -> None:
        while True:
            data, sender = sock.recvfrom(4096)
            try:
                query = dns.message.from_wire(data)
            except dns.exception.DNSException:
                self._note("dns in no form")
                continue
            question = query.question[0]
            name = question.name.to_text(omit_final_dot=True).lower()
            self._note(f"dns {name}")
            with self._lock:
                records, ttl = list(self._records.get(name, ["NXDOMAIN"])), self._ttl
            if _HANGING in records:
                continue
            answer = dns.message.make_response(query, recursion_available=True)
            for record in records:
                kind, _, value = record.partition(" ")
                if not value:
                    answer.set_rcode(dns.rcode.from_text(kind))
                elif kind == "CNAME":
                    answer.answer.append(dns.rrset.from_text(question.name, ttl, "IN", "CNAME", value))
                    with self._lock:
                        target = self._records.get(value.rstrip("."), [])
                    records_of = [each.partition(" ")[2] for each in target if each.startswith(f"{question.rdtype.name} ")]
                    if records_of:
                        answer.answer.append(dns.rrset.from_text(value, ttl, "IN", question.rdtype, *records_of))
                elif kind == question.rdtype.name:
                    answer.answer.append(dns.rrset.from_text(question.name, ttl, "IN", kind, value))
            sock.sendto(answer.to_wire(max_size=65535), sender)


# -- the near end ------------------------------------------------------------------------------------------------------------


class World:
    """The internet as a claim steers it, and what has come there."""

    def __init__(self, control: socket.socket) -> None:
        self._lines = control.makefile("rw")

    def _ask(self, **request: Any) -> list[str]:
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        return list(json.loads(self._lines.readline()))

    def ttl(self, seconds: int) -> None:
        """How long records are good for, as the name server says."""
        self._ask(ttl=seconds)

    def names(self, **records: list[str] | str) -> None:
        """Records by name (with `_` for a dot): "A 1.2.3.4", "CNAME other.", "SERVFAIL", "hang"."""
        named = {name.replace("_", "."): [text] if isinstance(text, str) else text for name, text in records.items()}
        self._ask(records=named)

    def came(self) -> list[str]:
        """What has come since the last time: "dns NAME", "tcp ADDRESS PORT", "udp ADDRESS PORT"."""
        time.sleep(0.05)  # nothing is waited for that should not come
        return self._ask()


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def lay_cable(far_end: int) -> None:
    """Two interfaces, of which the other is in the network namespace of the process *far_end*."""
    there = ["nsenter", "--preserve-credentials", f"--net=/proc/{far_end}/ns/net", "--"]
    run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(far_end))
    run("ip", "addr", "add", f"{HERE}/24", "dev", "here")
    run("ip", "-6", "addr", "add", "2600:db8:1::1/64", "dev", "here", "nodad")
    run("ip", "addr", "add", f"{HERE_TOO}/24", "dev", "here")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", "here", "up")
    run("ip", "-6", "route", "add", "local", "2600:db8:2::/64", "dev", "lo")
    run(*there, "ip", "link", "set", "lo", "up")
    run(*there, "ip", "addr", "add", f"{GATEWAY}/24", "dev", "there")
    run(*there, "ip", "-6", "addr", "add", "2600:db8:1::2/64", "dev", "there", "nodad")
    for address in ADDRESSES:
        run(*there, "ip", "addr", "add", f"{address}/{128 if ':' in address else 32}", "dev", "lo")
    run(*there, "ip", "link", "set", "there", "up")
    run("ip", "route", "add", "default", "via", GATEWAY)
    run("ip", "-6", "route", "add", "default", "via", "2600:db8:1::2")


def start_internet(control: socket.socket, other_end: socket.socket) -> int:
    """The far end as a child in a network namespace of its own; its pid."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(read)
        lay_cable_when_apart(pid)
        os.close(write)
        return pid
    os.close(write)
    other_end.close()
    unshare_network()
    os.read(read, 1)  # until the cable is laid
    Internet().serve(control)
    os._exit(0)


def unshare_network() -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def lay_cable_when_apart(pid: int) -> None:
    ours = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{pid}/ns/net") == ours:
        time.sleep(0.005)
    lay_cable(pid)


def use_name_server() -> None:
    """The machine's resolver, for this mount namespace: ours, and nothing between it and a program."""
    folder = Path("/tmp/callgate-world")
    folder.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "callgate-world", str(folder))
    texts = {
        "resolv.conf": f"nameserver {NAME_SERVER}\noptions timeout:3 attempts:1\n",
        "hosts": "127.0.0.1 localhost\n",
        "nsswitch.conf": "hosts: files dns\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        run("mount", "--bind", str(folder / name), str(Path("/etc", name).resolve()))


def check_claims(names: list[str]) -> None:
    """Check each claim; an AssertionError says which does not hold."""
    from tests.network import claims

    control = socket.socket(fileno=int(os.environ.pop(_CONTROL)))
    assert control.makefile("r").readline() == "ready\n"
    world = World(control)
    for name in names:
        print(name, flush=True)
        getattr(claims, name)(world)


def main() -> int:
    if _CONTROL in os.environ:
        check_claims(sys.argv[1:])
        return 0
    near, far = socket.socketpair()
    use_name_server()
    pid = start_internet(far, near)
    far.close()
    os.environ[_CONTROL] = str(near.fileno())
    as_started = [] if os.geteuid() == 0 else ["setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--"]
    try:
        command = [*as_started, sys.executable, "-m", "tests.network.world", *sys.argv[1:]]
        return subprocess.run(command, check=False, pass_fds=[near.fileno()]).returncode
    finally:
        near.close()
        os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main())
