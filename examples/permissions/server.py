"""Granting the network: first none of it, then all of it, then a single host. Everything else keeps the secure default."""

from __future__ import annotations

from callgate import VM
from callgate.scopes import Permissions
from examples import outside, report

GRANT_NETWORK: Permissions = {"network": "allow"}

ALLOW_ONE_HOST: Permissions = {
    "network": {
        "default": "deny",
        "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["api.example.com"]}],
    },
}

URLOPEN = "import urllib.request\nurllib.request.urlopen('http://example.com')"


def main() -> None:
    with outside.web_server() as endpoint:
        # Both names stand for one and the same server, by the operator's word.
        hosts = {"api.example.com": endpoint, "example.com": endpoint}

        report.title("No policy: the network is denied until it is granted.", {})
        with VM(hosts=hosts) as vm:
            report.run(vm, ["callgate-fetch", "http://example.com"])
            report.run(vm, ["python3", "-c", URLOPEN], "python3: urlopen('http://example.com')")
            report.run(vm, ["callgate-fetch", "http://192.0.2.1"])

        report.title("The network granted:", GRANT_NETWORK)
        with VM(GRANT_NETWORK, hosts=hosts) as vm:
            report.run(vm, ["callgate-fetch", "http://example.com"])
            report.run(
                vm,
                ["callgate-fetch", "http://169.254.169.254"],
                "callgate-fetch http://169.254.169.254, where clouds keep credentials",
            )

        report.title("One host granted:", ALLOW_ONE_HOST)
        with VM(ALLOW_ONE_HOST, hosts=hosts) as vm:
            report.run(vm, ["callgate-fetch", "http://api.example.com"])
            report.run(
                vm, ["callgate-fetch", "http://example.com"], "callgate-fetch http://example.com, another name of the same server"
            )
            report.run(vm, ["callgate-fetch", f"http://{endpoint}"], "callgate-fetch: the same page by the address of the server")


if __name__ == "__main__":
    report.show(main)
