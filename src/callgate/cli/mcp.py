"""`callgate mcp`: serves one VM to an MCP client over standard input and output, its tools judged by the VM's policy."""

from __future__ import annotations

import argparse
import asyncio
import base64
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from callgate.cli.messages import SIGNALLED, UsageError, complain
from callgate.guest.relay import Relays
from callgate.guest.result import Timeout
from callgate.scopes.errors import Unsupported

if TYPE_CHECKING:
    from types import FrameType

    from mcp.server import MCPServer

    from callgate.guest.result import Result
    from callgate.kernel.audit import Denial
    from callgate.vm import VM

_Value = TypeVar("_Value")

#: Characters of one stream that a tool returns; an agent's context is not the place for more.
_OUTPUT_MOST = 200_000
#: Bytes of a file that `read_file` returns.
_FILE_MOST = 4 << 20
_RUN_SECONDS = 120.0
#: How long a server in the VM may take to listen, in seconds.
_FETCH_WAIT = 2.0
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def mcp(arguments: argparse.Namespace) -> int:
    """Serve until the client closes standard input or a signal comes; what still runs then is ended."""
    try:
        import mcp.server  # noqa: F401 - whether it is there
    except ImportError:
        raise Unsupported("this command needs the package mcp, which is not installed: pip install 'callgate[mcp]'") from None
    from callgate.cli.run import vm_of

    if arguments.policy == "-":
        raise UsageError("--policy -: standard input is the client's; name a file")
    if sys.stdin is None:
        raise UsageError("standard input is closed; an MCP client is expected there")
    try:
        os.write(1, b"")
    except OSError as error:
        raise UsageError(f"standard output: {error.strerror}; an MCP client is expected there") from None
    with vm_of(arguments) as vm:
        server = make_server(vm)
        with _ended_by_signals() as ending:
            try:
                server.run("stdio")
            except* BrokenPipeError:
                pass  # the client has left without a word
        vm.close()  # before anything is said: a tool's thread may still wait for something in it
        for line in _messages(vm.denials):
            complain(f"refused: {line}")
    return SIGNALLED + ending[0] if ending else 0


@contextmanager
def _ended_by_signals() -> Iterator[list[int]]:
    """Lets a signal end the input that the server reads, which ends its tools and the server; gives the list of such signals.

    The server reads standard input in a thread that nothing can interrupt. So it is given a pipe in its place, filled by a thread
    of ours that can be. A second signal ends this process where it stands: a client may have stopped to read what it is written.
    """
    received: list[int] = []
    reader, writer = os.pipe()
    relays = Relays()
    relays.input(os.dup(0), writer)
    os.dup2(reader, 0)
    os.close(reader)

    def end(number: int, _: FrameType | None) -> None:
        if received:
            os._exit(SIGNALLED + number)
        received.append(number)
        relays.finish()

    # What the caller chose to ignore (nohup) stays ignored.
    taken = {each: handler for each in _ENDING if (handler := signal.getsignal(each)) is not signal.SIG_IGN}
    try:
        for number in taken:
            signal.signal(number, end)
        yield received
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
        relays.finish()


def _judged(argv: str | Sequence[str]) -> list[str]:
    """The words that have *argv* started by a program in the VM.

    The first program of `vm.run` is the operator's and is not judged (SPEC 3.3). Here a model chose it, so the first is one of
    ours, and executes the model's as its own: under the same environment, with every word as it is. A string is a shell line.
    """
    words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
    if not words or not words[0]:
        raise ValueError("argv must name a program")
    if "=" in words[0] or words[0] == "-":  # words of env's own, even after --
        # The shell exports its working directory, which a policy on env may hold against the program.
        return ["/bin/sh", "-c", 'unset PWD OLDPWD; exec "$@"', "callgate", *words]
    return ["/usr/bin/env", "--", *words]


async def _run(vm: VM, argv: str | Sequence[str], *, input: str, cwd: str | None, timeout: float) -> Result[str]:  # noqa: A002
    """Runs *argv* to its end. If this is cancelled, everything it started is killed and gone first."""
    import anyio

    from callgate import aio

    running = asyncio.ensure_future(aio.VM.of(vm).run(_judged(argv), input=input, cwd=cwd, timeout=timeout))
    try:
        return await asyncio.shield(running)
    finally:
        # What anyio cancels it cancels again at every step, and so would not let the killing be waited for.
        if not running.done():
            running.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([running])


async def _in_thread(work: Callable[[], _Value]) -> _Value:
    """What *work* gives. If this is cancelled *work* goes on alone; no end of this process waits for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Value] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def begin() -> None:
        value, failure = None, None
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=begin, name="callgate-tool", daemon=True).start()
    return await done


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

    def failed(error: Exception) -> NoReturn:
        raise ToolError(str(error)) from None  # the text of SPEC section 4 where the policy refused

    @server.tool(structured_output=True)
    async def run(
        argv: list[str] | str,
        input: str = "",  # noqa: A002 - the name that `vm.run` has
        cwd: str | None = None,
        timeout: float = _RUN_SECONDS,
    ) -> dict[str, Any]:
        """Run a program in the VM to its end, or to its timeout in seconds. argv is a list of words, the program first, or one
        string for /bin/sh -c. Gives returncode (negative: the signal), stdout, stderr, truncated (whether there was more output),
        exceeded (names of the limits that ended it) and denials: what the policy refused it."""
        if not 0 < timeout < math.inf:
            raise ToolError(f"timeout: must be a number of seconds greater than 0, not {timeout:g}")
        try:
            done = await _run(vm, argv, input=input, cwd=cwd, timeout=timeout)
        except Timeout as error:
            raise ToolError(_so_far(error)) from None
        except (OSError, TypeError, ValueError) as error:
            failed(error)
        return {
            "returncode": done.returncode,
            "stdout": _shortened(done.stdout),
            "stderr": _shortened(done.stderr),
            "truncated": done.truncated or max(len(done.stdout), len(done.stderr)) > _OUTPUT_MOST,
            "exceeded": list(done.exceeded),
            "denials": _messages(done.denials),
        }

    @server.tool(structured_output=True)
    async def read_file(path: str) -> dict[str, str]:
        """Read a file of the VM. Gives content as text, or base64 where it is not UTF-8."""

        def read() -> bytes:
            size = vm.fs.stat(path).st_size
            if size > _FILE_MOST:
                raise ValueError(f"{path} has {size} bytes, which is more than {_FILE_MOST}; read parts of it with run")
            return vm.fs.read_bytes(path)

        try:
            content = await _in_thread(read)
        except (OSError, ValueError) as error:
            failed(error)
        try:
            return {"content": content.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(content).decode()}

    @server.tool(structured_output=True)
    async def write_file(path: str, content: str) -> dict[str, int]:
        """Write a text file of the VM, replacing what it held; the directory must exist. Gives the number of bytes written."""
        try:
            data = content.encode()
            await _in_thread(lambda: vm.fs.write_bytes(path, data))
        except (OSError, ValueError) as error:
            failed(error)
        return {"bytes": len(data)}

    @server.tool(structured_output=True)
    async def list_dir(path: str) -> dict[str, list[str]]:
        """List a directory of the VM."""
        try:
            return {"names": sorted(await _in_thread(lambda: vm.fs.listdir(path)))}
        except (OSError, ValueError) as error:
            failed(error)

    @server.tool(structured_output=True)
    async def fetch_port(port: int, path: str = "/", method: str = "GET", body: str = "") -> dict[str, Any]:
        """Make an HTTP request to a server that listens in the VM. Gives status, headers and body."""
        try:
            response = await _in_thread(lambda: vm.fetch(port, path, method, body=body or None, wait=_FETCH_WAIT))
        except (OSError, TypeError, ValueError) as error:
            refused = [denial for denial in vm.denials if denial.operation == "listen" and denial.subject.endswith(f":{port}")]
            if isinstance(error, ConnectionRefusedError) and refused:
                raise ToolError(f"{error}; a program was refused to listen there: {refused[-1].message}") from None
            failed(error)
        return {
            "status": response.status,
            "headers": dict(response.headers),
            "body": _shortened(response.text),
        }

    @server.tool(structured_output=True)
    def explain(scope: str, operation: str, subject: str) -> dict[str, Any]:
        """Say what the policy decides about an operation, without doing it. Scopes: fs, network, childProcess, process, env,
        binding. The subject is an absolute path without "..", host:port (for dns a host), a command, action:pid, a variable or a
        binding; for example fs, read, /etc/hosts. Only the policy is asked: links are not followed, and what a path leads to is
        what is judged when it is used. Gives allowed, rule and message."""
        try:
            verdict = vm.explain(scope, operation, subject)
        except ValueError as error:
            failed(error)
        return {"allowed": verdict.allowed, "rule": str(verdict.rule), "message": verdict.message}

    return server


def _messages(denials: Iterable[Denial]) -> list[str]:
    """What was refused, equal refusals once."""
    return list(dict.fromkeys(denial.message for denial in denials))


def _so_far(timeout: Timeout) -> str:
    """What is known of a run that took too long."""
    parts = [f"ended after {timeout.timeout:g} seconds", f"stdout so far: {_shortened(timeout.output or '')!r}"]
    if timeout.stderr:
        parts.append(f"stderr so far: {_shortened(str(timeout.stderr))!r}")
    return "; ".join([*parts, *(f"refused: {message}" for message in _messages(timeout.denials))])


def _shortened(text: str) -> str:
    return text if len(text) <= _OUTPUT_MOST else f"{text[:_OUTPUT_MOST]}\n[{len(text) - _OUTPUT_MOST} more characters]"
