"""Every example in turn: real programs in VMs, and what each policy lets them do.

python -m examples.demo
"""

from __future__ import annotations

import sys

from callgate import CallgateError
from examples import report
from examples.bindings import ask_first, mcp_server_as_bindings, three_guests
from examples.network import guest_server, operator_openings
from examples.permissions import allow_one_binding, bind_policy, combine, fs_rules, server

PARTS = (
    server,
    bind_policy,
    fs_rules,
    allow_one_binding,
    combine,
    operator_openings,
    guest_server,
    three_guests,
    ask_first,
    mcp_server_as_bindings,
)


def main() -> int:
    for part in PARTS:
        name = part.__name__.replace(".", "/") + ".py"
        print(f"\n{name}\n{(part.__doc__ or '').strip()}")
        try:
            part.main()
        except CallgateError as error:
            print(f"callgate: {error}\nRun `callgate doctor` to see what this host lacks.", file=sys.stderr)
            return 1
    print(f"\n{report.TALLY.worked} programs and calls worked; {report.TALLY.failed} failed, refused what they asked for.")
    return 0


if __name__ == "__main__":
    report.show(main)
