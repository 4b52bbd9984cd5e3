"""How tests of real VMs call bindings: from Python, node and by the command; and functions to call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callgate import VM

NODE_CALL = """
const net = require("net"), socket = net.connect("/run/callgate/host.sock");
const body = Buffer.from(JSON.stringify({id: 1, kind: "call", name: process.argv[1], arguments: JSON.parse(process.argv[2])}));
const head = Buffer.alloc(4);
head.writeUInt32BE(body.length);
socket.write(Buffer.concat([head, body]));
let data = Buffer.alloc(0);
socket.on("data", chunk => {
  data = Buffer.concat([data, chunk]);
  if (data.length >= 4 && data.length >= 4 + data.readUInt32BE(0)) {
    const reply = JSON.parse(data.subarray(4));
    console.log(JSON.stringify(reply.ok ? reply.result : reply.error.code));
    socket.end();
  }
});
"""

PYTHON_CALL = """
import json, sys
from callgate_guest import BindingError, call
try:
    print(json.dumps(call(sys.argv[1], **json.loads(sys.argv[2]))))
except PermissionError as error:
    print(json.dumps("EACCES"), error.errno, error, file=sys.stderr)
    sys.exit(126)
except BindingError as error:
    print(json.dumps(error.code), error, file=sys.stderr)
    sys.exit(1)
"""


class Canary:
    """A host function that notes when it was reached."""

    def __init__(self) -> None:
        self.reached = 0

    def __call__(self, path: str) -> str:
        self.reached += 1
        return f"removed {path}"


def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


def by_python(vm: VM, name: str, **arguments: Any) -> Any:
    return vm.run(["python3", "-c", PYTHON_CALL, name, json.dumps(arguments)], timeout=60)


def by_command(vm: VM, name: str, **arguments: Any) -> Any:
    return vm.run(["callgate-bindings", "call", name, "--json", json.dumps(arguments)], timeout=60)


def only(*names: str) -> dict[str, Any]:
    return {"binding": {"default": "deny", "rules": [{"mode": "allow", "operations": ["*"], "patterns": list(names)}]}}
