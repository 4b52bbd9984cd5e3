"""Granting the network: first none of it, then all of it, then a single host. Everything else keeps the secure default."""

from __future__ import annotations

from callgate import VM
from callgate.scopes import Permissions
from examples import report

GRANT_NETWORK: Permissions = {"network": "allow"}

ALLOW_ONE_HOST: Permissions = {
    "network": {
        "default": "deny",
        "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["api.example.com"]}],
    },
}

# A web server and a client of it, both in the VM; the network they use is the VM's own loopback.
SERVE_AND_FETCH = """
import http.server, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    log_message = lambda *_: None
server = http.server.HTTPServer(("127.0.0.1", 8080), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
with urllib.request.urlopen("http://127.0.0.1:8080/greeting.txt") as answer:
    print(answer.read().decode().strip())
"""

CONNECT = ["python3", "-c", "import socket\nsocket.create_connection(('192.0.2.1', 80))"]


def main() -> None:
    files = {"/home/agentos/greeting.txt": "hello from inside the VM"}
    program = ["python3", "-W", "ignore", "-c", SERVE_AND_FETCH]

    report.title("No policy: the network is denied until it is granted.", {})
    with VM(files=files) as vm:
        report.run(vm, program, "python3: serve on 127.0.0.1:8080 and fetch a page from there")
        report.run(vm, CONNECT, "python3: connect to 192.0.2.1:80")

    report.title("The network granted:", GRANT_NETWORK)
    with VM(GRANT_NETWORK, files=files) as vm:
        report.run(vm, program, "python3: serve on 127.0.0.1:8080 and fetch a page from there")

    report.title("One host granted:", ALLOW_ONE_HOST)
    with VM(ALLOW_ONE_HOST) as vm:
        for subject in ("tcp://api.example.com:443", "tcp://example.com:443"):
            print(f"    explain  {vm.explain('network', 'http', subject).message}")
        report.run(vm, CONNECT, "python3: connect to 192.0.2.1:80")


if __name__ == "__main__":
    main()
