"""Reaches servers that listen inside a VM from the host, over sockets in the VM's own network: no port of the host is opened."""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any, Final

from callgate.guest.arguments import kind, seconds

#: Bytes of a response that are taken; what a guest sends fills the host's memory.
BODY_MAX: Final = 64 << 20

_RETRY_SECONDS: Final = 0.02
_CHUNK: Final = 1 << 16
_SOCKET_SECONDS: Final = 2e6  # the longest wait that a socket takes is 24 days
_LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))

OpenSocket = Callable[[int, int], socket.socket]


@dataclass(frozen=True, slots=True)
class Response:
    """What a guest's HTTP server answered. ``headers`` finds names in any case."""

    status: int
    reason: str
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, in the charset that the server names or else UTF-8; bytes that are not are replaced."""
        try:
            return self.body.decode(self.headers.get_content_charset("utf-8"), "replace")
        except LookupError:  # the server made a charset up
            return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; `ValueError` if it is none."""
        return json.loads(self.body)


def connect(open_socket: OpenSocket, port: int, *, timeout: float | None, wait: float, udp: bool = False) -> socket.socket:
    """A connection to *port* of the VM's loopback, IPv4 or else IPv6; the socket keeps *timeout* (seconds).

    For *wait* seconds a connection that is refused is tried again, for a server that is starting. Raises
    `ConnectionRefusedError` if nobody listens and `TimeoutError` if who listens does not accept.
    """
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise ValueError(f"{port!r} is not a port; those are 1 to 65535")
    timeout, patience = seconds(timeout, "timeout"), seconds(wait, "wait")
    give_up = math.inf if patience is None else time.monotonic() + patience
    while True:
        for family, address in _LOOPBACK:
            sock = open_socket(family, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
            try:
                sock.settimeout(None if timeout is None else min(timeout, _SOCKET_SECONDS))
                sock.connect((address, port))
            except ConnectionRefusedError:
                sock.close()
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        if time.monotonic() >= give_up:
            raise ConnectionRefusedError(111, f"nobody listens on port {port} of the VM")
        time.sleep(_RETRY_SECONDS)


def fetch(
    open_socket: OpenSocket,
    port: int,
    path: str,
    method: str,
    headers: Mapping[str, str] | None,
    body: bytes | str | None,
    *,
    timeout: float | None,
    wait: float,
) -> Response:
    """One HTTP request, all of it within *timeout* seconds, None for no limit; redirects are not followed.

    Raises `OSError` where `connect` does, `TimeoutError`, `ConnectionError` for an answer that is not HTTP or larger than
    `BODY_MAX`, and `ValueError` for a path or header that cannot be sent.
    """
    if not isinstance(path, str):
        raise TypeError(f"path is {kind(path)}, not str")
    if not path.startswith("/") or not path.isascii() or any(ord(character) <= 32 for character in path):
        raise ValueError(f"path {path!r} must start with '/' and hold no spaces and no other letters than ASCII")
    timeout = seconds(timeout, "timeout")
    connection = http.client.HTTPConnection("localhost", port)
    connection.sock = _Within(connect(open_socket, port, timeout=timeout, wait=wait), timeout)
    try:
        connection.request(method, path, body.encode() if isinstance(body, str) else body, dict(headers or {}))
        answer = connection.getresponse()
        content = bytearray()
        while chunk := answer.read(_CHUNK):
            content += chunk
            if len(content) > BODY_MAX:
                raise ConnectionError(f"the server on port {port} of the VM sent more than {BODY_MAX} bytes")
        if answer.length:
            raise ConnectionError(f"the server on port {port} of the VM ended {answer.length} bytes before the end of its answer")
        return Response(answer.status, answer.reason, answer.headers, bytes(content))
    except http.client.HTTPException as error:
        raise ConnectionError(f"the server on port {port} of the VM did not answer in HTTP: {error!r}") from error
    finally:
        connection.close()


class _Within(socket.socket):
    """A connected socket all of whose use must be over within a number of seconds, however slowly the other end goes."""

    def __init__(self, sock: socket.socket, limit: float | None) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self._deadline = math.inf if limit is None else time.monotonic() + limit

    def _hurry(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self.settimeout(min(left, _SOCKET_SECONDS))

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self._hurry()
        return super().recv_into(*args, **kwargs)

    def sendall(self, *args: Any, **kwargs: Any) -> None:
        self._hurry()
        super().sendall(*args, **kwargs)
