"""`callgate mcp`: serves one VM to an MCP client over standard input and output, its tools judged by the VM's policy."""

from __future__ import annotations

import argparse
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from callgate.cli.messages import UsageError, complain
from callgate.guest.result import Timeout
from callgate.scopes.errors import Unsupported

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from callgate.vm import VM

#: Characters of one stream that a tool returns; an agent's context is not the place for more.
_OUTPUT_MOST = 200_000
#: Bytes of a file that `read_file` returns.
_FILE_MOST = 4 << 20
_RUN_SECONDS = 120.0
#: How long a server in the VM may take to listen, in seconds.
_FETCH_WAIT = 2.0


def mcp(arguments: argparse.Namespace) -> int:
    """Serve until the client closes standard input."""
    try:
        import mcp.server  # noqa: F401 - whether it is there
    except ImportError:
        raise Unsupported("this command needs the package mcp, which is not installed: pip install 'callgate[mcp]'") from None
    from callgate.cli.run import vm_of

    if arguments.policy == "-":
        raise UsageError("--policy -: standard input is the client's; name a file")
    with vm_of(arguments) as vm:
        # Once the client is gone nobody reads the answer to what still runs; ending the VM ends that as well.
        with suppress(KeyboardInterrupt):
            make_server(vm).run("stdio")
        for line in {denial.message: None for denial in vm.denials}:
            complain(f"refused: {line}")
    return 0


def make_server(vm: VM) -> MCPServer[Any]:
    """The MCP server of a VM. Each tool does what a program in the VM could do, and is refused what that would be."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    from callgate import __version__

    server: MCPServer[Any] = MCPServer(
        "callgate",
        version=__version__,
        instructions="Runs programs and reads and writes files in a private VM. What its permission policy refuses fails with "
        "EACCES; explain says in advance what would be allowed, and why.",
        log_level="ERROR",
    )

    def failed(error: OSError) -> ToolError:
        return ToolError(str(error))  # the text of SPEC section 4 where the policy refused

    @server.tool(structured_output=True)
    def run(
        argv: list[str],
        input: str = "",  # noqa: A002 - the name that `vm.run` has
        cwd: str | None = None,
        timeout: float = _RUN_SECONDS,
    ) -> dict[str, Any]:
        """Run a program in the VM to its end, or to its timeout in seconds. Gives returncode (negative: the signal), stdout,
        stderr and denials: what the policy refused it. For a shell line pass ["sh", "-c", "..."]."""
        try:
            done = vm.run(argv, input=input, cwd=cwd, timeout=timeout)
        except Timeout as error:
            raise ToolError(f"ended after {timeout:g} seconds; stdout so far: {_shortened(error.output or '')!r}") from None
        except OSError as error:
            raise failed(error) from None
        except (TypeError, ValueError) as error:
            raise ToolError(str(error)) from None
        return {
            "returncode": done.returncode,
            "stdout": _shortened(done.stdout),
            "stderr": _shortened(done.stderr),
            "denials": list(dict.fromkeys(denial.message for denial in done.denials)),
        }

    @server.tool(structured_output=True)
    def read_file(path: str) -> dict[str, str]:
        """Read a file of the VM. Gives content as text, or base64 where it is not UTF-8."""
        try:
            size = vm.fs.stat(path).st_size
            if size > _FILE_MOST:
                raise ToolError(f"{path} has {size} bytes, which is more than {_FILE_MOST}; read parts of it with run")
            content = vm.fs.read_bytes(path)
        except OSError as error:
            raise failed(error) from None
        except ValueError as error:
            raise ToolError(str(error)) from None
        try:
            return {"content": content.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(content).decode()}

    @server.tool(structured_output=True)
    def write_file(path: str, content: str) -> dict[str, int]:
        """Write a text file of the VM, replacing what it held; the directory must exist. Gives the number of bytes written."""
        data = content.encode()
        try:
            vm.fs.write_bytes(path, data)
        except OSError as error:
            raise failed(error) from None
        except ValueError as error:
            raise ToolError(str(error)) from None
        return {"bytes": len(data)}

    @server.tool(structured_output=True)
    def list_dir(path: str) -> dict[str, list[str]]:
        """List a directory of the VM."""
        try:
            return {"names": sorted(vm.fs.listdir(path))}
        except OSError as error:
            raise failed(error) from None
        except ValueError as error:
            raise ToolError(str(error)) from None

    @server.tool(structured_output=True)
    def fetch_port(port: int, path: str = "/", method: str = "GET", body: str = "") -> dict[str, Any]:
        """Make an HTTP request to a server that listens in the VM. Gives status, headers and body."""
        try:
            response = vm.fetch(port, path, method, body=body or None, wait=_FETCH_WAIT)
        except OSError as error:
            raise failed(error) from None
        except (TypeError, ValueError) as error:
            raise ToolError(str(error)) from None
        return {
            "status": response.status,
            "headers": dict(response.headers),
            "body": _shortened(response.text),
        }

    @server.tool(structured_output=True)
    def explain(scope: str, operation: str, subject: str) -> dict[str, Any]:
        """Say what the policy decides about an operation, without doing it. Scopes: fs, network, childProcess, process, env,
        binding; for example fs, read, /etc/hosts. Gives allowed, rule and message."""
        try:
            verdict = vm.explain(scope, operation, subject)
        except ValueError as error:
            raise ToolError(str(error)) from None
        return {"allowed": verdict.allowed, "rule": str(verdict.rule), "message": verdict.message}

    return server


def _shortened(text: str) -> str:
    return text if len(text) <= _OUTPUT_MOST else f"{text[:_OUTPUT_MOST]}\n[{len(text) - _OUTPUT_MOST} more characters]"
