"""`python -m recipes.memory NAME`: how much memory a training recipe takes, and which GPUs it fits on."""

import argparse
import sys
from pathlib import Path

from recipes.dataset import Tokenizer
from recipes.load import Recipes, load, recipes_folder
from recipes.problems import InvalidRecipes
from trainer import memory


def plan(recipes: Recipes, name: str) -> memory.Plan:
    """The plan of a training recipe. Raises ValueError when there is none of that name."""
    training = recipes.trainings.get(name)
    if training is None:
        raise ValueError(f"found {name!r}, expected a training recipe: {', '.join(recipes.trainings)}")
    return memory.Plan(
        model=memory.decoder(training.model),
        vocabulary=_vocabulary(recipes.datasets[training.dataset].tokenizer),
        length=training.batch.length,
        micro=training.batch.micro,
        precision=training.run.precision,
    )


def _vocabulary(tokenizer: Tokenizer) -> int:
    """Tokens that a dataset's tokenizer tells apart; at most, where it is still to be trained."""
    if tokenizer.file is None:
        return tokenizer.vocab_size
    import tokenizers

    return int(tokenizers.Tokenizer.from_file(tokenizer.file).get_vocab_size())


def main(arguments: list[str]) -> int:
    """Print the estimate and return 0, or what is wrong on standard error and return 1."""
    parser = argparse.ArgumentParser(prog="python -m recipes.memory", description="Estimate a training's memory.")
    parser.add_argument("name", help="a training recipe's name")
    parser.add_argument("--folder", type=Path, default=recipes_folder(), help="recipes; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="one JSON value instead of a table")
    options = parser.parse_args(arguments)
    try:
        memory.show(plan(load(options.folder), options.name), options.json)
    except (InvalidRecipes, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
