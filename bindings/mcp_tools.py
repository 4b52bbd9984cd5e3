"""Mounts the tools of an MCP server as bindings: a process that the operator chose, outside the VM and its policy."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from callgate.bindings.binding import CALL_SECONDS, Binding
from callgate.bindings.event_loop import EventLoop
from callgate.scopes.errors import Unsupported

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool

_START_SECONDS = 30.0
_STOP_SECONDS = 15.0  # the protocol's own steps to end a server take up to six
_PAGES_MOST = 100  # of a listing
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


class McpToolError(RuntimeError):
    """An MCP tool reported an error; the message is the tool's."""


class McpTools:
    """The tools of the MCP server that *command* starts, as `VM(bindings=McpTools([...]))` or one of its groups.

    The binding scope judges each call by `group:tool`. What a tool then does happens in the server's process, which runs as the
    operator's, outside every VM. *name* is the group where the operator gives none (the server's own name by default), *env*
    is laid over the few variables that MCP servers are started with, *timeout* is that of each call in seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = CALL_SECONDS,
    ) -> None:
        is_list = isinstance(command, Sequence) and not isinstance(command, str)
        if not is_list or not command or not all(isinstance(word, str) for word in command):
            raise TypeError(f"the command of an MCP server is a list of words, the program first, not {command!r:.80}")
        self._command = tuple(command)
        self._name = name
        self._env = dict(env) if env is not None else None
        self._cwd = cwd
        self._timeout = timeout
        self._loop: EventLoop | None = None
        self._client: Client | None = None
        self._stop: asyncio.Event | None = None
        self._session: Future[None] | None = None

    @property
    def name(self) -> str:
        """The group's name; the server's own is known once it is open."""
        return self._name or ""

    def open(self) -> Mapping[str, Binding]:
        """Start the server and list its tools.

        `Unsupported` without the `mcp` package, and if the server cannot be started or does not answer.
        """
        try:
            import mcp  # noqa: F401 - whether it is there
        except ImportError:
            raise Unsupported("McpTools needs the package mcp, which is not installed: pip install 'callgate[mcp]'") from None
        if self._loop is not None:
            raise ValueError("these McpTools are those of another VM; make new ones for each")
        self._loop = EventLoop.join()
        ready: Future[list[Tool]] = Future()
        self._session = self._loop.submit(self._serve(ready))
        try:
            tools = ready.result(_START_SECONDS)
        except Exception as error:
            self.close()
            what = "did not answer in time" if isinstance(error, TimeoutError) else f"cannot be used: {_reason(error)}"
            raise Unsupported(f"the MCP server {self._command[0]!r} {what}") from error
        return {_NOT_IN_NAMES.sub("_", tool.name): self._binding(tool) for tool in tools}

    def close(self) -> None:
        """End the server and wait until it is gone."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        session, stop = self._session, self._stop
        if stop is not None:
            loop.asyncio.call_soon_threadsafe(stop.set)
        if session is not None and not loop.is_here:
            try:
                session.result(_STOP_SECONDS)
            except Exception:  # noqa: BLE001 - how a server ends is not the VM's matter; `open` told of a bad beginning
                session.cancel()
        loop.leave()
        loop.wait_if_over(_STOP_SECONDS)

    async def _serve(self, ready: Future[list[Tool]]) -> None:
        """Hold the session open: MCP's cancel scopes want to be left in the task that entered them."""
        from mcp import Client, StdioServerParameters, stdio_client

        self._stop = asyncio.Event()
        program, *arguments = self._command
        parameters = StdioServerParameters(command=program, args=arguments, env=self._env, cwd=self._cwd)
        try:
            async with Client(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)) as client:
                self._client = client
                info = client.server_info
                if self._name is None:
                    self._name = _NOT_IN_NAMES.sub("_", info.name if info is not None else "")[:64] or "mcp"
                ready.set_result(await _tools(client))
                await self._stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error if isinstance(error, Exception) else RuntimeError("the VM was not made"))
                return
            raise
        finally:
            self._client = None

    def _binding(self, tool: Tool) -> Binding:
        async def call(**arguments: Any) -> Any:
            client = self._client
            if client is None:
                raise McpToolError("the MCP server has ended")
            return _value(await client.call_tool(tool.name, arguments))

        # The server's schema: what of it is not understood here is for the server to check.
        schema = {"type": "object", **tool.input_schema}
        return Binding(call, description=tool.description or "", schema=schema, timeout=self._timeout, external=True)


async def _tools(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES_MOST):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _value(result: CallToolResult) -> Any:
    """What a tool gave, as JSON: its structured content, the text of its only block, or all blocks as MCP has them."""
    texts = [block.text for block in result.content if block.type == "text"]
    if result.is_error:
        raise McpToolError("\n".join(texts) or "the tool failed")
    if result.structured_content is not None:
        return result.structured_content
    if len(texts) == len(result.content) == 1:
        return texts[0]
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]


def _reason(error: BaseException) -> str:
    """The first error within groups of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
