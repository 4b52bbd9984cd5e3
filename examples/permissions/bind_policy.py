"""A policy bound to a VM, and the VM kept in a registry that starts and stops it with its siblings."""

from __future__ import annotations

from callgate import agentos, setup
from callgate.scopes import Permissions
from examples import report

PERMISSIONS: Permissions = {"network": "allow", "fs": "deny"}


def main() -> None:
    report.title("The network granted, the filesystem denied:", PERMISSIONS)
    registry = setup(use={"vm": agentos(permissions=PERMISSIONS)})
    registry.start()
    try:
        vm = registry["vm"]
        report.run(vm, ["python3", "-c", "print('programs still start: what they need for that is the runtime image')"])
        report.run(vm, ["cat", "/etc/hostname"])
        report.run(vm, ["ls", "."])
        report.run(vm, ["touch", "new"])
    finally:
        registry.stop()


if __name__ == "__main__":
    report.show(main)
