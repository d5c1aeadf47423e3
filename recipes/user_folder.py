"""A user's folder of recipes, outside the code: `slipway init` makes it, and commands in it use its recipes."""

from pathlib import Path

from slipway.recipes import new
from slipway.recipes.folder import MARK

DATASET, TRAINING, SWEEP = "my-texts", "my-model", "my-model"
HEADER = """\
# This file makes the folder one of Slipway recipes: `slipway`, called in it or below, uses these recipes and keeps
# its state in .slipway here. SLIPWAY_RECIPES and SLIPWAY_HOME say otherwise where they are set.
slipway: recipes/1
"""
README = f"""\
# Recipes of our own

| Folder | What a file in it says |
| --- | --- |
| `datasets/` | where texts come from, how they are cleaned, encoded, split and packed |
| `suites/` | what models are measured on, and compared with each other |
| `trainings/` | a model, its optimiser, how long it trains, where, and how it recovers |
| `sweeps/` | which parameters of a training to search, and how |

A file's name is the recipe's name. Every field is explained in the examples.

    slipway recipes check                    # are they all valid?
    slipway plan {TRAINING}                     # how much memory, and which GPUs
    slipway demo                             # make everything, from corpus to champion
    slipway recipes new training other-model # another one, to be edited

Or step by step: `slipway data build {DATASET}`, `slipway run {TRAINING} --watch`, `slipway ls`, `slipway up`.
"""


def make(folder: Path) -> list[Path]:
    """Make the folder with a commented, working example of each kind; returns its files.

    Raises ValueError when there is anything in it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: found something there, expected an empty folder, or nothing yet")
    folder.mkdir(parents=True, exist_ok=True)
    written = {MARK: HEADER, "README.md": README, ".gitignore": ".slipway/\n"}
    for name, text in written.items():
        (folder / name).write_text(text)
    examples = [
        new.write(folder, "dataset", DATASET),
        new.write(folder, "training", TRAINING),
        new.write(folder, "sweep", SWEEP),
    ]
    return [*(folder / name for name in written), *examples]
