"""A user's own folder of recipes: `slipway init` makes it, and commands in it use its recipes."""

from pathlib import Path

from slipway.recipes import new
from slipway.recipes.folder import MARK

DATASET = "my-texts"
TRAINING = "my-model"
SWEEP = "my-model"
HEADER = """\
# This file marks a folder of Slipway recipes. Commands in this folder or below it use these recipes and keep their
# state in .slipway here, unless SLIPWAY_RECIPES or SLIPWAY_HOME is set.
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

    Raises ValueError if the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: found a folder that is not empty, expected an empty folder or none")
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
