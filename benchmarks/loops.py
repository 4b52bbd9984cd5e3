"""The loop program in a VM, on the bare host, under a filter alone and under the floor of a supervisor."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.bench import Bench, own_figure
from benchmarks.sampling import Variant
from callgate import VM, PolicyWarning
from callgate.kernel.confinement.filter import RET_ALLOW, build_filter

DIRECTORY: Final = "/home/agentos/bench"
PROGRAM: Final = f"{DIRECTORY}/loop"
DENY_ONE_SUBTREE: Final[Mapping[str, Any]] = {
    "fs": {"default": "allow", "rules": [{"mode": "deny", "operations": ["*"], "paths": [f"{DIRECTORY}/denied/**"]}]}
}

_RETURN: Final = 0x06  # BPF_RET | BPF_K
ONE_INSTRUCTION: Final = struct.pack("<HBBI", _RETURN, 0, 0, RET_ALLOW)


def loop_vm(bench: Bench, permissions: Mapping[str, Any] | None = None) -> VM:
    """A VM that has the loop program; the caller closes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyWarning)  # rules that only make a policy long
        return VM(permissions, files={PROGRAM: bench.programs["loop"].read_bytes()})


def in_vm(vm: VM, operation: str, count: int, threads: int = 1) -> Variant:
    """Nanoseconds of one operation of the loop program in *vm*."""

    def sample() -> float:
        result = vm.run([PROGRAM, operation, str(count), DIRECTORY, str(threads)])
        if result.returncode != 0:
            raise RuntimeError(f"loop {operation} failed in the VM: {result.stderr.strip() or result.returncode}")
        return float(result.stdout)

    return sample


def _loop(bench: Bench, operation: str, count: int, threads: int) -> list[str | Path]:
    return [bench.programs["loop"], operation, str(count), bench.scratch, str(threads)]


def bare(bench: Bench, operation: str, count: int, threads: int = 1) -> Variant:
    """The same on the host, under no filter of ours."""
    return own_figure(_loop(bench, operation, count, threads))


def one_instruction(bench: Bench, operation: str, count: int) -> Variant:
    """The same on the host under a filter that is the single instruction "allow"."""
    filtered = [bench.programs["filtered"], _file(bench, ONE_INSTRUCTION, "allow")]
    return own_figure([*filtered, *_loop(bench, operation, count, 1)])


def floor(bench: Bench, vm: VM, operation: str, count: int, *, threads: int = 1, workers: int = 1, sync: bool = True) -> Variant:
    """The same under the least a supervisor can do, with the filter of *vm*."""
    filter_file = _file(bench, build_filter(frozenset(vm.status().notified)), "notify")
    command: list[str | Path] = [bench.programs["floor"], filter_file, str(int(sync)), str(workers)]
    return own_figure([*command, *_loop(bench, operation, count, threads)])


def _file(bench: Bench, content: bytes, name: str) -> Path:
    path = bench.scratch / f"{name}.filter"
    path.write_bytes(content)
    return path
