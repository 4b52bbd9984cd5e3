"""The package as a user meets it: its public names, what importing it loads, its links and its metadata."""

import importlib
import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import callgate

FOLDERS = ("bindings", "guest", "kernel", "scopes", "vfs")

# Slow to load, and each needed by a part of the package that most programs never reach.
NOT_ON_IMPORT = (
    "asyncio",
    "wasmtime",
    "pyroute2",
    "ptrace",
    "rich",
    "hypothesis",
    "pytest",
    "cffi",
    "ctypes",
    "http",
    "email",
    "mcp",
)

# Modules that `import callgate` may load beside its own: a growing number is a growing start-up.
MOST_MODULES = 90


def test_every_public_name_exists() -> None:
    assert callgate.__all__ == sorted(set(callgate.__all__), key=callgate.__all__.index)
    for name in callgate.__all__:
        assert hasattr(callgate, name), name


def test_names_of_the_contract_are_public() -> None:
    contract = {"VM", "agentos", "setup", "PermissionDenied", "PolicyError", "PolicyWarning", "Timeout", "Unsupported", "Denial"}
    assert contract <= set(callgate.__all__)


def test_import_loads_nothing_slow(project: Path) -> None:
    program = "import json, sys; before = set(sys.modules); import callgate; print(json.dumps(sorted(set(sys.modules) - before)))"
    output = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(project / 'src')!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    loaded: list[str] = json.loads(output)
    assert "callgate" in loaded
    heavy = [name for name in loaded if name.split(".")[0] in NOT_ON_IMPORT]
    assert not heavy
    foreign = [name for name in loaded if not name.startswith("callgate")]
    assert len(foreign) <= MOST_MODULES, foreign


def test_package_folders_are_relative_links_to_the_top_level(project: Path) -> None:
    for name in FOLDERS:
        link = project / "src" / "callgate" / name
        assert link.is_symlink(), f"{link} is not a link"
        assert link.readlink() == Path("..", "..", name)
        assert link.resolve() == project / name


def test_every_folder_with_python_is_importable(project: Path) -> None:
    folders = {path.parent for name in FOLDERS for path in (project / name).rglob("*.py") if "__pycache__" not in path.parts}
    assert len(folders) >= len(FOLDERS) - 1
    for folder in folders:
        assert (folder / "__init__.py").is_file(), f"{folder} has no __init__.py and would be left out of the wheel"
        importlib.import_module("callgate." + ".".join(folder.relative_to(project).parts))


def test_module_docstrings_say_what_a_file_is_for(project: Path) -> None:
    roots = [*(project / name for name in FOLDERS), project / "src" / "callgate", project / "tests", project / "examples"]
    missing = [
        str(path)
        for root in roots
        for path in root.rglob("*.py")
        if path.read_text().strip() and not path.read_text().lstrip().startswith(('"""', "#!", 'r"""'))
    ]
    assert not missing


def test_declared_dependencies_are_installed_in_the_declared_versions(project: Path) -> None:
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    test_extra = declared["optional-dependencies"]["test"]
    for line in [*declared["dependencies"], *test_extra]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(metadata.version(requirement.name)), line


def test_supervisor_is_an_executable_of_the_package(project: Path) -> None:
    program = project / "kernel" / "native" / "callgate-supervisor"
    assert os.access(program, os.X_OK)
    assert program.read_bytes()[:4] == b"\x7fELF"
