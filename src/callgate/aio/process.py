"""A spawned program used from coroutines: `callgate.Process` with asyncio streams."""

from __future__ import annotations

import asyncio
import errno
import io
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from callgate.guest.arguments import seconds, stdin_bytes
from callgate.guest.relay import CHUNK
from callgate.guest.result import Timeout
from callgate.guest.streams import Capture, text_output

if TYPE_CHECKING:
    from callgate.guest.popen import MaybeNone
    from callgate.guest.popen import Process as SyncProcess
    from callgate.guest.result import Usage
    from callgate.kernel.audit import Denial


class Process:
    """A program in the VM, as `callgate.Process`, whose `stdin`, `stdout` and `stderr` are asyncio streams of bytes.

    As an asynchronous context manager it is waited for at the end of the block, and killed if an exception, a cancellation say,
    leaves the block. A cancelled `wait` or `communicate` alone leaves it running, as in asyncio.
    """

    def __init__(self, process: SyncProcess[bytes], decode: Callable[[bytes], Any]) -> None:
        self._process = process
        self._decode = decode
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._transports: list[asyncio.BaseTransport] = []
        self.args = process.args
        self.pid = process.pid
        self.stdin: asyncio.StreamWriter | MaybeNone = None
        self.stdout: asyncio.StreamReader | MaybeNone = None
        self.stderr: asyncio.StreamReader | MaybeNone = None
        self.truncated = False

    @classmethod
    async def of(cls, process: SyncProcess[bytes], *, text: bool) -> Self:
        """The twin of a process that was spawned with pipes of bytes, which is this one's from now on."""
        made = cls(process, text_output if text else bytes)
        try:
            await made._connect()
        except BaseException:
            process.kill()
            made._close_streams()
            raise
        return made

    async def _connect(self) -> None:
        process = self._process
        if (writer := process.stdin) is not None:
            process.stdin = None
            reading = asyncio.StreamReaderProtocol(asyncio.StreamReader())
            transport, protocol = await self._loop.connect_write_pipe(lambda: reading, _raw(writer))
            self._transports.append(transport)
            self.stdin = asyncio.StreamWriter(transport, protocol, None, self._loop)
        stdout, stderr = process.stdout, process.stderr
        process.stdout = process.stderr = None
        self.stdout = await self._read_from(stdout)
        self.stderr = await self._read_from(stderr)
        process.hold()
        if process.over:
            process.release()
            self._over.set()
        else:
            self._loop.add_reader(process.fileno(), self._hear)

    async def _read_from(self, file: Any) -> asyncio.StreamReader | None:
        if file is None:
            return None
        reader = asyncio.StreamReader()
        transport, _ = await self._loop.connect_read_pipe(lambda: _Reading(reader), _raw(file))
        self._transports.append(transport)
        return reader

    def _hear(self) -> None:
        self._process.poll()
        if self._process.over:
            self._loop.remove_reader(self._process.fileno())
            self._process.release()
            self._over.set()

    # -- what is known of it -----------------------------------------------------------------------------------------------

    @property
    def returncode(self) -> int | None:
        """None while it is not known to have ended; negative for a signal."""
        return self._process.returncode

    @property
    def denials(self) -> tuple[Denial, ...]:
        """What the program, or what it started, was refused so far."""
        return self._process.denials

    @property
    def usage(self) -> Usage:
        """What it used; zeros until it has ended."""
        return self._process.usage

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Names of the VM's limits for which it was ended."""
        return self._process.exceeded

    @property
    def failure(self) -> str:
        """Why the program could not be executed after all, as one line; empty if it could."""
        return self._process.failure

    # -- waiting -------------------------------------------------------------------------------------------------------------

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until the program, and everything it started, has ended; its return code. `Timeout` leaves it running."""
        timeout = seconds(timeout, "timeout", past=True)
        try:
            async with asyncio.timeout(timeout):
                await self._over.wait()
        except TimeoutError:
            raise Timeout(self.args, timeout or 0.0) from None
        return await asyncio.to_thread(self._process.wait) if self._process.relayed else self._process.wait()

    async def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002
        """Feed *input* (text or bytes), read both outputs to their end and wait; the VM's limit says how much of each is kept."""
        timeout, data = seconds(timeout, "timeout", past=True), stdin_bytes(input)
        limit = self._process.output_limit
        captures = Capture(limit), Capture(limit)
        try:
            async with asyncio.timeout(timeout):
                readers = (self.stdout, captures[0]), (self.stderr, captures[1])
                await asyncio.gather(self._feed(data), *(_collect(reader, into) for reader, into in readers), self._over.wait())
        except TimeoutError:
            out, err = (self._decode(capture.content()) for capture in captures)
            raise Timeout(self.args, timeout or 0.0, out, err) from None
        await self.wait()
        self.truncated = any(capture.truncated for capture in captures)
        return self._decode(captures[0].content()), self._decode(captures[1].content())

    async def _feed(self, data: bytes) -> None:
        if self.stdin is None:
            if data:
                raise ValueError("input was given, and stdin is not PIPE")
            return
        try:
            self.stdin.write(data)
            await self.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # the program does not want the rest
        self.stdin.close()

    # -- acting on it --------------------------------------------------------------------------------------------------------

    def send_signal(self, signum: int, *, group: bool = False) -> None:
        """Send a signal to the program, or with *group* to its whole process group. Nothing happens if it has ended."""
        self._process.send_signal(signum, group=group)

    def terminate(self) -> None:
        """Send SIGTERM to the program."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the program and everything it started."""
        self._process.kill()

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size."""
        self._process.resize(rows, columns)

    async def close(self) -> None:
        """Kill the program if it still runs, wait until it is gone, and close its streams."""
        if not self._process.over:
            self.kill()
            await self._over.wait()
        self._close_streams()
        await asyncio.to_thread(self._process.close)

    def _close_streams(self) -> None:
        for transport in self._transports:
            transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            if self.stdin is not None:
                self.stdin.close()
            self._process.hang_up()
            await self.wait()
        await self.close()


class _Reading(asyncio.StreamReaderProtocol):
    """Feeds a reader; that no program holds a terminal any more is its end, not an error."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None if isinstance(exc, OSError) and exc.errno == errno.EIO else exc)


async def _collect(reader: asyncio.StreamReader | None, into: Capture) -> None:
    while reader is not None and (data := await reader.read(CHUNK)):
        into.add(data)


def _raw(file: Any) -> io.FileIO:
    """The unbuffered file below a buffered one that nobody has used yet."""
    raw = file.detach()
    assert isinstance(raw, io.FileIO)
    return raw
