"""The plan of a training recipe: how much memory it takes, before its dataset has a snapshot."""

from recipes.dataset import TokenizerSection
from recipes.load import Recipes
from trainer.start import memory


def plan(recipes: Recipes, name: str) -> memory.MemoryPlan:
    """The plan of a training recipe. Raises ValueError when there is none of that name."""
    training = recipes.trainings.get(name)
    if training is None:
        raise ValueError(f"found {name!r}, expected a training recipe: {', '.join(recipes.trainings)}")
    return memory.MemoryPlan(
        model=memory.decoder(training.model),
        vocabulary=_vocabulary(recipes.datasets[training.dataset].tokenizer),
        length=training.batch.length,
        micro=training.batch.micro,
        precision=training.run.precision,
    )


def _vocabulary(tokenizer: TokenizerSection) -> int:
    """Tokens that a dataset's tokenizer tells apart; at most, where it is still to be trained."""
    if tokenizer.file is None:
        return tokenizer.vocab_size
    import tokenizers

    return int(tokenizers.Tokenizer.from_file(tokenizer.file).get_vocab_size())
