"""Host functions that a guest may call, gated one by one by name."""

from __future__ import annotations

from collections.abc import Callable

from callgate import VM
from callgate.scopes import Permissions
from examples import report

ALLOW_ONE_BINDING: Permissions = {
    "binding": {
        "default": "deny",
        "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["add"]}],
    },
}


def add(a: int, b: int) -> int:
    return a + b


def send_mail(to: str) -> str:
    return f"mail sent to {to}"


def main() -> None:
    bindings: dict[str, Callable[..., object]] = {"add": add, "send_mail": send_mail}

    report.title("Bindings registered and no policy for them: registering is the consent to call.", {})
    with VM(bindings=bindings) as vm:
        report.call("vm.call('send_mail', 'team@example.com')", lambda: vm.call("send_mail", "team@example.com"))

    report.title("One binding allowed:", ALLOW_ONE_BINDING)
    with VM(ALLOW_ONE_BINDING, bindings=bindings) as vm:
        report.call("vm.call('add', 2, 3)", lambda: vm.call("add", 2, 3))
        report.call("vm.call('send_mail', 'team@example.com')", lambda: vm.call("send_mail", "team@example.com"))


if __name__ == "__main__":
    report.show(main)
