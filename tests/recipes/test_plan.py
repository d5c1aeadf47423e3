"""`slipway plan`: the recipe's own code at its own number of ranks, asked in a process without torch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import recipes
from recipes.load import load
from recipes.plan import planned

FOLDER = Path(recipes.__file__).parent
CODE = FOLDER.parent


def command(home: Path, *arguments: str, folder: Path = FOLDER) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "SLIPWAY_RECIPES": str(folder), "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(CODE)}
    launch = [sys.executable, "-m", "cli", "plan", *arguments]
    return subprocess.run(launch, cwd=CODE, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_command_says_what_a_training_needs_and_keeps_the_measure(tmp_path: Path):
    done = command(tmp_path, "tiny-decoder", "--json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    assert printed["fits"] and printed["parameters"] == 1_836_160
    assert printed["checkpoint"]["size"] == 12 * 1_836_160
    kept = list((tmp_path / "slipway" / "plans").iterdir())
    before = kept[0].stat().st_mtime_ns
    assert json.loads(command(tmp_path, "tiny-decoder", "--json").stdout) == printed
    assert [each.stat().st_mtime_ns for each in kept] == [before] and len(kept) == 1


@pytest.mark.slow
def test_what_does_not_fit_is_refused_with_what_to_change(tmp_path: Path):
    """A micro-batch of a whole batch of long sequences, on one GPU of 140 GiB."""
    fields = ("batch.micro=64", "batch.sequences=1024", "placement.ranks_per_node=1")
    done = command(tmp_path, "llama-1b", *fields, "--on", "h200-32", folder=FOLDER / "examples")
    assert done.returncode == 1, done.stderr
    assert "does not fit on h200-32" in done.stdout and "batch.micro=1 it fits" in done.stdout


def test_gpus_given_as_nodes_are_refused_with_the_number_of_nodes(tmp_path: Path):
    fields = ("placement.nodes.min=256", "placement.nodes.max=256", "batch.sequences=4096")
    done = command(tmp_path, "llama-405b", *fields, "--on", "h200-32", folder=FOLDER / "examples")
    assert done.returncode == 1
    assert "llama-405b: placement.nodes: found 256, expected 32 at most" in done.stderr
    assert "256 GPUs are 32 nodes" in done.stderr


def test_an_unknown_recipe_is_refused_with_a_list_of_all_recipes():
    with pytest.raises(ValueError, match=r"^found 'none', expected a training recipe: tiny-decoder$"):
        planned(load(FOLDER, {}), "none")


def test_a_recipe_is_planned_without_torch():
    """The control plane asks: it must not pay for torch."""
    code = (
        "import sys; from pathlib import Path; from recipes.load import load; from recipes.plan import planned;"
        "import trainer.plan.asking, trainer.plan.verdict, trainer.plan.advice;"
        "planned(load(Path('recipes/examples'), {}), 'llama-70b', 'h200-32'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CODE, capture_output=True, text=True, timeout=280)
    assert done.stdout.strip() == "False", done.stderr
