"""Made: the demo reads how far each sweep has come, whatever its dataset holds, and says it in words."""

from pathlib import Path

import pytest
import yaml

from slipway.deploy.embedded import report
from slipway.deploy.embedded.pipeline_state import Chain, MadeReader
from slipway.recipes.load import load
from slipway.resources.home import Home
from slipway.trainer.record.scores import Score
from tests.assets.datasets import digits

RECIPES = {
    "datasets/digits": {
        "slipway": "dataset/1",
        "description": "Digits",
        "owner": "team:data",
        "source": {"kind": "directory", "path": "../../digits"},
        "images": {"height": 8, "width": 8, "channels": 1},
        "split": {"validation": 0.2},
    },
    "trainings/net": {
        "slipway": "training/1",
        "description": "A small residual network",
        "owner": "team:training",
        "dataset": "digits",
        "model": {"kind": "resnet", "blocks": [1, 1], "width": 8, "stem": "small"},
        "batch": {"sequences": 64, "micro": 64},
        "optimizer": {"learning_rate": 0.02},
        "run": {"steps": 40},
        "checkpoint": {"every": 20},
        "placement": {"nodes": {"min": 1, "max": 1}, "ranks_per_node": 1},
        "recovery": {"no_progress_seconds": 30, "failures_without_checkpoint": 2},
        "registered_model": "net",
    },
    "sweeps/net-search": {
        "slipway": "sweep/1",
        "description": "The learning rate",
        "owner": "team:training",
        "training": "net",
        "space": {"optimizer.learning_rate": {"loguniform": [0.001, 0.1]}},
        "sampler": "random",
        "seed": 1,
        "trials": 2,
        "parallel": 1,
        "scheduler": {"kind": "none"},
        "trial": {"run.steps": 20, "validation.every": 20, "validation.sequences": 16, "checkpoint.every": 20},
        "limits": {"failed_trials": 1, "retries": 1},
    },
}


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """The chain of a sweep on pictures, whose snapshot is made and of which nothing else is."""
    digits.make_digits(tmp_path / "digits")
    for name, recipe in RECIPES.items():
        file = tmp_path / "recipes" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(recipe, sort_keys=False))
    recipes, home = load(tmp_path / "recipes", {}), Home(tmp_path / "home")
    digits.build(recipes.datasets["digits"], home.durable)
    [state] = MadeReader(recipes, home).read()
    return state


def test_a_sweep_on_pictures_is_read_and_its_pictures_are_counted(chain: Chain):
    assert chain.snapshot is not None and chain.sweep is None and not chain.complete
    [line] = report.lines(chain)
    assert line.startswith(f"snapshot {chain.snapshot.sha256[:12]}: train ") and line.endswith(" pictures")


@pytest.mark.parametrize(("bits", "summary"), [(1.605, "1.605 bits per byte"), (0.0, "accuracy 98.2%")])
def test_a_checkpoint_is_reported_by_bits_per_byte_or_else_by_its_accuracy(bits: float, summary: str):
    score = Score("000000020.000001.0000", 0.17, 1.2, bits, 0.982, 55)
    assert report.measured(score) == summary
