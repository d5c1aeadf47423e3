"""`python -m recipes [FOLDER]`: validates recipes without starting Dagster."""

import argparse
import sys
from pathlib import Path

from recipes.load import load, recipes_folder
from recipes.problems import InvalidRecipes


def main() -> int:
    """Print a line for each recipe and return 0, or all problems on standard error and return 1."""
    parser = argparse.ArgumentParser(prog="python -m recipes", description="Validate the recipes in a folder.")
    parser.add_argument("folder", nargs="?", type=Path, default=recipes_folder(), help="default: %(default)s")
    try:
        recipes = load(parser.parse_args().folder)
    except InvalidRecipes as invalid:
        print(invalid, file=sys.stderr)
        return 1
    for kind in ("datasets", "trainings", "sweeps"):
        for name, recipe in getattr(recipes, kind).items():
            print(f"{kind}/{name}: {recipe.description}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
