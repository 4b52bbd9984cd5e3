"""A server that a guest runs, reached from the host: no port of the host is opened, and no other VM sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from callgate import VM
from callgate.scopes import Permissions
from examples import report

MAY_LISTEN: Permissions = {
    "network": {
        "default": "deny",
        "rules": [{"mode": "allow", "operations": ["listen"], "patterns": ["127.0.0.1:8000"]}],
    },
}

FILES = {"/home/agentos/index.html": "served from inside the VM"}
SERVE = ["python3", "-m", "http.server", "--bind", "127.0.0.1"]


@contextmanager
def running(vm: VM, command: list[str]) -> Iterator[None]:
    """A program of the VM that runs beside what is done in the block."""
    process = vm.spawn(command)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    report.title("A guest may listen on one port:", MAY_LISTEN)
    with VM(MAY_LISTEN, files=FILES) as vm, running(vm, [*SERVE, "8000"]):
        report.call("vm.fetch(8000, '/', wait=10).text", lambda: vm.fetch(8000, "/", wait=10).text)
        report.run(vm, [*SERVE, "9000"])


if __name__ == "__main__":
    report.show(main)
