"""A request to plan a recipe, with or without a snapshot of its dataset, and a quick answer to it.

The quick answer (`slipway.trainer.plan.verdict`) takes no time, so every load of the recipes checks it.
"""

from collections.abc import Iterator

from slipway.recipes.dataset import DatasetRecipe
from slipway.recipes.problems import RecipeFault
from slipway.recipes.training import ModelRecipe
from slipway.trainer.config import profiles
from slipway.trainer.config.profiles import HardwareProfile
from slipway.trainer.config.shapes import Data
from slipway.trainer.data import contents
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.plan import room
from slipway.trainer.plan.question import Kernels, Question
from slipway.trainer.plan.verdict import floor, gib

CLASSES = 1000
"""The assumed number of image classes while there is no snapshot that has the real number."""


def question_of(
    training: ModelRecipe, dataset: DatasetRecipe, kernels: Kernels, snapshot: Snapshot | None = None
) -> Question:
    """The planner's request for a training on its smallest number of nodes. Without a snapshot, the dataset's recipe
    gives the expected data."""
    return Question(
        model=training.model,
        batch=training.batch,
        optimizer=training.optimizer,
        run=training.run,
        layout=training.layout,
        communication=training.communication,
        data=_data(training, dataset, snapshot),
        nodes=training.placement.nodes.min,
        ranks_per_node=training.placement.ranks_per_node,
        kernels=kernels,
    )


def profile_of(training: ModelRecipe, on: str | None = None) -> HardwareProfile | None:
    """The profile with this name; without a name, the profile whose fabric the recipe names, if it names one."""
    name = on or profiles.FABRICS.get(training.hardware.profile)
    return profiles.named(name) if name else None


def memory_faults(training: ModelRecipe, dataset: DatasetRecipe) -> Iterator[RecipeFault]:
    """The fault of a model whose weights and optimiser alone exceed the memory of the GPUs that the recipe names."""
    profile = profile_of(training)
    if profile is None:
        return
    request = question_of(training, dataset, "cuda")
    needed = floor(request)
    has = room.of_profile(profile).rank_bytes
    if needed > has:
        actual = f"a model that takes {gib(needed)} or more of each of {request.ranks} GPUs"
        expected = f"{gib(has)} at most, as {profile.name} has; more nodes, or a layout that divides more, takes less"
        yield RecipeFault(("layout",), actual, expected)


def vocabulary(dataset: DatasetRecipe) -> int:
    """The size of the vocabulary of a dataset's tokenizer; an upper limit if the tokenizer is still to be trained."""
    if dataset.tokenizer.file is None:
        return dataset.tokenizer.vocab_size
    import tokenizers

    return int(tokenizers.Tokenizer.from_file(dataset.tokenizer.file).get_vocab_size())


def _data(training: ModelRecipe, dataset: DatasetRecipe, snapshot: Snapshot | None) -> Data:
    if snapshot is not None:
        return contents.data(snapshot, training.model, training.batch.length)
    pictures = dataset.images
    if pictures:
        return Data(picture=(pictures.height, pictures.width, pictures.channels), classes=CLASSES)
    return Data(vocabulary=vocabulary(dataset), length=training.batch.length)
