"""A Python, a node and a shell program in a VM call the same host functions, and are refused the same one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypedDict

from callgate import VM, BindingContext
from callgate.scopes import Permissions
from examples import report

#: What runs in the VM: order.py with the module that lies there, order.js with the plain protocol, order.sh with the commands.
GUESTS = Path(__file__).parent / "guests"

#: A guest may look things up and order; it may not change prices.
POLICY: Permissions = {
    "network": "deny",
    "binding": {
        "default": "allow",
        "rules": [{"mode": "deny", "operations": ["*"], "patterns": ["shop:set_price"]}],
    },
}

PRICES = {"nut": 3, "bolt": 5, "washer": 1}


class Line(TypedDict):
    item: Literal["nut", "bolt", "washer"]
    count: int


def price(item: str) -> int:
    """The price of one item, in cents."""
    return PRICES[item]


def order(lines: list[Line], note: str = "") -> dict[str, object]:
    """Orders items; gives the total in cents."""
    return {"total": sum(PRICES[line["item"]] * line["count"] for line in lines), "note": note}


def set_price(item: str, cents: int) -> None:
    """Changes a price."""
    PRICES[item] = cents


async def stock(item: str) -> int:
    """How many are in stock: an async function, as a query of a database would be."""
    return len(item) * 10


def catalogue() -> Iterator[str]:
    """Every item, one after the other."""
    yield from PRICES


def caller(context: BindingContext) -> str:
    """What the host sees of its caller."""
    return context.program


#: What `VM(bindings=)` takes.
BINDINGS: Mapping[str, Callable[..., object] | Mapping[str, Callable[..., object]]] = {
    "shop": {"price": price, "order": order, "set_price": set_price, "stock": stock, "catalogue": catalogue},
    "caller": caller,
}


def main() -> None:
    files = {f"/home/agentos/{guest.name}": guest.read_bytes() for guest in GUESTS.iterdir() if guest.is_file()}
    report.title("Host functions called from three languages:", POLICY)
    with VM(POLICY, bindings=BINDINGS, files=files) as vm:
        report.run(vm, ["python3", "order.py"])
        if shutil.which("node", path="/usr/bin:/usr/local/bin") is not None:
            report.run(vm, ["node", "order.js"])
        report.run(vm, ["./order.sh"])


if __name__ == "__main__":
    report.show(main)
