"""The resolver as its clients see it, over real sockets, with a stand-in for the host's look-ups and for the supervisor."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import pytest

from callgate.kernel.egress import resolver as resolver_module
from callgate.kernel.egress import zone as zone_module
from callgate.kernel.egress.host_lookup import Failed, Found, NotFound
from callgate.kernel.egress.loop import Loop
from callgate.kernel.egress.names import Assigned
from callgate.kernel.egress.resolver import Resolver
from callgate.kernel.egress.verdicts import NameVerdicts
from callgate.kernel.egress.zone import Asker, Zone
from callgate.kernel.protocol import NameFlag
from callgate.scopes import Policy
from callgate.scopes.endpoints import host_endpoints

pytestmark = pytest.mark.usefixtures("leaves_nothing")

REAL, REAL_6 = b"\x5d\xb8\xd8\x22", bytes.fromhex("26062800022000010248189325c81946")
ALLOW = {"network": "allow"}
RULES = {
    "network": {
        "default": "deny",
        "rules": [
            {"mode": "allow", "operations": ["*"], "patterns": ["api.example.com", "hang.example", "*.allowed.example"]},
            {"mode": "allow", "operations": ["http"], "patterns": ["quiet.example"]},
            {"mode": "deny", "operations": ["*"], "patterns": ["evil.example"]},
        ],
    }
}


class Stand:
    """A resolver on the host's loopback, what its supervisor was told, and what the host was asked."""

    def __init__(self, permissions: Any, hosts: dict[str, str] | None = None) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.refusals: list[tuple[str, int, str]] = []
        self.asked: list[str] = []
        self.room = True
        self.hang = threading.Event()
        self.found: dict[str, Found] = {}
        self._sockets = (socket.socket(type=socket.SOCK_DGRAM), socket.socket())
        for sock in self._sockets:
            sock.bind(("127.0.0.1", 0))
        self._sockets[1].listen()
        self.udp, self.tcp = (sock.getsockname()[1] for sock in self._sockets)
        verdicts = NameVerdicts(Policy.parse(permissions).compiled()["network"])
        self.resolver = Resolver(
            Loop(),
            *self._sockets,
            lambda loop: Zone(loop, verdicts, self, hostname="callgate", hosts=host_endpoints(hosts), look_up=self.look_up),
        )

    def name(self, name: Assigned, addresses: tuple[bytes, ...], flags: NameFlag, port: int) -> bool:
        self.told.append((*name, addresses, int(flags), port))
        return self.room

    def refused(self, asker: Asker, name: str, rule: int, reason: str) -> None:
        assert asker.protocol in ("udp", "tcp")
        assert asker.port > 0
        self.refusals.append((name, rule, reason))

    def look_up(self, name: str) -> Found:
        self.asked.append(name)
        if name.startswith("hang"):
            self.hang.wait(20)
        if name.startswith("missing"):
            raise NotFound(name)
        if name.startswith("broken"):
            raise Failed(name)
        return self.found.get(name, Found((REAL, REAL_6), name))

    def ask(self, name: str, kind: str = "A", *, tcp: bool = False, timeout: float = 5, **options: Any) -> dns.message.Message:
        query = dns.message.make_query(name, kind, **options)
        if tcp:
            return dns.query.tcp(query, "127.0.0.1", port=self.tcp, timeout=timeout)
        return dns.query.udp(query, "127.0.0.1", port=self.udp, timeout=timeout)

    def ask_for_both(self, name: str) -> list[dns.message.Message]:
        """The answers to both questions about a name, from one socket as the C library's resolver asks them."""
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", self.udp))
            client.settimeout(5)
            for kind in ("A", "AAAA"):
                client.send(dns.message.make_query(name, kind).to_wire())
            answers = [dns.message.from_wire(client.recv(600)) for _ in range(2)]
        return sorted(answers, key=lambda answer: answer.question[0].rdtype)

    def addresses(self, name: str, kind: str = "A") -> list[str]:
        answer = self.ask(name, kind)
        assert answer.rcode() == dns.rcode.NOERROR
        return [rdata.to_text() for rrset in answer.answer for rdata in rrset]

    def close(self) -> None:
        self.hang.set()
        self.resolver.close()
        for sock in self._sockets:
            sock.close()


@pytest.fixture
def stand() -> Iterator[Callable[..., Stand]]:
    made: list[Stand] = []

    def make(*args: Any, **kwargs: Any) -> Stand:
        made.append(Stand(*args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


# -- what is answered ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_an_allowed_name_gets_addresses_of_its_own_for_each_family_it_has(stand: Callable[..., Stand], tcp: bool) -> None:
    each = stand(RULES)
    for kind in ("A", "AAAA"):
        answer = each.ask("API.example.com", kind, tcp=tcp)
        (rrset,) = answer.answer
        assert [rdata.to_text() for rdata in rrset] == [{"A": "198.18.0.1", "AAAA": "2001:2::c612:1"}[kind]]
        assert rrset.ttl == zone_module.FOUND_SECONDS
        assert answer.flags & dns.flags.RA
    packed = socket.inet_aton("198.18.0.1"), socket.inet_pton(socket.AF_INET6, "2001:2::c612:1")
    assert each.told == [("api.example.com", *packed, (REAL, REAL_6), 0, 0)]
    assert (each.asked, each.refusals) == (["api.example.com"], [])


@pytest.mark.parametrize(("real", "kinds"), [(REAL, ["A"]), (REAL_6, ["AAAA"])])
def test_a_family_that_the_name_does_not_have_is_answered_with_nothing(
    stand: Callable[..., Stand], real: bytes, kinds: list[str]
) -> None:
    each = stand(ALLOW)
    each.found["one.example"] = Found((real,), "one.example")
    assert [kind for kind in ("A", "AAAA") if each.addresses("one.example", kind)] == kinds


def test_two_names_on_one_address_have_different_ones_inside(stand: Callable[..., Stand]) -> None:
    each = stand(ALLOW)
    first, second = each.addresses("a.example"), each.addresses("b.example")
    assert first != second
    assert each.addresses("a.example") == first


def test_a_name_denied_altogether_gets_an_address_and_nobody_is_asked(stand: Callable[..., Stand]) -> None:
    each = stand({"network": "deny"})
    four, six = each.ask_for_both("example.com")
    assert [rdata.to_text() for rrset in four.answer for rdata in rrset] == ["198.18.0.1"]
    assert (six.rcode(), six.answer) == (dns.rcode.NOERROR, [])
    assert each.asked == []
    assert [told[3:] for told in each.told] == [((), 0, 0)]
    assert each.refusals == [("example.com", -2, "")]  # by the mode, and once for both families


def test_a_name_denied_for_dns_alone_is_refused(stand: Callable[..., Stand]) -> None:
    each = stand(RULES)
    assert [answer.rcode() for answer in each.ask_for_both("quiet.example")] == [dns.rcode.REFUSED] * 2
    assert (each.asked, each.told, each.refusals) == ([], [], [("quiet.example", -1, "")])


def test_each_look_up_of_a_denied_name_is_a_refusal_of_its_own(stand: Callable[..., Stand]) -> None:
    each = stand(RULES)
    for _ in range(3):
        assert each.addresses("evil.example") == ["198.18.0.1"]
    assert each.refusals == [("evil.example", 2, "")] * 3
    assert len({told[:3] for told in each.told}) == 1


@pytest.mark.parametrize("permissions", [ALLOW, {"network": "deny"}], ids=["allow", "deny"])
def test_the_vm_itself_is_known_under_any_policy_and_addresses_are_no_names(
    stand: Callable[..., Stand], permissions: Any
) -> None:
    each = stand(permissions)
    assert each.addresses("localhost") == ["127.0.0.1"]
    assert each.addresses("a.b.localhost", "AAAA") == ["::1"]
    assert each.addresses("callgate") == ["127.0.0.1"]
    for name in ("127.0.0.1", "1.2.3", "0x7f000001", "1.0.0.127.in-addr.arpa", "8.ip6.arpa", "no/host", "a b"):
        assert each.ask(name).rcode() == dns.rcode.NXDOMAIN
    assert each.ask("1.0.18.198.in-addr.arpa", "PTR").rcode() == dns.rcode.NXDOMAIN
    assert each.ask(".", "NS").rcode() == dns.rcode.NXDOMAIN
    assert (each.asked, each.told, each.refusals) == ([], [], [])


def test_other_questions_are_answered_so_that_nobody_asks_again(stand: Callable[..., Stand]) -> None:
    each = stand(ALLOW)
    for kind in ("MX", "TXT", "SRV", "HTTPS", "CNAME", "SOA", "NS"):
        answer = each.ask("api.example.com", kind)
        assert (answer.rcode(), answer.answer) == (dns.rcode.NOERROR, [])
    assert each.asked == []
    assert len(each.addresses("api.example.com", "ANY")) == 2
    assert each.ask("api.example.com", "A", rdclass="CH").rcode() == dns.rcode.REFUSED
    assert each.ask("api.example.com", "AXFR").rcode() == dns.rcode.NOTIMP
    assert each.ask("api.example.com", "A", use_edns=1).rcode() == dns.rcode.BADVERS


def test_what_the_host_does_not_find_is_told_as_it_is(stand: Callable[..., Stand]) -> None:
    each = stand(ALLOW)
    assert each.ask("missing.example").rcode() == dns.rcode.NXDOMAIN
    assert each.ask("broken.example").rcode() == dns.rcode.SERVFAIL
    assert each.ask("broken.example", "AAAA").rcode() == dns.rcode.SERVFAIL
    assert each.asked == ["missing.example", "broken.example"]  # a failure is remembered, too
    assert (each.told, each.refusals) == ([], [])


def test_a_name_of_the_operators_leads_to_the_endpoint_and_nobody_is_asked(stand: Callable[..., Stand]) -> None:
    hosts = {"api.example.com": "127.0.0.1:8443", "six.allowed.example": "[::1]", "denied.example": "127.0.0.1:1"}
    each = stand(RULES, hosts)
    assert (each.addresses("api.example.com"), each.addresses("api.example.com", "AAAA")) == (["198.18.0.1"], [])
    assert each.addresses("six.allowed.example", "AAAA") == ["2001:2::c612:2"]
    each.ask("denied.example")
    assert each.asked == []
    assert [told[:1] + told[3:] for told in each.told] == [
        ("api.example.com", (b"\x7f\0\0\1",), NameFlag.OPERATOR, 8443),
        ("six.allowed.example", (bytes(15) + b"\1",), NameFlag.OPERATOR, 0),
        ("denied.example", (), 0, 0),
    ]
    assert [name for name, *_ in each.refusals] == ["denied.example"]


# -- what the world does -------------------------------------------------------------------------------------------------


def test_real_addresses_that_change_are_told_before_the_answer(
    stand: Callable[..., Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zone_module, "FOUND_SECONDS", 0)
    each = stand(ALLOW)
    for real in (REAL, b"\x7f\0\0\1", b"\xa9\xfe\xa9\xfe"):
        each.found["rebinding.example"] = Found((real,), "rebinding.example")
        assert each.addresses("rebinding.example") == ["198.18.0.1"]
        assert each.told[-1][3] == (real,)
    assert len(each.asked) == 3


def test_an_alias_of_a_host_that_a_rule_denies_by_name_is_refused(stand: Callable[..., Stand]) -> None:
    each = stand(RULES)
    each.found["api.example.com"] = Found((REAL,), "evil.example")
    assert each.ask("api.example.com").rcode() == dns.rcode.REFUSED
    assert each.told == []
    assert each.refusals == [("evil.example", 2, "api.example.com is an alias for it")]
    each.found["x.allowed.example"] = Found((REAL,), "cdn.elsewhere.example")
    assert each.addresses("x.allowed.example") == ["198.18.0.1"]


def test_no_answer_before_the_supervisor_knows_and_none_if_it_has_no_room(stand: Callable[..., Stand]) -> None:
    each = stand({"network": {"default": "allow", "rules": [{"mode": "deny", "patterns": ["denied.example"]}]}})
    each.room = False
    assert each.ask("a.example").rcode() == dns.rcode.SERVFAIL
    assert each.ask("denied.example").rcode() == dns.rcode.REFUSED


def test_a_look_up_that_hangs_is_given_up_in_time_and_recorded(stand: Callable[..., Stand]) -> None:
    each = stand(RULES)
    started = time.monotonic()
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda kind=kind: answers.append(each.ask("hang.example", kind).rcode()))
        for kind in ("A", "AAAA")
    ]
    for thread in threads:
        thread.start()
    assert each.addresses("api.example.com")  # others are not kept waiting
    assert time.monotonic() - started < zone_module.LOOKUP_SECONDS
    for thread in threads:
        thread.join()
    assert answers == [dns.rcode.SERVFAIL] * 2
    assert each.refusals == [("hang.example", -9, "the name could not be resolved within 2 seconds")]
    assert each.asked.count("hang.example") == 1
    # What it finds late is good for the next.
    each.hang.set()
    deadline = time.monotonic() + 5
    while each.ask("hang.example").rcode() != dns.rcode.NOERROR and time.monotonic() < deadline:
        time.sleep(0.02)
    assert each.addresses("hang.example")


def test_names_that_all_hang_stall_only_their_own_vm(stand: Callable[..., Stand]) -> None:
    stuck, other = stand(ALLOW), stand(ALLOW)
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", stuck.udp))
        for number in range(40):
            client.send(dns.message.make_query(f"hang-{number}.example", "A").to_wire())
        assert other.addresses("a.example")
        client.settimeout(10)
        rcodes = [dns.message.from_wire(client.recv(600)).rcode() for _ in range(40)]
    assert set(rcodes) == {dns.rcode.SERVFAIL}
    assert len(stuck.asked) == 8


# -- what clients do -------------------------------------------------------------------------------------------------------


def test_several_queries_on_one_connection_are_all_answered(stand: Callable[..., Stand]) -> None:
    each = stand(ALLOW)
    queries = [dns.message.make_query(f"{number}.example", "A") for number in "abcdef"]
    stream = b"".join(struct.pack("!H", len(wire)) + wire for wire in (query.to_wire() for query in queries))
    with socket.create_connection(("127.0.0.1", each.tcp), timeout=5) as client:
        for position in range(0, len(stream), 7):  # cut anywhere
            client.sendall(stream[position : position + 7])
        answers = [dns.query.receive_tcp(client, expiration=time.time() + 5)[0] for _ in queries]
    assert {answer.id for answer in answers} == {query.id for query in queries}


def test_malformed_packets_are_answered_or_dropped_and_nobody_suffers(stand: Callable[..., Stand]) -> None:
    each = stand(ALLOW)
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", each.udp))
        client.settimeout(5)
        for data in (b"", b"x", b"\0" * 11, b"\xff" + os.urandom(1) + b"\xff" * 5000, b"\xff" * 12):
            client.send(data)
        client.send(b"\0\7\1\0" + b"\0" * 8)
        assert dns.message.from_wire(client.recv(600)).rcode() == dns.rcode.FORMERR
    with socket.create_connection(("127.0.0.1", each.tcp), timeout=5) as client:
        client.sendall(struct.pack("!H", 12) + b"\0\7\1\0" + b"\0" * 8)
        assert dns.query.receive_tcp(client, expiration=time.time() + 5)[0].rcode() == dns.rcode.FORMERR
        client.sendall(b"\0\0" + b"\0\1x" + struct.pack("!H", 60000))  # nothing, nonsense, and a length without its query
    assert each.addresses("a.example")


def test_connections_that_say_nothing_are_closed_and_the_oldest_goes_first(
    stand: Callable[..., Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver_module, "STREAM_IDLE_SECONDS", 1.0)
    each = stand(ALLOW)
    clients = [socket.create_connection(("127.0.0.1", each.tcp), timeout=10) for _ in range(resolver_module.STREAMS_MAX + 1)]
    try:
        assert _closed(clients[0])  # made room
        poll = select.poll()
        for client in clients[1:]:
            client.sendall(b"\0")  # a query that never comes
            poll.register(client, select.POLLIN)
        assert each.ask("a.example", tcp=True).answer  # one more goes all the same
        assert all(_closed(client) for client in clients[1:])
    finally:
        for client in clients:
            client.close()


def _closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:  # what it had sent was not read
        return True


def test_a_client_that_does_not_read_is_dropped(stand: Callable[..., Stand]) -> None:
    each = stand(ALLOW)
    query = dns.message.make_query("a.example", "A").to_wire()
    with socket.socket() as client:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            client.setsockopt(socket.SOL_SOCKET, option, 2048)
        client.connect(("127.0.0.1", each.tcp))
        client.settimeout(5)
        many = (struct.pack("!H", len(query)) + query) * 100_000
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            client.sendall(many)
    assert each.addresses("a.example")


def test_a_flood_delays_nobody_else(stand: Callable[..., Stand]) -> None:
    flooded, other = stand(ALLOW), stand(ALLOW)
    query = dns.message.make_query("localhost", "A").to_wire()
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", flooded.udp))
        client.setblocking(False)
        for _ in range(3000):
            try:
                client.send(query)
            except BlockingIOError:
                break
        assert other.addresses("a.example")
        answered = 0
        while select.select([client], [], [], 0)[0]:
            client.recv(600)
            answered += 1
    assert answered < 3000
    deadline = time.monotonic() + 30
    while True:  # what came when the socket was full is lost, and asked again as every client does
        try:
            assert flooded.ask("localhost", timeout=1).rcode() == dns.rcode.NOERROR
            break
        except dns.exception.Timeout:
            assert time.monotonic() < deadline


# -- its end -----------------------------------------------------------------------------------------------------------------


def test_it_may_be_closed_at_any_time_and_again(stand: Callable[..., Stand]) -> None:
    each = stand(ALLOW)
    with socket.create_connection(("127.0.0.1", each.tcp)) as client, socket.socket(type=socket.SOCK_DGRAM) as other:
        other.sendto(dns.message.make_query("hang.example", "A").to_wire(), ("127.0.0.1", each.udp))
        while not each.asked:
            time.sleep(0.01)
        each.resolver.close()
        each.resolver.close()
        each.hang.set()
        client.settimeout(5)
        assert client.recv(1) == b""


def test_a_fork_has_a_loop_of_its_own_and_closes_nothing_of_its_parents(stand: Callable[..., Stand]) -> None:
    from callgate.kernel.egress.loop import shared_loop

    each = stand(ALLOW)
    ours = shared_loop()
    child = os.fork()
    if child == 0:
        each.resolver.close()  # must not wait for a thread that is not there
        os._exit(0 if shared_loop() is not ours else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert each.addresses("a.example")


def test_one_thread_serves_all_and_ends_with_the_last() -> None:
    loop = Loop()
    done: list[str] = []
    for name in ("a", "b"):
        loop.enter(partial(done.append, name))
    loop.leave(lambda: done.append("left"), wait=True)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("callgate-resolver") == 1
    loop.leave(lambda: done.append("left"), wait=True)
    assert done == ["a", "b", "left", "left"]
    loop.enter(lambda: done.append("again"))
    loop.leave(lambda: done.append("left"), wait=True)
    assert done[-2:] == ["again", "left"]


def test_timers_come_in_order_and_calls_from_other_threads_at_once() -> None:
    loop = Loop()
    order: list[int] = []
    finished = threading.Event()

    def last() -> None:
        order.append(3)
        finished.set()

    def start() -> None:
        now = time.monotonic()
        loop.at(now + 0.2, last)
        loop.at(now + 0.05, lambda: order.append(2))
        loop.post(lambda: order.append(1))

    loop.enter(start)
    assert finished.wait(5)
    loop.leave(lambda: None, wait=True)
    assert order == [1, 2, 3]
