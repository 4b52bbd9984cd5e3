"""Whole programs: the interpreter with a few modules, git on 200 files, and a C build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.loops import DENY_ONE_SUBTREE
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant, interleave, seconds
from callgate import VM

PATH: Final = "/usr/local/bin:/usr/bin:/bin"
FILES, UNITS = 200, 8

GIT: Final = """
set -e
d=$(mktemp -d); cd "$d"
git init -q .
i=0; while [ $i -lt {files} ]; do echo "line $i" > "file-$i.txt"; i=$((i + 1)); done
git add .
git -c user.name=bench -c user.email=bench@example.invalid commit -q -m all
cd /; rm -rf "$d"
"""

BUILD: Final = """
set -e
d=$(mktemp -d); cd "$d"
i=0; while [ $i -lt {units} ]; do
  printf '#include <stdio.h>\\n#include <stdlib.h>\\n#include <string.h>\\nint unit_%d(int n) {{ return n + %d; }}\\n' $i $i > "unit-$i.c"
  i=$((i + 1))
done
echo 'int main(void) { return 0; }' > main.c
for source in *.c; do gcc -O1 -c "$source"; done
gcc *.o -o program; ./program
cd /; rm -rf "$d"
"""


def _interpreter() -> str:
    """A Python that a VM has at the same place: the host's, or the installation that runs this."""
    return shutil.which("python3", path=PATH) or str(Path(sys.executable).resolve())


def _commands(bench: Bench) -> dict[str, tuple[list[str], str]]:
    """Title -> argument vector, and the program without which it cannot run."""
    files, units = (FILES, UNITS) if not bench.short else (5, 1)
    return {
        "python3 -c 'import json, asyncio, email'": ([_interpreter(), "-c", "import json, asyncio, email"], "python3"),
        f"git init, add and commit of {files} files": (["/bin/sh", "-c", GIT.replace("{files}", str(files))], "git"),
        f"gcc, {units + 1} units and a link": (["/bin/sh", "-c", BUILD.format(units=units).replace("{{", "{")], "gcc"),
    }


def _outside(argv: list[str], env: Mapping[str, str]) -> Variant:
    return seconds(lambda: subprocess.run(argv, input=b"", capture_output=True, check=True, env=env))


def _inside(vm: VM, argv: list[str]) -> Variant:
    return seconds(lambda: vm.run(argv, check=True))


def measure(bench: Bench) -> SuiteResult:
    """Milliseconds of wall time in a VM that already runs, under the default policy and with every file call judged."""
    result = SuiteResult("workloads", "whole programs in a running VM")
    shared: dict[str, Any] = {"PATH": PATH, "LANG": "C.UTF-8"}
    env = {**shared, "HOME": str(bench.scratch), "TMPDIR": str(bench.scratch)}
    with VM(env=shared) as default, VM(DENY_ONE_SUBTREE, env=shared) as rules:
        for title, (argv, needs) in _commands(bench).items():
            if needs != "python3" and shutil.which(needs, path=PATH) is None:
                result.notes.append(f"{needs} is not installed: '{title}' was left out")
                continue
            ours, ruled, without = f"{title}, default policy", f"{title}, one subtree denied", f"{title}, bare"
            variants = {ours: _inside(default, argv), ruled: _inside(rules, argv), without: _outside(argv, env)}
            result.add(interleave(variants, rounds=bench.rounds(15)), "ms", scale=1e3)
            result.compare(ours, without)
            result.compare(ruled, without)
    result.notes += bench.scratch_note()
    return result
