"""Policies for one scope each, put together into one, and the refusals of all of them in one place."""

from __future__ import annotations

from callgate import agentos, setup
from callgate.scopes import Permissions
from examples import report
from examples.permissions.allow_one_binding import ALLOW_ONE_BINDING, add, send_mail
from examples.permissions.fs_rules import DENY_VAULT
from examples.permissions.server import ALLOW_ONE_HOST

PERMISSIONS: Permissions = {**DENY_VAULT, **ALLOW_ONE_HOST, **ALLOW_ONE_BINDING}


def main() -> None:
    report.title("The vault denied, one host and one binding allowed:", PERMISSIONS)
    vm = agentos(
        permissions=PERMISSIONS,
        files={"/home/agentos/vault/key": "s3cret", "/home/agentos/notes.txt": "remember the milk"},
        bindings={"add": add, "send_mail": send_mail},
    )
    registry = setup(use={"vm": vm})
    registry.start()
    try:
        report.run(vm, ["cat", "notes.txt"])
        report.run(vm, ["cat", "vault/key"])
        report.run(vm, ["callgate-fetch", "http://example.com"])
        report.call("vm.call('add', 2, 3)", lambda: vm.call("add", 2, 3))
        report.call("vm.call('send_mail', 'x@example.com')", lambda: vm.call("send_mail", "x@example.com"))
        print("\n  All that this VM refused (vm.denials):")
        for denial in vm.denials:
            print(f"    {denial}")
    finally:
        registry.stop()


if __name__ == "__main__":
    report.show(main)
