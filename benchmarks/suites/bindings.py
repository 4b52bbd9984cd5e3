"""A guest's call of a host function, against the bare exchange of as many bytes between the same two processes."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.bench import Bench
from benchmarks.report import SuiteResult
from callgate import VM, HostDir

CALLERS: Final = (1, 8, 64)
CALLS: Final = 4000  # of all callers together, in one sample
AGAINST_ECHO: Final = 3.0
CALL: Final = "call of add"
ECHO: Final = "echo"

_FOLDER: Final = "/bench"

#: Forks the callers, has them begin together, and prints what they took: each is warm, a Python that has called before.
_GUEST: Final = """
import json, os, sys, time
way, callers, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if way == "call":
    from callgate_guest import call
    def connect():
        return lambda: call("add", 2, 3)
else:
    import socket
    message = b"x" * 60
    def connect():
        s = socket.socket(socket.AF_UNIX)
        s.connect("/bench/echo.sock")
        def exchange():
            s.sendall(message)
            s.recv(8192)
        return exchange
ready, go = os.pipe(), os.pipe()
pipes = []
for _ in range(callers):
    reader, writer = os.pipe()
    if os.fork() == 0:
        once = connect()
        for _ in range(20):
            once()
        os.write(ready[1], b".")
        os.read(go[0], 1)
        times = []
        for _ in range(calls // callers):
            before = time.perf_counter()
            once()
            times.append(time.perf_counter() - before)
        with open(writer, "w") as out:
            json.dump(times, out)
        os._exit(0)
    os.close(writer)
    pipes.append(reader)
for _ in range(callers):
    os.read(ready[0], 1)
before = time.perf_counter()
os.write(go[1], b"." * callers)
times = []
for reader in pipes:
    with open(reader) as result:
        times += json.load(result)
took = time.perf_counter() - before
times.sort()
print(json.dumps([times[len(times) // 2], times[len(times) * 99 // 100], len(times) / took]))
"""


def add(a: int, b: int) -> int:
    return a + b


def measure(bench: Bench) -> SuiteResult:
    """Microseconds of a round trip as a guest's Python sees it, and how many there are in a second."""
    result = SuiteResult("bindings", "a guest's call of a host function")
    folder = bench.scratch / "bindings"
    folder.mkdir()
    folder.chmod(0o777)
    with _echo(folder / "echo.sock"), VM(bindings={"add": add}, mounts={_FOLDER: HostDir(folder, mode="rw")}) as vm:
        for callers in CALLERS:
            figures: dict[str, list[list[float]]] = {CALL: [], ECHO: []}
            calls = max(bench.count(CALLS), callers)
            variants = {name: _sampler(vm, way, callers, calls, figures[name]) for name, way in ((CALL, "call"), (ECHO, "echo"))}
            bench.interleave(variants, rounds=9, warm_up=1)
            case = result.case(f"{callers} caller{'s' if callers > 1 else ''}")
            measured = {name: taken[1:] for name, taken in figures.items()}  # without the warm-up
            for index, (what, unit, scale) in enumerate(
                (("p50", "us", 1e6), ("p99", "us", 1e6), ("calls per second", "/s", 1.0))
            ):
                case.add(
                    {f"{name}, {what}": [each[index] for each in taken] for name, taken in measured.items()}, unit, scale=scale
                )
            case.compare(f"{CALL}, p50", f"{ECHO}, p50", target=AGAINST_ECHO)
            case.compare(f"{CALL}, p99", f"{ECHO}, p99")
            case.compare(f"{ECHO}, calls per second", f"{CALL}, calls per second", target=AGAINST_ECHO)
    return result


def _sampler(vm: VM, way: str, callers: int, calls: int, taken: list[list[float]]) -> Callable[[], float]:
    def sample() -> float:
        done = vm.run(["python3", "-c", _GUEST, way, str(callers), str(calls)], check=True)
        taken.append(json.loads(done.stdout))
        return taken[-1][0]

    return sample


@contextmanager
def _echo(path: Path) -> Iterator[None]:
    """A thread for each connection that sends back what it gets: the least that a Python host can do."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(8192):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        path.chmod(0o777)
        listener.listen(128)
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
