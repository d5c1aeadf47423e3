"""The plan of a training recipe: what is asked about it, before its dataset has a snapshot, and on which hardware."""

from dataclasses import dataclass

from recipes.dataset import DatasetRecipe
from recipes.kubernetes import amount
from recipes.load import Recipes
from recipes.training import ModelRecipe
from trainer.base.invalid import Invalid
from trainer.config import profiles
from trainer.config.profiles import HardwareProfile
from trainer.config.shapes import Data
from trainer.plan import room
from trainer.plan.question import Question
from trainer.plan.room import Room

CLASSES = 1000
"""The classes of pictures that are counted before a snapshot says how many there are."""


@dataclass(frozen=True)
class PlannedRecipe:
    """What is asked about a recipe, and the room that it would have."""

    question: Question
    room: Room


def planned(recipes: Recipes, name: str, on: str | None = None) -> PlannedRecipe:
    """The question of a recipe on its fewest nodes, and the room there: on a profile, or on this machine.

    Without `on`, the profile is the one whose fabric the recipe names, if it names one. Raises ValueError for a name
    that there is not, and for nodes that the profile does not have.
    """
    training = recipes.trainings.get(name)
    if training is None:
        raise ValueError(f"found {name!r}, expected a training recipe: {', '.join(recipes.trainings)}")
    profile = _profile(training, on)
    nodes, each = training.placement.nodes, training.placement.ranks_per_node
    if profile is not None:
        check_nodes(profile, name, nodes.max, each)
    asked = Question(
        model=training.model,
        batch=training.batch,
        optimiser=training.optimiser,
        run=training.run,
        layout=training.layout,
        communication=training.communication,
        data=_data(training, recipes.datasets[training.dataset]),
        nodes=nodes.min,
        ranks_per_node=each,
        kernels="cuda" if profile else "cpu",
    )
    return PlannedRecipe(asked, room.of_profile(profile, _pod_bytes(training)) if profile else room.here(asked.ranks))


def check_nodes(profile: HardwareProfile, name: str, nodes: int, ranks_per_node: int) -> None:
    """Raises ValueError, with recipe and field, for a placement that the cluster does not have."""
    try:
        profile.check_nodes(nodes, ranks_per_node, "placement.nodes")
    except Invalid as fault:
        raise ValueError(f"{name}: {fault.field}: {fault}") from None


def _profile(training: ModelRecipe, on: str | None) -> HardwareProfile | None:
    name = on or profiles.FABRICS.get(training.hardware.profile)
    return profiles.named(name) if name else None


def _pod_bytes(training: ModelRecipe) -> int | None:
    asked = (training.placement.kubernetes.resources or {}).get("memory")
    return amount(asked) if asked else None


def _data(training: ModelRecipe, dataset: DatasetRecipe) -> Data:
    if pictures := dataset.images:
        return Data(picture=(pictures.height, pictures.width, pictures.channels), classes=CLASSES)
    return Data(vocabulary=_vocabulary(dataset), length=training.batch.length)


def _vocabulary(dataset: DatasetRecipe) -> int:
    """Tokens that a dataset's tokenizer tells apart; at most, where it is still to be trained."""
    if dataset.tokenizer.file is None:
        return dataset.tokenizer.vocab_size
    import tokenizers

    return int(tokenizers.Tokenizer.from_file(dataset.tokenizer.file).get_vocab_size())
