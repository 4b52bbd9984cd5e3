"""Sockets of the host inside a VM: made in its namespaces before any guest runs, and served from outside."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator

import pytest

from callgate.kernel.confinement.root import directory
from callgate.kernel.launch import Run, Supervisor
from callgate.kernel.launch_blob import Launch, LaunchFlag, Listener, ListenKind
from callgate.kernel.plan import Plan, compile_plan
from callgate.scopes import InternalError, Policy

pytestmark = pytest.mark.usefixtures("leaves_nothing")

LOOPBACK = socket.inet_aton("127.0.0.53")
LISTENERS = (
    Listener(ListenKind.UNIX, b"/run/callgate/host.sock"),
    Listener(ListenKind.UDP, LOOPBACK, 53),
    Listener(ListenKind.TCP, LOOPBACK, 53),
)


def with_listeners(listeners: tuple[Listener, ...]) -> Plan:
    plan = compile_plan(Policy.parse({"network": "allow"}))
    launch = Launch.decode(plan.blob)
    launch = dataclasses.replace(
        launch,
        flags=launch.flags | LaunchFlag.LOOPBACK,
        setup=(*launch.setup, directory("/run/callgate")),
        listeners=listeners,
    )
    return dataclasses.replace(plan, blob=launch.encode(), listeners=listeners)


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    started = Supervisor.start(with_listeners(LISTENERS))
    yield started
    started.close()
    assert all(listener.fileno() == -1 for listener in started.listeners)


def guest(supervisor: Supervisor, script: str) -> tuple[Run, int]:
    reader, writer = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    try:
        return supervisor.run(
            [b"python3", b"-c", script.encode()], {b"PATH": os.fsencode(os.environ["PATH"])}, b"/", null, writer, null
        ), reader
    finally:
        os.close(writer)
        os.close(null)


def test_every_listener_is_what_the_plan_says(supervisor: Supervisor) -> None:
    unix, udp, tcp = supervisor.listeners
    assert (unix.family, unix.type, unix.getsockname()) == (socket.AF_UNIX, socket.SOCK_STREAM, "/run/callgate/host.sock")
    assert (udp.type, udp.getsockname()) == (socket.SOCK_DGRAM, ("127.0.0.53", 53))
    assert (tcp.type, tcp.getsockname()) == (socket.SOCK_STREAM, ("127.0.0.53", 53))
    assert not any(os.get_inheritable(listener.fileno()) for listener in supervisor.listeners)


def test_nothing_of_them_is_seen_in_the_host_s_network() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.53", 53))


def test_a_guest_reaches_the_host_through_each(supervisor: Supervisor) -> None:
    script = """
import socket
for family, kind, address in ((1, 1, '/run/callgate/host.sock'), (2, 1, ('127.0.0.53', 53)), (2, 2, ('127.0.0.53', 53))):
    s = socket.socket(family, kind)
    s.connect(address)
    s.send(b'to the host')
    print(s.recv(100).decode(), flush=True)
"""
    unix, udp, tcp = supervisor.listeners
    run, output = guest(supervisor, script)
    for listener in (unix, tcp):
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == b"to the host"
            connection.send(b"from the host")
    data, sender = udp.recvfrom(100)
    assert data == b"to the host"
    udp.sendto(b"from the host", sender)
    with open(output) as text:
        assert text.read() == "from the host\n" * 3
    while run.next_event() is not None:
        pass
    run.close()


@pytest.mark.parametrize(
    "listener",
    [
        Listener(ListenKind.UNIX, b"relative"),
        Listener(ListenKind.UNIX, b"/" + b"x" * 108),
        Listener(ListenKind.UNIX, b"/with\0nul"),
        Listener(ListenKind.UDP, b"123"),
        Listener(ListenKind.TCP, LOOPBACK, 65536),
    ],
)
def test_a_listener_that_cannot_be_is_refused_before_anything_starts(listener: Listener) -> None:
    with pytest.raises(InternalError, match="listener"):
        Supervisor.start(with_listeners((listener,)))


def test_an_address_that_is_taken_fails_the_launch_by_name() -> None:
    with pytest.raises(InternalError, match=r"listener.*in use"):
        Supervisor.start(with_listeners((LISTENERS[2], LISTENERS[2])))
