"""MCP both ways, with the official package on the other side: a VM served to a client, a server's tools as bindings."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from callgate import McpTools, PermissionDenied, Unsupported
from tests.vm_fixtures import callgate

if TYPE_CHECKING:
    from mcp import Client

    from callgate import VM

pytest.importorskip("mcp", reason="the extra mcp is not installed: pip install 'callgate[mcp]'")

pytestmark = pytest.mark.vm

SERVER = Path(__file__).with_name("mcp_server.py")
Factory = Callable[..., "VM"]


def server(**options: Any) -> McpTools:
    return McpTools([sys.executable, str(SERVER)], **options)


# -- a server's tools as bindings ------------------------------------------------------------------


def test_tools_of_a_server_are_bindings_of_its_name(vm_factory: Factory) -> None:
    vm = vm_factory(bindings=server())
    tools = {tool["name"]: tool for tool in vm.bindings}
    assert list(tools) == ["test.server:add", "test.server:shout", "test.server:fail", "test.server:leave"]
    assert tools["test.server:add"]["external"] is True
    assert tools["test.server:add"]["inputSchema"]["properties"]["a"]["type"] == "integer"
    assert vm.call("test.server:add", a=2, b=3) == {"result": 5}
    script = "from callgate_guest import call; print(call('test.server:shout', text='hey'))"
    assert vm.run(["python3", "-c", script]).stdout == "HEY\n"
    assert vm.run("test.server shout --text hey").stdout == '{"ok": true, "result": "HEY"}\n'
    assert "on purpose" in vm.run("test.server fail").stderr
    done = vm.run("test.server add --a x --b 1")
    assert (done.returncode, done.stderr) == (1, "test.server: TypeError: arguments.a: must be an integer, not string\n")


def test_they_are_judged_one_by_one_and_mixed_with_others(vm_factory: Factory) -> None:
    policy = {"binding": {"default": "deny", "rules": [{"mode": "allow", "patterns": ["tools:shout", "own"]}]}}
    vm = vm_factory(policy, bindings={"tools": server(), "own": lambda: "mine"})
    assert vm.call("own") == "mine"
    assert vm.run("tools shout --text hey").returncode == 0
    assert vm.run("tools add --a 1 --b 1").returncode == 126
    with pytest.raises(PermissionDenied, match="binding://tools:add"):
        vm.call("tools:add", a=1, b=1)


def test_a_server_that_ends_fails_its_calls_and_nothing_else(vm_factory: Factory) -> None:
    vm = vm_factory(bindings={"tools": server(timeout=10), "own": lambda: "mine"})
    assert vm.run("tools leave").returncode == 1
    assert vm.run("tools shout --text hey").returncode == 1
    assert vm.run("own").stdout == '{"ok": true, "result": "mine"}\n'


@pytest.mark.parametrize("command", [["/no/such/program"], ["false"], [sys.executable, "-c", "print('no protocol', flush=True)"]])
def test_a_server_that_cannot_be_used_is_named_and_nothing_is_left(vm_factory: Factory, command: list[str]) -> None:
    with pytest.raises(Unsupported, match=f"the MCP server '{command[0]}' cannot be used"):
        vm_factory(bindings=McpTools(command))


def test_a_vm_that_cannot_be_made_ends_the_server(vm_factory: Factory) -> None:
    with pytest.raises(ValueError, match="user"):
        vm_factory(bindings=server(), user="No Such User")


def test_one_command_is_a_list_of_words() -> None:
    with pytest.raises(TypeError, match="list of words"):
        McpTools("server --stdio")


# -- a VM as a server ------------------------------------------------------------------------------

POLICY = {
    "fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": ["/home/agentos/vault/**"]}]},
    "network": "deny",
}


def session(policy: Path, work: Callable[[Client], Awaitable[None]]) -> None:
    import anyio
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "callgate", "mcp", "-p", str(policy)],
        env=dict(os.environ) | {"PYTHONWARNINGS": "default"},
    )

    async def run() -> None:
        async with Client(parameters) as client:
            await work(client)

    anyio.run(run)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(POLICY))
    return path


@pytest.mark.usefixtures("leaves_nothing")
def test_a_client_works_in_the_vm_and_is_refused_what_the_policy_refuses(policy: Path) -> None:
    seen: dict[str, Any] = {}

    async def work(client: Client) -> None:
        async def tool(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            return result.content[0].text if result.is_error else result.structured_content  # type: ignore[union-attr]

        seen["tools"] = {each.name for each in (await client.list_tools()).tools}
        seen["write"] = await tool("write_file", path="/home/agentos/a.txt", content="héllo")
        seen["read"] = await tool("read_file", path="/home/agentos/a.txt")
        seen["list"] = await tool("list_dir", path="/home/agentos")
        seen["run"] = await tool("run", argv=["sh", "-c", "cat a.txt; cat vault/key; exit 3"])
        seen["input"] = await tool("run", argv=["cat"], input="typed")
        seen["timeout"] = await tool("run", argv=["sh", "-c", "echo early; sleep 60"], timeout=1)
        seen["missing"] = await tool("read_file", path="/no/such")
        seen["refused"] = await tool("read_file", path="/home/agentos/vault/key")
        seen["refused write"] = await tool("write_file", path="/home/agentos/vault/key", content="x")
        seen["allowed"] = await tool("explain", scope="fs", operation="read", subject="/tmp/x")
        seen["denied"] = await tool("explain", scope="network", operation="http", subject="tcp://example.com:80")
        seen["nonsense"] = await tool("explain", scope="fs", operation="fly", subject="/tmp/x")

    session(policy, work)
    assert {"run", "read_file", "write_file", "list_dir", "explain"} <= seen["tools"]
    assert seen["write"] == {"bytes": 6}
    assert seen["read"] == {"content": "héllo"}
    assert seen["list"] == {"names": ["a.txt"]}
    refusal = "EACCES: permission denied, read '/home/agentos/vault/key': blocked by fs.read policy"
    assert (seen["run"]["returncode"], seen["run"]["stdout"], seen["run"]["denials"]) == (3, "héllo", [refusal])
    assert seen["input"]["stdout"] == "typed"
    assert "ended after 1 seconds; stdout so far: 'early\\n'" in seen["timeout"]
    assert "No such file or directory" in seen["missing"]
    assert "blocked by fs." in seen["refused"]
    assert "/home/agentos/vault/key': blocked by fs.write policy" in seen["refused write"]
    assert seen["allowed"]["allowed"] is True
    assert (seen["denied"]["allowed"], seen["denied"]["rule"]) == (False, "mode")
    assert "fly" in seen["nonsense"]


def test_mistakes_on_the_command_line_are_one_line_and_no_protocol(tmp_path: Path) -> None:
    done = callgate("mcp", "-p", str(tmp_path / "none.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("callgate: policy")
    done = callgate("mcp", "-p", "-")
    assert (done.returncode, done.stderr) == (2, "callgate: --policy -: standard input is the client's; name a file\n")
    done = callgate("mcp", "-p", '{"fs": "ask"}')
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_client_that_leaves_at_once_ends_the_vm() -> None:
    done = callgate("mcp")
    assert (done.returncode, done.stdout) == (0, "")
