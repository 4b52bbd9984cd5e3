"""MCP both ways, with the official package on the other side: a VM served to a client, a server's tools as bindings."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
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


def session(policy: Path | str, work: Callable[[Client], Awaitable[None]]) -> None:
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


async def call(client: Client, name: str, **arguments: Any) -> Any:
    """What a tool gave, or the text of its error."""
    result = await client.call_tool(name, arguments)
    return result.content[0].text if result.is_error else result.structured_content  # type: ignore[union-attr]


def results(policy: Path | str, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What each call gave, one after the other in one VM."""
    seen: list[Any] = []

    async def work(client: Client) -> None:
        for name, arguments in calls:
            seen.append(await call(client, name, **arguments))

    session(policy, work)
    return seen


def runs(policy: Path | str, *argv: Any, **options: Any) -> list[Any]:
    return results(policy, *[("run", {"argv": each, **options}) for each in argv])


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(POLICY))
    return path


@pytest.mark.usefixtures("leaves_nothing")
def test_a_client_works_in_the_vm_and_is_refused_what_the_policy_refuses(policy: Path) -> None:
    seen: dict[str, Any] = {}

    async def work(client: Client) -> None:
        tool = functools.partial(call, client)
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
        seen["no path"] = await tool("explain", scope="fs", operation="read", subject="vault/key")
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
    assert "absolute path" in seen["no path"]
    assert "fly" in seen["nonsense"]


DENY_LS = json.dumps(
    {"childProcess": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "patterns": ["ls", "a=b", "-"]}]}}
)


@pytest.mark.usefixtures("leaves_nothing")
def test_the_program_that_a_model_names_is_judged() -> None:
    for refused in runs(DENY_LS, ["ls", "-d", "/"], ["/bin/ls"], "exec ls -d /", ["a=b"], ["-"]):
        assert refused["returncode"] == 126
        assert "ermission denied" in refused["stderr"]
        assert any("blocked by childProcess.spawn policy" in message for message in refused["denials"]), refused


@pytest.mark.usefixtures("leaves_nothing")
def test_a_policy_that_starts_nothing_starts_nothing_for_a_model() -> None:
    word, line = runs('{"childProcess": "deny"}', ["true"], "echo builtin")
    assert (word["returncode"], line["returncode"], line["stdout"]) == (126, 126, "")
    assert word["denials"]
    assert line["denials"]


@pytest.mark.usefixtures("leaves_nothing")
def test_words_reach_the_program_as_they_are() -> None:
    odd = ["printf", "[%s]", "", "a b", "$HOME", "'\"", "-c", "x=y", "*", "é\n"]
    plain, *others = runs(
        '{"env": {"default": "deny", "rules": [{"mode": "allow", "operations": ["read"], "patterns": ["*"]}]}}',
        odd,
        ["-c", "echo taken for an option"],
        ["--help"],
        ["cd", "/"],
        ["no=such", "x"],
        ["-"],
        ["no-such-program"],
    )
    assert (plain["returncode"], plain["stdout"]) == (0, "".join(f"[{word}]" for word in odd[2:]))
    for missing in others:  # "cd" is a builtin of shells, and no program
        assert (missing["returncode"], missing["stdout"]) == (127, "")
        assert "ot found" in missing["stderr"] or "No such file" in missing["stderr"]
    assert "no-such-program" in others[-1]["stderr"]


@pytest.mark.usefixtures("leaves_nothing")
def test_a_program_is_started_under_the_variables_of_the_vm_alone() -> None:
    (seen,) = runs("{}", ["python3", "-c", "import os; print(sorted(os.environ))"])
    from callgate import VM

    with VM() as vm:
        assert seen["stdout"] == vm.run(["python3", "-c", "import os; print(sorted(os.environ))"]).stdout


@pytest.mark.usefixtures("leaves_nothing")
def test_a_string_is_a_shell_line_and_a_result_says_what_is_missing_of_it() -> None:
    line, much, ended = runs("{}", "echo $((6 * 7)); exit 3", "head -c 300000 /dev/zero | tr '\\0' x", "kill -XFSZ $$")
    assert (line["returncode"], line["stdout"], line["truncated"], line["exceeded"]) == (3, "42\n", False, [])
    assert much["truncated"] is True
    assert "[100000 more characters]" in much["stdout"]
    assert ended["exceeded"] == ["file_size"]


@pytest.mark.usefixtures("leaves_nothing")
def test_what_cannot_be_run_is_an_error_of_the_tool(policy: Path) -> None:
    run: Callable[..., dict[str, Any]] = functools.partial(dict, argv=["true"])
    empty, nameless, past, none, nowhere = results(
        policy,
        ("run", {"argv": []}),
        ("run", {"argv": ["", "x"]}),
        ("run", run(timeout=-1)),
        ("run", run(timeout=0)),
        ("run", run(cwd="/no/such")),
    )
    assert "argv must name a program" in empty
    assert "argv must name a program" in nameless
    assert "timeout: must be a number of seconds greater than 0, not -1" in past
    assert "timeout: must be" in none
    assert "/no/such" in nowhere


@pytest.mark.usefixtures("leaves_nothing")
def test_a_timeout_tells_what_was_written_and_refused(policy: Path) -> None:
    (text,) = runs(policy, "echo out; echo err >&2; cat vault/key; sleep 60", timeout=2)
    assert "ended after 2 seconds; stdout so far: 'out\\n'; stderr so far: 'err\\n" in text
    assert "refused: EACCES: permission denied, read '/home/agentos/vault/key': blocked by fs.read policy" in text


@pytest.mark.usefixtures("leaves_nothing")
def test_a_server_that_was_refused_its_port_is_told_of(policy: Path) -> None:
    listen = "import socket; socket.create_server(('127.0.0.1', 8080))"
    plain, _, refused = results(
        policy,
        ("fetch_port", {"port": 8080}),
        ("run", {"argv": ["python3", "-c", listen]}),
        ("fetch_port", {"port": 8080}),
    )
    assert "refused to listen" not in plain
    assert "a program was refused to listen there: EACCES: permission denied, tcp://127.0.0.1:8080" in refused


BUSY = "touch busy; setsid sleep 600 & sleep 600"


async def _until_busy(client: Client) -> None:
    while "busy" not in (await call(client, "list_dir", path="/home/agentos"))["names"]:
        pass


@pytest.mark.usefixtures("leaves_nothing")
def test_a_cancelled_call_ends_what_it_started(policy: Path) -> None:
    import anyio

    before: list[str] = []
    after: list[str] = []

    async def work(client: Client) -> None:
        async def others() -> str:
            script = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p; done"
            return str((await call(client, "run", argv=script))["stdout"])

        async with anyio.create_task_group() as group:
            group.start_soon(functools.partial(call, client, "run", argv=BUSY))
            await _until_busy(client)
            before.append(await others())
            group.cancel_scope.cancel()
        # The client hears nothing more of a cancelled call, and the programs may be gone a moment later.
        for _ in range(1000):
            after[:] = [await others()]
            if "sleep 600" not in after[0]:
                break

    session(policy, work)
    assert "sleep 600" in before[0]
    assert after
    assert "sleep 600" not in after[0]


def _serving(policy: Path) -> tuple[subprocess.Popen[bytes], Callable[..., Any]]:
    """The command, and a function that sends it a request and with *answered* gives the answer."""
    server = subprocess.Popen([sys.executable, "-m", "callgate", "mcp", "-p", str(policy)], stdin=-1, stdout=-1, stderr=-1)
    assert server.stdin is not None
    assert server.stdout is not None
    stdin, stdout = server.stdin, server.stdout

    def request(method: str, *, answered: bool = True, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        stdin.write(json.dumps(message).encode() + b"\n")
        stdin.flush()
        return json.loads(stdout.readline()) if answered else None

    request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"})
    stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    return server, request


def _make_busy(request: Callable[..., Any]) -> None:
    request("tools/call", answered=False, name="run", arguments={"argv": BUSY})
    while "busy" not in str(request("tools/call", name="list_dir", arguments={"path": "/home/agentos"})):
        pass


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in a run"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_and_its_tools(policy: Path, number: signal.Signals, busy: bool) -> None:
    server, request = _serving(policy)
    if busy:
        _make_busy(request)
    server.send_signal(number)
    _, complaints = server.communicate(timeout=60)
    assert (server.returncode, complaints) == (128 + number, b"")


@pytest.mark.usefixtures("leaves_nothing")
def test_a_client_that_leaves_ends_its_tools_and_the_server(policy: Path) -> None:
    server, request = _serving(policy)
    _make_busy(request)
    _, complaints = server.communicate(timeout=60)  # closes its input; the program would run for ten minutes
    assert (server.returncode, complaints) == (0, b"")


@pytest.mark.parametrize("option", [["--timeout", "3"], ["--json"], ["--audit", "/tmp/x"]])
def test_options_of_one_program_are_none_of_a_server(option: list[str]) -> None:
    done = callgate("mcp", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unrecognized arguments" in done.stderr
    assert option[0] not in callgate("mcp", "--help").stdout
    assert option[0] in callgate("run", "--help").stdout


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
