"""What the operator opens of local networks, which no policy opens: a name for an endpoint, and a port of the host's loopback."""

from __future__ import annotations

from callgate import VM
from callgate.scopes import Permissions
from examples import outside, report

EVERYTHING: Permissions = {"network": "allow"}


def main() -> None:
    with outside.web_server() as endpoint:
        port = int(endpoint.rpartition(":")[2])
        here = f"http://127.0.0.1:{port}"

        report.title("Everything allowed, nothing opened: the loopback is the VM's own.", EVERYTHING)
        with VM(EVERYTHING) as vm:
            report.run(vm, ["callgate-fetch", here], "callgate-fetch http://127.0.0.1:PORT")
            report.run(vm, ["callgate-fetch", "http://10.0.0.1"])

        report.title("A name for an endpoint of the operator's choice:", EVERYTHING)
        with VM(EVERYTHING, hosts={"staging.example.com": endpoint}) as vm:
            report.run(vm, ["callgate-fetch", "http://staging.example.com"])

        report.title("A port of the host's loopback:", EVERYTHING)
        with VM(EVERYTHING, host_ports=[port]) as vm:
            report.run(vm, ["callgate-fetch", here], "callgate-fetch http://127.0.0.1:PORT")


if __name__ == "__main__":
    report.show(main)
