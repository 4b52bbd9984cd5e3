"""Builds the C half of the kernel: the supervisor program, and the cffi module of its pure parts."""

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import cffi

HERE: Final = Path(__file__).resolve().parent
PROJECT: Final = HERE.parents[1]
EXECUTABLE: Final = "callgate-supervisor"
GUEST_COMMAND: Final = "callgate-bindings"  # runs inside VMs
SYSCALL_TABLE: Final = HERE / "syscall_table.h"

# The parts that Python may call: everything that NAME.h declares is in the module, so that tests can hold the C code
# against the Python evaluator.
MODULE_PARTS: Final = ("bytes", "glob", "policy", "resolve", "local_address")

# -Wall and -Wextra always; -Werror only where CALLGATE_WERROR is set (lint and CI), so that a newer compiler with a new
# warning still builds the package for its user.
_WARNINGS: Final = ("-Wall", "-Wextra")
_COMPILE: Final = ("-std=gnu11", "-g", *_WARNINGS, "-fstack-protector-strong")
_RELEASE: Final = ("-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2")


class BuildError(Exception):
    """The C parts could not be built on this host."""


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "gcc"))


def _sanitizers() -> str:
    """The value of -fsanitize for a developer's build, such as "address,undefined"; empty in a release."""
    return os.environ.get("CALLGATE_SANITIZE", "")


def compile_flags() -> list[str]:
    werror = ["-Werror"] if os.environ.get("CALLGATE_WERROR") else []
    if sanitizers := _sanitizers():
        return [*_COMPILE, *werror, "-O1", f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
    return [*_COMPILE, *werror, *_RELEASE]


def executable_sources() -> list[Path]:
    return sorted(HERE.glob("*.c"))


def write_syscall_table() -> None:
    """Makes syscall_table.h from the one table of system calls.

    Runs in an interpreter of its own in which `callgate` is an empty namespace, because importing the package itself
    would load the facade, and with it the very module that is being built.
    """
    program = (
        "import sys, types\n"
        "package = types.ModuleType('callgate')\n"
        "package.__path__ = [sys.argv[1]]\n"
        "sys.modules['callgate'] = package\n"
        "from callgate.kernel.syscalls.c_header import generate\n"
        "sys.stdout.write(generate())\n"
    )
    command = [sys.executable, "-B", "-c", program, str(PROJECT / "src" / "callgate")]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout
    if not SYSCALL_TABLE.exists() or SYSCALL_TABLE.read_text() != text:
        SYSCALL_TABLE.write_text(text)


def _links_statically(scratch: Path) -> bool:
    """Whether this host has a static libc: without one the supervisor is linked dynamically and starts a little slower."""
    source, output = scratch / "static_probe.c", scratch / "static_probe"
    source.write_text("int main(void) { return 0; }\n")
    command = [*_compiler(), "-static", "-pthread", str(source), "-o", str(output)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def build_executable(output: Path, scratch: Path) -> None:
    """Compiles every C file of this folder and links the supervisor at `output`, replacing it in one step.

    What was compiled in `scratch` before, in the same way, is compiled again only if it is older than its source or any header.
    Raises BuildError naming the files that the compiler refused; its own words are on stderr by then.
    """
    compile_one = [*_compiler(), *compile_flags(), "-pthread", "-c"]
    scratch = scratch / hashlib.sha256(shlex.join(compile_one).encode()).hexdigest()[:16]
    scratch.mkdir(parents=True, exist_ok=True)
    headers_changed = max(header.stat().st_mtime_ns for header in HERE.glob("*.h"))

    def compiles(source: Path) -> bool:
        made = scratch / f"{source.stem}.o"
        if made.exists() and made.stat().st_mtime_ns > max(source.stat().st_mtime_ns, headers_changed):
            return True
        done = subprocess.run([*compile_one, str(source), "-o", str(made)], check=False).returncode == 0
        if not done:
            made.unlink(missing_ok=True)
        return done

    sources = executable_sources()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(compiles, sources))
    if refused := [source.name for source, done in zip(sources, results, strict=True) if not done]:
        raise BuildError(f"the C compiler refused {', '.join(refused)}")
    link = [f"-fsanitize={_sanitizers()}"] if _sanitizers() else ["-static"] if _links_statically(scratch) else []
    objects = [str(scratch / f"{source.stem}.o") for source in sources]
    _make(output, ["-g", *link, "-pthread", *objects], "the supervisor could not be linked")


def build_guest_command(output: Path) -> None:
    """Compiles the command with which guests call bindings: small, because each VM has a copy, and linked to the VMs' libc."""
    werror = ["-Werror"] if os.environ.get("CALLGATE_WERROR") else []
    flags = ["-std=gnu11", *_WARNINGS, *werror, "-fstack-protector-strong", *_RELEASE, "-s"]
    _make(output, [*flags, str(HERE / "guest" / f"{GUEST_COMMAND}.c")], "the C compiler refused the guests' command")


def _make(output: Path, arguments: list[str], failure: str) -> None:
    """Have the compiler make `output`, replacing it in one step: who runs the old one keeps it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    fresh = output.with_name(f".{output.name}.{os.getpid()}")
    if subprocess.run([*_compiler(), *arguments, "-o", str(fresh)], check=False).returncode != 0:
        raise BuildError(failure)
    fresh.chmod(0o755)
    fresh.replace(output)


def _relative(paths: Sequence[Path]) -> list[str]:
    return [str(path.relative_to(PROJECT)) for path in paths]  # setuptools wants names below the project


def declarations(header: str) -> str:
    """A header in the dialect of cffi, which knows no preprocessor and reads array lengths from the compiler instead."""
    text = re.sub(r"^\s*#.*$", "", header, flags=re.MULTILINE)
    return re.sub(r"\[[^\]]*[A-Za-z][^\]]*\]", "[...]", text)


_HEADERS: Final = [HERE / f"{part}.h" for part in MODULE_PARTS]

ffibuilder = cffi.FFI()
ffibuilder.cdef("typedef int... pid_t;")
for _header in _HEADERS:
    ffibuilder.cdef(declarations(_header.read_text()))
ffibuilder.set_source(
    "callgate.kernel.native._core",
    "".join(f'#include "{header.name}"\n' for header in _HEADERS),
    sources=_relative([HERE / f"{part}.c" for part in MODULE_PARTS]),
    depends=_relative(_HEADERS),
    include_dirs=_relative([HERE]),
    extra_compile_args=["-std=gnu11", *_WARNINGS, "-Wno-unused-parameter"],
    py_limited_api=True,
)
