"""Somebody is asked before a host function runs; here it is a function that plays a person who lets small payments pass."""

from __future__ import annotations

from callgate import VM, ApprovalRequest, Approvals
from callgate.scopes import Permissions
from examples import report

#: The policy is the first gate: what it refuses, nobody is asked about.
POLICY: Permissions = {
    "network": "deny",
    "binding": {
        "default": "deny",
        "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["balance", "pay"]}],
    },
}


def balance() -> int:
    """What is left, in cents."""
    return 500


def pay(to: str, cents: int) -> str:
    """Pays somebody."""
    return f"{cents} cents paid to {to}"


def close_account() -> str:
    """Nothing for a guest, whoever says yes."""
    return "closed"


def main() -> None:
    def ask(request: ApprovalRequest) -> None:
        answer = "allow_once" if request.arguments["cents"] <= 200 else "reject_once"
        print(f"    asked    {request}: {answer}")
        approvals.answer(request.id, answer)

    report.title("A host function that asks first:", POLICY)
    with Approvals("ask", on_request=ask) as approvals:
        guarded = {"pay": approvals.guard(pay), "close_account": approvals.guard(close_account)}
        with VM(POLICY, bindings={"balance": balance, **guarded}) as vm:
            report.run(vm, "balance")
            report.run(vm, "pay --to bakery --cents 120")
            report.run(vm, "pay --to casino --cents 90000")
            report.run(vm, "close_account")


if __name__ == "__main__":
    report.show(main)
