"""A connection that the policy allows, to a server of the host reached by name, against the same over the bare loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.bench import Bench, own_figure
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant
from callgate import VM

NAME: Final = "server.example"
LOOPBACK: Final = "127.0.0.1"
POLICY: Final = {"network": {"default": "deny", "rules": [{"mode": "allow", "patterns": [NAME]}]}}
PROGRAM: Final = "/opt/network"
#: Of the time that the same takes on the bare host, or on it with three round trips of a notification.
STREAM_AT_MOST: Final = 1 / 0.97
ROUND_TRIPS: Final = 3
OURS, BARE, TRIP, ALLOWANCE = "in a VM", "bare", "round trip", "bare and 3 round trips"


def measure(bench: Bench) -> SuiteResult:
    """Microseconds; the server and what the client does are the same program everywhere."""
    result = SuiteResult("network", "a connection by name to a server of the host")
    with _server(bench) as port, VM(POLICY, hosts={NAME: f"{LOOPBACK}:{port}"}, files=_files(bench)) as vm:
        address = vm.run(["getent", "ahostsv4", NAME], check=True).stdout.split()[0]

        def ours(operation: str, count: int) -> Variant:
            def sample() -> float:
                return float(vm.run([PROGRAM, operation, str(count), address, str(port)], check=True).stdout)

            return sample

        def bare(operation: str, count: int) -> Variant:
            return own_figure([bench.programs["network"], operation, str(count), LOOPBACK, str(port)])

        for operation, title, full in (
            ("request", "64 bytes there and back", 5000),
            ("stream", "a mebibyte there and back", 200),
        ):
            count = bench.count(full)
            case = result.case(title)
            case.add(bench.interleave({OURS: ours(operation, count), BARE: bare(operation, count)}, rounds=25), "us", scale=1e-3)
            case.compare(OURS, BARE, target=STREAM_AT_MOST)

        count = bench.count(500)
        trips = bench.count(5000)
        taken = bench.interleave(
            {OURS: ours("connect", count), BARE: bare("connect", count), TRIP: ours("refused", trips)}, rounds=25
        )
        taken[ALLOWANCE] = [one + ROUND_TRIPS * trip for one, trip in zip(taken[BARE], taken[TRIP], strict=True)]
        case = result.case("connect")
        case.add(taken, "us", scale=1e-3)
        case.compare(OURS, ALLOWANCE, target=1.0)
        case.compare(OURS, BARE)

        count = bench.count(5000)
        case = result.case("64 bytes there and back, sent with sendmsg, which is made on behalf")
        case.add(bench.interleave({OURS: ours("message", count), BARE: bare("message", count)}, rounds=25), "us", scale=1e-3)
        case.compare(OURS, BARE)
    return result


def _files(bench: Bench) -> dict[str, bytes | str]:
    return {PROGRAM: bench.programs["network"].read_bytes()}


@contextmanager
def _server(bench: Bench) -> Iterator[int]:
    """The program as a server; its port."""
    with subprocess.Popen([bench.programs["network"], "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.communicate()
