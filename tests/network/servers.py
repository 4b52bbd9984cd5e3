"""Servers of the host that count who came: what a guest reaches through `hosts=`, and canaries that it must never reach."""

from __future__ import annotations

import functools
import http.server
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any, Self


class WebServer:
    """An HTTP server on the host's loopback: serves a directory, and answers every other path with what it was asked."""

    def __init__(self, directory: Path | None = None, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.requests: list[tuple[str, str]] = []  # the Host header, the path
        handler = functools.partial(_Handler, self, directory)
        kind = type("Server", (_Server,), {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET})
        self._server: http.server.ThreadingHTTPServer = kind((host, 0), handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._server.server_address[1]
        self.endpoint = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # joined when it is closed
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away is no error of a test."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5  # of a connection that is kept open

    def __init__(self, web: WebServer, directory: Path | None, *args: Any) -> None:
        self._web = web
        self._has_files = directory is not None
        super().__init__(*args, directory=str(directory))

    def do_GET(self) -> None:
        self._web.requests.append((self.headers.get("Host", ""), self.path))
        if self._has_files and Path(self.translate_path(self.path)).exists():
            super().do_GET()
            return
        if self._has_files:
            self.send_error(404)
            return
        body = f"{self.headers.get('Host')} {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object, **__: object) -> None:
        """Say nothing."""


class Canary:
    """A TCP and a UDP socket of the host with one port number; `contacts` counts whoever came."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._tcp = socket.socket(family)
        self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._tcp.bind((host, port))
        self._tcp.listen()
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(family, socket.SOCK_DGRAM)
        self._udp.bind((host, self.port))
        for sock in (self._tcp, self._udp):
            sock.settimeout(0.1)

    def contacts(self) -> int:
        """How many connections and datagrams have come since the last time."""
        count = 0
        for sock in (self._tcp, self._udp):
            try:
                while True:
                    if sock is self._tcp:
                        sock.accept()[0].close()
                    else:
                        sock.recv(100)
                    count += 1
            except TimeoutError:
                pass
        return count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tcp.close()
        self._udp.close()


def certificate(folder: Path, *names: str) -> tuple[Path, ssl.SSLContext]:
    """A certificate for these names that signs itself: its file, which clients are to trust, and a server's context with it."""
    key, chain = folder / "key.pem", folder / "chain.pem"
    subject = ",".join(f"DNS:{name}" for name in names)
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names_of = ["-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={subject}"]
    command = ["openssl", "req", *kind, "-keyout", str(key), "-out", str(chain), *names_of]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    return chain, context
