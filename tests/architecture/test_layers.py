"""The layer picture of the design, read from the imports themselves."""

import ast
import subprocess
import sys
from pathlib import Path

LAYERS = {
    "scopes": set[str](),
    "kernel": {"scopes"},
    "vfs": {"scopes"},
    "bindings": {"scopes"},
    "guest": {"kernel", "vfs", "bindings", "scopes"},
}

# What the policy language may not touch: it is pure, so that a verdict depends on nothing but the policy and the question.
IMPURE = {"os", "io", "socket", "subprocess", "pathlib", "shutil", "tempfile", "ctypes", "threading", "asyncio", "time", "random"}

# Built with the package, not part of it at run time; it is the one place that names the C compiler's Python glue.
BUILD_ONLY = {"kernel/native/build.py"}


def imported(source: Path) -> set[str]:
    """Every module that a file imports, in any function, with relative imports spelled out as far as their own folder."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names.add(node.module)
            if node.module == "callgate":
                names.update(f"callgate.{alias.name}" for alias in node.names)
    return names


def files(project: Path, folder: str) -> list[Path]:
    found = sorted((project / folder).rglob("*.py"))
    return [path for path in found if str(path.relative_to(project)) not in BUILD_ONLY]


def test_each_layer_imports_only_what_lies_below(project: Path) -> None:
    wrong: list[str] = []
    for layer, below in LAYERS.items():
        for source in files(project, layer):
            for name in imported(source):
                parts = name.split(".")
                if parts[0] == "callgate" and (len(parts) < 2 or parts[1] not in below | {layer}):
                    wrong.append(f"{source.relative_to(project)} imports {name}")
    assert not wrong


def test_policy_language_is_pure_standard_library(project: Path) -> None:
    wrong = [
        f"{source.relative_to(project)} imports {name}"
        for source in files(project, "scopes")
        for name in imported(source)
        if name.split(".")[0] in IMPURE or name.split(".")[0] not in {*sys.stdlib_module_names, "callgate"}
    ]
    assert not wrong


def test_every_python_file_was_looked_at(project: Path) -> None:
    """The control of the tests above: they would pass over an empty list as well."""
    for layer in ("scopes", "kernel", "guest"):
        assert any(imported(source) for source in files(project, layer)), layer


def test_import_linter_agrees(project: Path) -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache"],
        cwd=project,
        env={"PYTHONPATH": "src", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
