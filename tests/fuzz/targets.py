"""Builds the fuzz targets of this folder: with clang's libFuzzer where there is one, and always with gcc and the engine here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
NATIVE: Final = HERE.parents[1] / "kernel" / "native"
TARGETS: Final = tuple(sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c")))

_CHECKED: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
_OPTIONS: Final = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{NATIVE}", f"-I{HERE}")
_PLAIN: Final = ("engine.c", "private_root.c")  # not under test: neither checked nor measured


def _product_sources(target: str) -> list[Path]:
    """All of the supervisor but its main file, and but what the target includes to get at its inside."""
    included = re.findall(r'^#include "(\w+\.c)"', (HERE / f"fuzz_{target}.c").read_text(), re.MULTILINE)
    return sorted(path for path in NATIVE.glob("*.c") if path.name not in ("main.c", *included))


def _compile_all(commands: Iterable[Sequence[str]]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(lambda command: subprocess.run(command, capture_output=True, text=True, check=False), commands):
            if done.returncode != 0:
                raise RuntimeError(f"a fuzz target does not compile:\n{done.stderr}")


def build(targets: Iterable[str], folder: Path, *, libfuzzer: bool = False, damaged: Path | None = None) -> dict[str, Path]:
    """The programs of *targets*, by name, made in *folder*; what was compiled there before is used again.

    *damaged* takes the place of the product's file of its name. RuntimeError with the compiler's words if one cannot be made.
    """
    compiler = "clang" if libfuzzer else "gcc"
    measured = "-fsanitize=fuzzer-no-link" if libfuzzer else "-fsanitize-coverage=trace-pc"
    targets = tuple(targets)
    sources = {target: [HERE / f"fuzz_{target}.c", *_product_sources(target)] for target in targets}
    if damaged:
        sources = {
            target: [damaged if path.name == damaged.name else path for path in paths] for target, paths in sources.items()
        }
    plain = {HERE / name for name in _PLAIN if not (libfuzzer and name == "engine.c")}
    checked = {path for paths in sources.values() for path in paths}

    def object_of(source: Path) -> Path:
        return folder / f"{source.stem}.{'damaged' if source == damaged else compiler}.o"

    def compilation(source: Path) -> list[str]:
        checks = () if source in plain else (*_CHECKED, measured)
        return [compiler, *_OPTIONS, *checks, "-c", str(source), "-o", str(object_of(source))]

    todo = [source for source in sorted(plain | checked) if source == damaged or not object_of(source).exists()]
    _compile_all(map(compilation, todo))
    suffix = "libfuzzer" if libfuzzer else "damaged" if damaged else "gcc"
    programs = {target: folder / f"{target}-{suffix}" for target in targets}
    engine = ["-fsanitize=fuzzer"] if libfuzzer else []
    _compile_all(
        [
            *(compiler, *_OPTIONS, *_CHECKED, *engine, *(str(object_of(source)) for source in sorted(plain))),
            *(str(object_of(source)) for source in sources[target]),
            *("-o", str(program)),
        ]
        for target, program in programs.items()
    )
    return programs


def _run_libfuzzer(program: Path, seeder: Path, seconds: int, folder: Path) -> int:
    corpus = folder / f"{seeder.name}.corpus"
    corpus.mkdir()
    subprocess.run([seeder, "--write-seeds", corpus], check=True)
    dictionary = (corpus / "words.dict").rename(folder / f"{seeder.name}.dict")
    # Names relative to the folder, which stays in reach of a target that goes into a root of its own.
    options = [
        f"-max_total_time={seconds}",
        f"-dict={dictionary.name}",
        f"-artifact_prefix=crash-{seeder.name}-",
        "-max_len=4096",
    ]
    return subprocess.run([program, *options, corpus.name], check=False, cwd=folder).returncode


def main(arguments: Sequence[str]) -> int:
    """`targets.py SECONDS [TARGET...]`: fuzz each target for so long; what fails is left in a folder that is named at the end."""
    seconds, targets = int(arguments[0]), list(arguments[1:]) or list(TARGETS)
    folder = Path(tempfile.mkdtemp(prefix="callgate-fuzz-"))
    folder.chmod(0o755)
    programs = build(targets, folder)
    clang = build(targets, folder, libfuzzer=True) if shutil.which("clang") else {}
    failed = []
    for name, program in programs.items():
        print(f"== {name}", flush=True)
        if name in clang:
            returncode = _run_libfuzzer(clang[name], program, seconds, folder)
        else:
            returncode = subprocess.run([program, "--seconds", str(seconds)], check=False, cwd=folder).returncode
        if returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}; the inputs are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
