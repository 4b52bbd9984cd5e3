"""A small MCP server for the tests, on standard input and output, made with the official package."""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("test.server", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


@server.tool(structured_output=False)
def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ToolError("on purpose")


@server.tool()
def leave() -> str:
    """Ends the server."""
    sys.stdout.flush()
    import os

    os._exit(3)


if __name__ == "__main__":
    server.run("stdio")
