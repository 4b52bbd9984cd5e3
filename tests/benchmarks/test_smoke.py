"""The benchmarks run unattended in their short form, and say what they were asked to. No figure is judged here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.__main__ import main
from benchmarks.bench import Bench
from benchmarks.suites import SUITES

pytestmark = pytest.mark.vm


class Short(NamedTuple):
    """One short run of everything."""

    printed: str
    suites: dict[str, Any]


@pytest.fixture(scope="module")
def short(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Short:
    report = tmp_path_factory.mktemp("benchmarks") / "report.json"
    command = [sys.executable, "-m", "benchmarks", "--short", "--json", str(report)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = json.loads(report.read_text())
    assert written["short"] is True
    return Short(done.stdout, written["suites"])


def medians(suite: dict[str, Any]) -> list[float]:
    return [figure["median"] for case in suite["cases"] for figure in (*case["measured"], *case["compared"])]


def test_every_suite_prints_and_writes_its_figures(short: Short) -> None:
    assert list(short.suites) == list(SUITES)
    for name, suite in short.suites.items():
        assert f"{name}: {suite['title']}" in short.printed
        assert medians(suite), f"{name} measured nothing"
        assert all(value > 0 for value in medians(suite)), f"{name} holds a figure that cannot be"


def test_notified_calls_are_compared_with_the_floor_and_the_bare_host(short: Short) -> None:
    first, *_ = short.suites["notified"]["cases"]
    assert [figure["name"] for figure in first["measured"]] == ["in a VM", "floor", "bare"]
    assert [figure["name"] for figure in first["compared"]] == ["in a VM / floor", "in a VM / bare"]
    assert [figure["target"] for figure in first["compared"]] == [1.3, None]


def test_one_suite_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--short", "--only", "memory"]) == 0
    printed = capsys.readouterr().out
    assert "memory: " in printed
    assert "startup: " not in printed


def test_an_unknown_suite_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--only", "speed"])
    assert stopped.value.code == 2
    assert "invalid choice: 'speed'" in capsys.readouterr().err


def test_a_failing_operation_is_an_error_and_no_fast_figure() -> None:
    with Bench(short=True) as bench:
        done = subprocess.run(
            [bench.programs["loop"], "denied", "10", bench.scratch], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the open that must be refused" in done.stderr


def test_nothing_is_left_of_the_scratch_space() -> None:
    with Bench(short=True) as bench:
        program, scratch = bench.programs["spawn"], bench.scratch
        assert program.exists()
        assert scratch.exists()
    assert not program.exists()
    assert not scratch.exists()
