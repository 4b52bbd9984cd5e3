"""Short fuzzing of all that reads bytes of others: the same inputs every time, and damaged files that must be found out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fuzz import targets

RUNS = 5_000
SEEDS = (1, 2)

# Mistakes as they are made: what is put in the place of what, and the target that must notice.
DAMAGES = {
    "bytes": ("bytes.c", "(size_t)(reader->end - reader->at) < n", "(size_t)(reader->end - reader->at) + 1 < n"),
    "glob": ("glob.c", "run < 2 ||", "run < 1 ||"),
    "policy": ("policy.c", "if (error == 0 && !cg_reader_done(&reader))", "if (error == 0 && reader.failed)"),
    "resolve": ("resolve.c", "#define LINKS_MAX 40", "#define LINKS_MAX 41"),
    "image": ("image.c", "if (programs[i].p_type == PT_INTERP) return false;", ""),
    "control": ("control.c", "for (int i = 0; i < count; i++) close(fds[i]);", ""),
}


def fuzz(program: Path, seed: int, cwd: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [program, "--seed", str(seed), "--runs", str(RUNS)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=300)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("target", targets.TARGETS)
def test_no_input_breaks_a_target(fuzz_targets: Path, tmp_path: Path, target: str, seed: int) -> None:
    done = fuzz(fuzz_targets / f"{target}-gcc", seed, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{RUNS} runs"), done.stdout


@pytest.mark.parametrize("target", DAMAGES)
def test_a_mistake_is_found_and_its_input_kept(fuzz_targets: Path, tmp_path: Path, target: str) -> None:
    name, sound, mistake = DAMAGES[target]
    text = (targets.NATIVE / name).read_text()
    assert sound in text
    damaged = tmp_path / name
    damaged.write_text(text.replace(sound, mistake, 1))
    program = targets.build([target], fuzz_targets, damaged=damaged)[target]
    done = fuzz(program, 1, tmp_path)
    assert done.returncode != 0
    kept = tmp_path / f"crash-{program.name}"
    assert kept.exists(), done.stderr
    again = subprocess.run([program, kept], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert again.returncode != 0
