"""A request for a plan of a recipe: the question, with or without a snapshot of its dataset, and its quick answer.

The quick answer (`slipway.trainer.plan.verdict`) takes no time, so that recipes are held to it whenever they are read.
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
"""The classes of pictures that are counted before a snapshot says how many there are."""


def question_of(
    training: ModelRecipe, dataset: DatasetRecipe, kernels: Kernels, snapshot: Snapshot | None = None
) -> Question:
    """What a plan is asked about a training on its fewest nodes; without a snapshot, on what its dataset will have."""
    return Question(
        model=training.model,
        batch=training.batch,
        optimiser=training.optimiser,
        run=training.run,
        layout=training.layout,
        communication=training.communication,
        data=_data(training, dataset, snapshot),
        nodes=training.placement.nodes.min,
        ranks_per_node=training.placement.ranks_per_node,
        kernels=kernels,
    )


def profile_of(training: ModelRecipe, on: str | None = None) -> HardwareProfile | None:
    """The profile of that name; without a name, the one whose fabric the recipe names, if it names one."""
    name = on or profiles.FABRICS.get(training.hardware.profile)
    return profiles.named(name) if name else None


def memory_faults(training: ModelRecipe, dataset: DatasetRecipe) -> Iterator[RecipeFault]:
    """The fault of a model whose weights and optimiser alone are more than the GPUs hold that the recipe names."""
    profile = profile_of(training)
    if profile is None:
        return
    request = question_of(training, dataset, "cuda")
    needed, has = floor(request), room.of_profile(profile).rank_bytes
    if needed > has:
        actual = f"a model that takes {gib(needed)} or more of each of {request.ranks} GPUs"
        expected = f"{gib(has)} at most, as {profile.name} has; more nodes, or a layout that divides more, takes less"
        yield RecipeFault(("layout",), actual, expected)


def vocabulary(dataset: DatasetRecipe) -> int:
    """Tokens that a dataset's tokenizer tells apart; at most, where it is still to be trained."""
    if dataset.tokenizer.file is None:
        return dataset.tokenizer.vocab_size
    import tokenizers

    return int(tokenizers.Tokenizer.from_file(dataset.tokenizer.file).get_vocab_size())


def _data(training: ModelRecipe, dataset: DatasetRecipe, snapshot: Snapshot | None) -> Data:
    if snapshot is not None:
        return contents.data(snapshot, training.model, training.batch.length)
    if pictures := dataset.images:
        return Data(picture=(pictures.height, pictures.width, pictures.channels), classes=CLASSES)
    return Data(vocabulary=vocabulary(dataset), length=training.batch.length)
