"""A host service without a VM: on a socket of the test's own, with a client that speaks the bare protocol."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate.bindings.registry import BindingRegistry, Bindings
from callgate.bindings.service import HostService
from tests.vm_fixtures import host_dir as host_dir

SECONDS = 20.0  # after which a test that hangs fails instead


class OpenGate:
    """Lets everything through that is not named as refused, and notes what it was asked."""

    def __init__(self, refused: frozenset[str] = frozenset()) -> None:
        self.refused = refused
        self.asked: list[tuple[str, str, str]] = []
        self.senders: list[int] = []

    def allows(self, name: str) -> bool:
        return name not in self.refused

    def is_deputy(self, sender: int) -> bool:
        return sender < 0

    def has_allowed(self, name: str) -> bool:
        return self.allows(name)

    def refusal(self, scope: str, operation: str, subject: str, sender: int) -> str | None:
        self.asked.append((scope, operation, subject))
        self.senders.append(sender)
        return f"EACCES: {subject}" if subject in self.refused else None

    def identify(self, sender: int) -> tuple[int, str]:
        return sender, "program"


class Client:
    """A connection on which a test writes what it likes."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(path))

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, **fields: Any) -> None:
        body = json.dumps(fields).encode()
        self.write(len(body).to_bytes(4, "big") + body)

    def call(self, name: str, number: int = 1, **arguments: Any) -> Any:
        self.send(id=number, kind="call", name=name, arguments=arguments)
        return self.receive()

    def receive(self) -> Any:
        """The next message, or None at the end of the stream."""
        head = self.read(4)
        return json.loads(self.read(int.from_bytes(head, "big"))) if head else None

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError:
                more = b""
            if not more:
                assert not data, "the stream ended within a message"
                return b""
            data += more
        return data

    def close(self) -> None:
        self.socket.close()


class Served:
    """A running service and the ways to it."""

    def __init__(self, path: Path, bindings: Bindings, refused: frozenset[str]) -> None:
        self.path = path
        self.gate = OpenGate(refused)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        listener.listen(256)
        self.service = HostService(listener, BindingRegistry(bindings), self.gate, lambda: None)
        self._clients: list[Client] = []
        self._ended = False

    def connect(self) -> Client:
        self._clients.append(Client(self.path))
        return self._clients[-1]

    def attach(self) -> socket.socket:
        """A connection for a guest in this process, as `HostServiceHandle` makes it."""
        ours, theirs = socket.socketpair()
        self.service.attach(theirs)
        return ours

    def end(self) -> None:
        """End the service while connections are open. Again: nothing."""
        if not self._ended:
            self._ended = True
            assert self.service.end().wait(SECONDS)

    def close(self) -> None:
        self.end()
        for client in self._clients:
            client.close()
        self.service.wait(SECONDS)


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path, leaves_nothing: None) -> Iterator[Serve]:  # noqa: ARG001
    """Starts a service for bindings; `refused` names those that the policy refuses."""
    made: list[Served] = []

    def start(bindings: Bindings, refused: frozenset[str] = frozenset()) -> Served:
        made.append(Served(tmp_path / f"{len(made)}.sock", bindings, refused))
        return made[-1]

    yield start
    for served in made:
        served.close()


class Held:
    """A host function that stays until it is let go, and tells that it was reached."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        self.reached.set()
        assert self.released.wait(SECONDS)
        return "let go"


@pytest.fixture
def held() -> Iterator[Held]:
    function = Held()
    yield function
    function.released.set()
