"""The tools of an MCP server as bindings: the guest calls them like host functions, and the binding scope gates each.

Needs the package mcp: pip install 'callgate[mcp]'. What a tool does happens in the server's process, outside the VM.
"""

from __future__ import annotations

import importlib.util
import sys

from callgate import VM, McpTools
from callgate.scopes import Permissions
from examples import report

POLICY: Permissions = {
    "binding": {"default": "deny", "rules": [{"mode": "allow", "operations": ["*"], "patterns": ["notes:search"]}]},
}

#: A server of two tools, as a program of its own.
SERVER = """
from mcp.server import MCPServer
server = MCPServer("notes", log_level="ERROR")
NOTES = ["buy nuts", "sell bolts"]

@server.tool()
def search(text: str) -> list[str]:
    "Finds notes that hold a text."
    return [note for note in NOTES if text in note]

@server.tool()
def delete(text: str) -> int:
    "Deletes notes that hold a text."
    before = len(NOTES)
    NOTES[:] = [note for note in NOTES if text not in note]
    return before - len(NOTES)

server.run("stdio")
"""


def main() -> None:
    if importlib.util.find_spec("mcp") is None:
        print("\n  skipped: the package mcp is not installed (pip install 'callgate[mcp]')")
        return
    report.title("Tools of an MCP server, one of them allowed:", POLICY)
    with VM(POLICY, bindings=McpTools([sys.executable, "-c", SERVER])) as vm:
        report.run(vm, "notes search --text nuts")
        report.run(vm, "notes delete --text nuts")


if __name__ == "__main__":
    report.show(main)
