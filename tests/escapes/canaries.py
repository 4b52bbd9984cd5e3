"""Servers on the host's loopback that a test wants to see untouched, or touched exactly so often."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Final, Self

LOOPBACK: Final = "127.0.0.1"


class Canary:
    """TCP and UDP on one port of the host's loopback, IPv4 and IPv6: echoes, and counts who came. A context manager."""

    def __init__(self) -> None:
        self._connections = 0
        self._datagrams = 0
        self._stack = ExitStack()
        self._stop = threading.Event()
        self.port, listeners = self._listeners()
        for listener in listeners:
            work = self._accept if listener.type == socket.SOCK_STREAM else self._receive
            threading.Thread(target=work, args=(listener,), daemon=True).start()

    def _listeners(self) -> tuple[int, list[socket.socket]]:
        """The same port for all of them: the first is any, the others are tried until that works out."""
        while True:
            with ExitStack() as stack:
                made: list[socket.socket] = []
                port = 0
                try:
                    for family, host in ((socket.AF_INET, LOOPBACK), (socket.AF_INET6, "::1")):
                        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                            one = stack.enter_context(socket.socket(family, kind))
                            one.bind((host, port))
                            port = one.getsockname()[1]
                            if kind == socket.SOCK_STREAM:
                                one.listen(128)
                            made.append(one)
                except OSError:
                    continue
                self._stack.push(stack.pop_all())
                return port, made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stop.set()
        for family, host in ((socket.AF_INET, LOOPBACK), (socket.AF_INET6, "::1")):  # wakes each thread once
            with socket.socket(family) as waker, socket.socket(family, socket.SOCK_DGRAM) as datagram:
                waker.connect((host, self.port))
                datagram.sendto(b"", (host, self.port))
        self._stack.close()

    @property
    def contacts(self) -> int:
        """How often anybody came until now, by any way."""
        return self.connections + self.datagrams

    @property
    def connections(self) -> int:
        """How many connections were accepted until now."""
        self._catch_up()
        return self._connections

    @property
    def datagrams(self) -> int:
        """How many datagrams arrived until now."""
        self._catch_up()
        return self._datagrams

    def _catch_up(self) -> None:
        """One contact of our own by every way, behind all others: when they are answered, those have been counted."""
        for family, host in ((socket.AF_INET, LOOPBACK), (socket.AF_INET6, "::1")):
            with socket.socket(family) as stream, socket.socket(family, socket.SOCK_DGRAM) as datagram:
                for one in (stream, datagram):
                    one.settimeout(20)
                    one.connect((host, self.port))
                    one.send(b"x")
                    one.recv(1)
        self._connections -= 2
        self._datagrams -= 2

    def _accept(self, listener: socket.socket) -> None:
        while not self._stop.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            if self._stop.is_set():
                peer.close()
                return
            self._connections += 1
            threading.Thread(target=_echo, args=(peer,), daemon=True).start()

    def _receive(self, listener: socket.socket) -> None:
        while not self._stop.is_set():
            try:
                data, sender = listener.recvfrom(65536)
            except OSError:
                return
            if self._stop.is_set():
                return
            self._datagrams += 1
            listener.sendto(data, sender)


def _echo(peer: socket.socket) -> None:
    with peer:
        try:
            while data := peer.recv(65536):
                peer.sendall(data)
        except OSError:
            return


@contextmanager
def silent() -> Iterator[int]:
    """A port of the host's loopback whose queue is full: whoever connects waits."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(8):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        yield address[1]
