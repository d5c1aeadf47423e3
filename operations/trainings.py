"""Trainings in the UI: jobs of each recipe that start one, and that stop, pause, resume or delete those there are.

They do what the command does (`slipway run`, `stop`, `pause`, `resume`, `rm`), with the same records.
"""

import enum

import dagster as dg
from pydantic import Field

from assets import keys
from assets.execution import pods
from assets.start import start
from operations import deleting
from recipes import assignments
from recipes.training import TrainingRecipe
from resources.compute.protocol import Compute
from resources.mlflow import identity
from resources.mlflow.tracking import Tracking
from resources.tiers import Tiers
from resources.trainings import by_hand
from resources.trainings.roots import trainings
from resources.trainings.store import TrainingStore


class StartConfig(dg.Config):
    """What is otherwise this time."""

    fields: list[str] = Field(
        default=[], description="FIELD=VALUE, as a recipe names them, for this training alone: run.steps=50"
    )
    again: str = Field(
        default="", description="Words by which to train once more what has been trained already: the second seed"
    )


class TrainingRequestKind(enum.Enum):
    """What a person may ask of a training; the launchpad offers these names."""

    start = "start"
    stop = "stop"
    pause = "pause"
    resume = "resume"
    delete = "delete"


class TrainingOperation(dg.Config):
    """One request."""

    operation: TrainingRequestKind = Field(
        description="start one that is offered; stop and pause: with a checkpoint of its last step; resume: from its "
        "newest checkpoint; delete: say what would be removed, and with `remove` let it go"
    )
    remove: bool = Field(
        default=False,
        description="With delete: let its checkpoints go; the hourly retention removes those that nothing refers to",
    )
    why: str = Field(default="asked in the UI", description="The reason, kept on record")


def start_job(recipe: TrainingRecipe) -> dg.JobDefinition:
    """The job that starts a training of the recipe on the current snapshot of its dataset."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_start_training", tags=pods.tags("set"))
    def start_training(
        context: dg.OpExecutionContext, config: StartConfig, tiers: Tiers, tracking: Tracking
    ) -> dg.Output[None]:
        """Raises Failure with the reason where it cannot be started."""
        try:
            changed = assignments.applied(recipe, config.fields)
            store = start(changed, tiers, tracking, identity.of_run(context.run), config.again, config.fields)
        except ValueError as error:
            raise dg.Failure(str(error)) from None
        keys.add_partition(context.instance, keys.training_partitions(recipe.name), store.id)
        ended = store.exit()
        trained = ended is not None and ended.outcome == "succeeded"
        told = (
            "has been trained already; `again` trains it once more" if trained else "is wanted; the job watch starts it"
        )
        context.log.info(f"{store.id} {told}")
        return dg.Output(None, metadata={"training": store.id, "told": f"{store.id} {told}"})

    @dg.job(
        name=f"{lane}_start",
        description=(
            f"Starts a training of {recipe.name} on the current snapshot of {', '.join(recipe.datasets)}, or adopts it."
        ),
    )
    def job() -> None:
        start_training()

    return job


def operation_job(recipe: TrainingRecipe) -> dg.JobDefinition:
    """The job that starts, stops, pauses, resumes or deletes a training of the recipe."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_operate_training", tags=pods.tags("set"))
    def operate_training(
        context: dg.OpExecutionContext, config: TrainingOperation, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> dg.Output[None]:
        """Raises Failure with the reason where the training cannot do so."""
        store, by = trainings(tiers).store(context.partition_key), identity.of_run(context.run)
        try:
            told = _operate(store, config, by, tiers, tracking)
        except ValueError as error:
            raise dg.Failure(str(error)) from None
        context.log.info(told)
        return dg.Output(None, metadata={"training": store.id, "told": told, "why": config.why})

    @dg.job(
        name=f"{lane}_operation",
        partitions_def=keys.training_partitions(recipe.name),
        description="Starts, stops, pauses, resumes or deletes a training (the partition).",
    )
    def job() -> None:
        operate_training()

    return job


def _operate(store: TrainingStore, config: TrainingOperation, by: str, tiers: Tiers, tracking: Tracking) -> str:
    """Put the request on record; what follows from it, for a person. Raises ValueError."""
    root = trainings(tiers)
    match config.operation:
        case TrainingRequestKind.start | TrainingRequestKind.resume:
            by_hand.resume(root, store, by, config.why)
            return f"{store.id} is wanted; the job watch starts it from its newest checkpoint, or from the beginning"
        case TrainingRequestKind.stop | TrainingRequestKind.pause:
            _stop(store, by, config)
            return f"{store.id} is to stop: its job saves a checkpoint of its last step, and ends"
        case TrainingRequestKind.delete:
            if not config.remove:
                found = deleting.outlook(root, store, tiers, tracking)
                return f"{store.id}: nothing is removed yet, as `remove` is not set. It would be so: {found.sentence()}"
            found = deleting.delete(root, store, tiers, tracking, by, config.why)
            return f"{store.id} is let go, and the next retention removes it: {found.sentence()}"


def _stop(store: TrainingStore, by: str, config: TrainingOperation) -> None:
    if not store.read().unfinished:
        raise ValueError(f"training {store.id}: found one that is not wanted, expected one that runs or waits")
    paused = config.operation is TrainingRequestKind.pause
    store.want("stop", by, f"paused: {config.why}" if paused else config.why)
