"""A pytest plugin: `-p tests.fuzz.supervisor_option --sanitize=KIND` runs any tests of VMs with a supervisor built that way.

KIND is the value of gcc's -fsanitize, such as "address,undefined" or "thread". A test fails if the sanitizers report anything
while it runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.sanitized import Sanitized

_KEY = pytest.StashKey[Sanitized]()
_FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sanitize", metavar="KIND", help="start VMs with a supervisor built with these sanitizers")


def pytest_configure(config: pytest.Config) -> None:
    kind = config.getoption("--sanitize")
    if not kind:
        return
    own = tempfile.TemporaryDirectory(prefix="callgate-sanitized-")
    config.stash[_FOLDER] = own
    Path(own.name).chmod(0o755)
    workerinput = getattr(config, "workerinput", None)  # pytest-xdist: what the controller has for its workers
    folder = Path(workerinput["sanitized"] if workerinput else own.name) / kind
    if not workerinput:
        folder.mkdir()
        Sanitized.build(kind, folder)
    config.stash[_KEY] = Sanitized(folder, Path(own.name))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """pytest-xdist: workers use what the controller built."""
    if folder := node.config.stash.get(_FOLDER, None):  # type: ignore[attr-defined]
        node.workerinput["sanitized"] = folder.name  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_FOLDER, None):
        folder.cleanup()


@pytest.fixture(autouse=True)
def _sanitized_supervisor(request: pytest.FixtureRequest) -> Iterator[None]:
    if sanitized := request.config.stash.get(_KEY, None):
        with sanitized.in_place():
            yield
    else:
        yield
