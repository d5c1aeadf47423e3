"""`slipway recipes check`, as a person or a pipeline runs it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.recipes.conftest import DATASET, SWEEP, TRAINING, Folder

ROOT = Path(__file__).parents[2]


def run(*arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slipway.cli", "recipes", "check", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_a_line_for_each_recipe():
    result = run()
    assert (result.returncode, result.stderr) == (0, "")
    names = [line.partition(":")[0] for line in result.stdout.splitlines()]
    assert names == [
        "datasets/python-stdlib",
        "suites/python-stdlib",
        "trainings/tiny-decoder",
        "trainings/bigram",
        "sweeps/tiny-decoder",
    ]


def test_the_command_prints_every_problem_and_fails(folder: Folder):
    folder.edit(DATASET, "tokens: 400000", "tokens: 0")
    folder.edit(TRAINING, "layers: 4", "layers: 0")
    folder.edit(SWEEP, "eta: 2", "eta: two")
    result = run(folder.path)
    assert (result.returncode, result.stdout) == (1, "")
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == [
        "shards.tokens",
        "scheduler.eta",
        "model.layers",
    ]


def test_the_command_uses_the_environment():
    result = run(SLIPWAY_TRAININGS__TINY_DECODER__RUN__STEPS="none")
    assert result.returncode == 1
    assert result.stderr.startswith("SLIPWAY_TRAININGS__TINY_DECODER__RUN__STEPS: run.steps: found")


def test_the_command_reports_a_missing_folder(tmp_path: Path):
    result = run(tmp_path / "nowhere")
    assert result.returncode == 1
    assert "nowhere: found no recipes, expected a folder with at least one of datasets/" in result.stderr
