"""Plans of training recipes: the request to the planner, with or without a snapshot, and the hardware to plan for."""

from dataclasses import dataclass

from slipway.recipes import plan_request
from slipway.recipes.dataset import DatasetRecipe
from slipway.recipes.kubernetes import amount
from slipway.recipes.load import Recipes
from slipway.recipes.training import ModelRecipe
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config.profiles import HardwareProfile
from slipway.trainer.data.shards import ShardFile
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.loading.needs import SnapshotReading
from slipway.trainer.loading.order import Order
from slipway.trainer.loading.window import DataCourse
from slipway.trainer.plan import room
from slipway.trainer.plan.question import Question
from slipway.trainer.plan.room import Room
from slipway.trainer.staging.holding import SnapshotNeed

LABEL_BYTES = 4


@dataclass(frozen=True)
class PlannedRecipe:
    """A request to plan a recipe, and the memory and bandwidth that it would have."""

    question: Question
    room: Room


def planned(recipes: Recipes, name: str, on: str | None = None, snapshot: Snapshot | None = None) -> PlannedRecipe:
    """The request for a recipe on its smallest number of nodes, and the room there: on a profile, or on this machine.

    `snapshot` is the snapshot to train on, if it exists already. Without `on`, the profile is the one whose fabric the
    recipe names, if it names one. Raises ValueError for an unknown name, and if the profile has too few nodes.
    """
    training = recipes.trainings.get(name)
    if training is None and name in recipes.all_trainings:
        raise ValueError(f"training recipe {name} is a script: a plan supports built-in models only")
    if training is None:
        raise ValueError(f"found {name!r}, expected a training recipe: {', '.join(recipes.trainings)}")
    profile = plan_request.profile_of(training, on)
    nodes = training.placement.nodes
    ranks_per_node = training.placement.ranks_per_node
    if profile is not None:
        check_nodes(profile, name, nodes.max, ranks_per_node)
    dataset = recipes.datasets[training.datasets[0]]
    request = plan_request.question_of(training, dataset, "cuda" if profile else "cpu", snapshot)
    return PlannedRecipe(
        request, room.of_profile(profile, _pod_bytes(training)) if profile else room.local_room(request.ranks)
    )


def grace_warning(training: ModelRecipe, on: str | None, save_seconds: float | None) -> str:
    """A warning that a stop would lose steps because a save to the durable tier takes longer than the grace period.

    Empty if the save fits. `on` is as in `planned`; `save_seconds` is None if the tier's rate is unknown. The step
    before the save is not counted: its duration is known only once the training runs, and the trainer then records a
    warning of its own in the ledger.
    """
    profile = plan_request.profile_of(training, on)
    grace = training.placement.kubernetes.grace_seconds or (profile.grace_seconds if profile else None)
    if grace is None or save_seconds is None or save_seconds <= grace:
        return ""
    return (
        f"placement.kubernetes.grace_seconds: found {grace}, expected more than the {save_seconds:.0f} s that a save "
        "to the durable tier takes, and a step before it: a stop or an eviction falls back to an earlier checkpoint"
    )


@dataclass(frozen=True)
class PlannedShards:
    """The shards of its snapshot that a recipe reads."""

    need: SnapshotNeed
    known: bool
    """Whether the size of the snapshot is known; if not, `need.total` means nothing."""


def planned_shards(recipes: Recipes, name: str, snapshot: Snapshot | None, gigabytes: float | None) -> PlannedShards:
    """The shards that a training reads of a snapshot, or of a hypothetical snapshot of this size in 10^9 bytes.

    A hypothetical snapshot has shards of the average size in the dataset's recipe; without a size its total is unknown.
    Raises ValueError for a snapshot that has no sample of the recipe's length.
    """
    training = recipes.trainings[name]
    if gigabytes is None and snapshot is not None:
        return PlannedShards(
            SnapshotReading(snapshot, training.batch, training.run, training.validation, mix=training.mix).need, True
        )
    samples, size = _average_shard(training, recipes.datasets[training.datasets[0]])
    several = 8 * training.run.shuffle_shards  # enough that the shards read at once do not depend on the number
    count = several
    if gigabytes is not None:
        count = max(1, round(gigabytes * 1e9 / size))
    files = [ShardFile(str(number), size) for number in range(min(count, several))]
    order = Order([samples] * len(files), training.run.seed, training.run.shuffle_shards)
    course = DataCourse(order, files, training.batch.sequences, training.run.steps)
    pinned = 0
    if training.validation.every:
        pinned = -(-training.validation.sequences // samples) * size
    need = SnapshotNeed(count * size, count * size, pinned, course.most_at_once(), size)
    return PlannedShards(need, gigabytes is not None)


def _average_shard(training: ModelRecipe, dataset: DatasetRecipe) -> tuple[int, int]:
    """The samples and the bytes of an average shard."""
    pictures = dataset.images
    if pictures:
        picture = pictures.height * pictures.width * pictures.channels
        samples = max(1, int(pictures.shard_megabytes * 1e6 / picture))
        return samples, samples * (picture + LABEL_BYTES)
    width = 2 if plan_request.vocabulary(dataset) <= 1 << 16 else 4
    return max(1, dataset.shards.tokens // training.batch.length), dataset.shards.tokens * width


def check_nodes(profile: HardwareProfile, name: str, nodes: int, ranks_per_node: int) -> None:
    """Raises ValueError, with recipe and field, if the profile cannot provide these nodes and ranks."""
    try:
        profile.check_nodes(nodes, ranks_per_node, "placement.nodes")
    except Invalid as fault:
        raise ValueError(f"{name}: {fault.field}: {fault}") from None


def _pod_bytes(training: ModelRecipe) -> int | None:
    memory = (training.placement.kubernetes.resources or {}).get("memory")
    return amount(memory) if memory else None
