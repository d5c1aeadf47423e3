"""`python -m recipes [FOLDER]`: validates recipes without starting Dagster."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from recipes.dataset import Dataset
from recipes.load import load, recipes_folder
from recipes.problems import InvalidRecipes
from recipes.schema import Sweep, TrainingRecipe


def main() -> int:
    """Print a line for each recipe and return 0, or all problems on standard error and return 1."""
    parser = argparse.ArgumentParser(prog="python -m recipes", description="Validate the recipes in a folder.")
    parser.add_argument("folder", nargs="?", type=Path, default=recipes_folder(), help="default: %(default)s")
    try:
        recipes = load(parser.parse_args().folder)
    except InvalidRecipes as invalid:
        print(invalid, file=sys.stderr)
        return 1
    kinds: dict[str, Mapping[str, Dataset | TrainingRecipe | Sweep]] = {
        "datasets": recipes.datasets,
        "trainings": recipes.all_trainings,
        "sweeps": recipes.sweeps,
    }
    for kind, known in kinds.items():
        for name, recipe in known.items():
            print(f"{kind}/{name}: {recipe.description}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
