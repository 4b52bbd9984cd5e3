"""Whole programs: an interpreter importing a few modules, git on 200 files, and a C build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

from benchmarks.bench import Bench
from benchmarks.loops import DENY_ONE_SUBTREE
from benchmarks.report import SuiteResult
from benchmarks.sampling import Variant, seconds
from callgate import VM

PATH: Final = "/usr/local/bin:/usr/bin:/bin"
IMPORTS: Final = "import json, asyncio, email"
DEFAULT, RULES, BARE = "default policy", "one subtree denied", "bare"

GIT: Final = Template("""
set -e
d=$$(mktemp -d); cd "$$d"
git init -q .
i=0; while [ $$i -lt $files ]; do echo "line $$i" > "file-$$i.txt"; i=$$((i + 1)); done
git add .
git -c user.name=bench -c user.email=bench@example.invalid commit -q -m all
cd /; rm -rf "$$d"
""")

BUILD: Final = Template("""
set -e
d=$$(mktemp -d); cd "$$d"
i=0; while [ $$i -lt $units ]; do
  printf '#include <%s>\\n' stdio.h stdlib.h string.h > "unit-$$i.c"
  echo "int unit_$$i(int n) { return n + $$i; }" >> "unit-$$i.c"
  i=$$((i + 1))
done
echo 'int main(void) { return 0; }' > main.c
for source in *.c; do gcc -O1 -c "$$source"; done
gcc *.o -o program; ./program
cd /; rm -rf "$$d"
""")


class Work(NamedTuple):
    """A command line, and the program that has to be installed for it."""

    title: str
    argv: list[str]
    needs: str


def measure(bench: Bench) -> SuiteResult:
    """Milliseconds of wall time in a VM that already runs, without any file call judged and with every one judged."""
    result = SuiteResult("workloads", "whole programs in a running VM")
    shared = {"PATH": PATH, "LANG": "C.UTF-8"}
    env = {**shared, "HOME": str(bench.scratch), "TMPDIR": str(bench.scratch)}
    with VM(env=shared) as default, VM(DENY_ONE_SUBTREE, env=shared) as rules:
        for work in _works(bench):
            if shutil.which(work.needs, path=PATH) is None:
                result.notes.append(f"{work.needs} is not installed: '{work.title}' was left out")
                continue
            variants = {DEFAULT: _inside(default, work.argv), RULES: _inside(rules, work.argv), BARE: _outside(work.argv, env)}
            case = result.case(work.title)
            case.add(bench.interleave(variants, rounds=15), "ms", scale=1e3)
            case.compare(DEFAULT, BARE)
            case.compare(RULES, BARE)
    result.notes += bench.scratch_note()
    return result


def _works(bench: Bench) -> list[Work]:
    files, units = (5, 1) if bench.short else (200, 8)
    git, build = GIT.substitute(files=files), BUILD.substitute(units=units)
    # A Python that a VM has at the same place: the host's, or the installation that runs this.
    interpreter = shutil.which("python3", path=PATH) or str(Path(sys.executable).resolve())
    return [
        Work(f"python3 -c '{IMPORTS}'", [interpreter, "-c", IMPORTS], interpreter),
        Work(f"git init, add and commit of {files} files", ["/bin/sh", "-c", git], "git"),
        Work(f"gcc of {units + 1} files, and a link", ["/bin/sh", "-c", build], "gcc"),
    ]


def _outside(argv: list[str], env: Mapping[str, str]) -> Variant:
    return seconds(lambda: subprocess.run(argv, input=b"", capture_output=True, check=True, env=env))


def _inside(vm: VM, argv: list[str]) -> Variant:
    return seconds(lambda: vm.run(argv, check=True))
