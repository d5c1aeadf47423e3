"""Trainings in the UI: jobs of each recipe that start one, and that stop, pause, resume or delete those there are.

They do what the command does (`slipway run`, `stop`, `pause`, `resume`, `rm`), with the same records.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import dagster as dg
from pydantic import Field

from slipway.assets import keys
from slipway.assets.execution import pods
from slipway.assets.training_commands import start
from slipway.operations import deleting
from slipway.operations.job_config import ReasonConfig, about
from slipway.recipes import assignments
from slipway.recipes.training import TrainingRecipe
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import foreground
from slipway.resources.trainings.store import TrainingStore, all_trainings


class StartConfig(dg.Config):
    """What is otherwise this time."""

    fields: list[str] = Field(
        default=[], description="FIELD=VALUE, as a recipe names them, for this training alone: run.steps=50"
    )
    again: str = Field(
        default="", description="Words by which to train once more what has been trained already: the second seed"
    )


class DeleteConfig(ReasonConfig):
    """What is to happen to a training that has ended."""

    remove: bool = Field(
        default=False,
        description="False: only say what would be removed. True: let its checkpoints go; the hourly retention removes "
        "those that nothing refers to",
    )


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
        state = (
            "has been trained already; `again` trains it once more" if trained else "is wanted; the job watch starts it"
        )
        context.log.info(f"{store.id} {state}")
        return dg.Output(None, metadata={"training": store.id, "result": f"{store.id} {state}"})

    @dg.job(
        name=f"{lane}_start",
        description=(
            f"Starts a training of {recipe.name} on the current snapshot of {', '.join(recipe.datasets)}, or adopts it."
        ),
    )
    def job() -> None:
        start_training()

    return job


ConfigT = TypeVar("ConfigT", bound=ReasonConfig)


def operation_jobs(recipe: TrainingRecipe) -> list[dg.JobDefinition]:
    """The jobs that stop, pause, resume and delete a training of the recipe, each with its own fields."""
    return [
        _job(
            recipe, "stop", ReasonConfig, _stop, "Stops a training (the partition) with a checkpoint of its last step."
        ),
        _job(
            recipe,
            "pause",
            ReasonConfig,
            _pause,
            "Stops a training (the partition) until it is resumed; frees its nodes.",
        ),
        _job(
            recipe,
            "resume",
            ReasonConfig,
            _resume,
            "Lets a training (the partition) go on, or begin where it is offered.",
        ),
        _job(
            recipe,
            "delete",
            DeleteConfig,
            _delete,
            "Says what goes with a training (the partition), and deletes it.",
        ),
    ]


@dataclass(frozen=True)
class TrainingRequest:
    """One request: of which training, and by whom."""

    store: TrainingStore
    by: str
    tiers: Tiers
    tracking: Tracking


def _job(
    recipe: TrainingRecipe,
    verb: str,
    schema: type[ConfigT],
    do: Callable[[TrainingRequest, ConfigT], str],
    described: str,
) -> dg.JobDefinition:
    """The job of one verb; `do` puts the request on record and returns what follows, for a person."""
    lane = keys.lane(recipe.name)
    offered: Any = schema

    @dg.op(name=f"{lane}_{verb}_training", tags=pods.tags("set"))
    def operate(
        context: dg.OpExecutionContext, config: offered, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> dg.Output[None]:
        """Raises Failure with the reason where the training cannot do so."""
        store = all_trainings(tiers).store(about(context, "training"))
        actor = identity.of_run(context.run)
        try:
            result = do(TrainingRequest(store, actor, tiers, tracking), config)
        except ValueError as error:
            raise dg.Failure(str(error)) from None
        context.log.info(result)
        return dg.Output(None, metadata={"training": store.id, "result": result, "why": config.why})

    @dg.job(name=f"{lane}_{verb}", partitions_def=keys.training_partitions(recipe.name), description=described)
    def job() -> None:
        operate()

    return job


def _stop(request: TrainingRequest, config: ReasonConfig) -> str:
    return _stopped(request, config.why)


def _pause(request: TrainingRequest, config: ReasonConfig) -> str:
    return _stopped(request, f"paused: {config.why}")


def _resume(request: TrainingRequest, config: ReasonConfig) -> str:
    foreground.resume(all_trainings(request.tiers), request.store, request.by, config.why)
    return f"{request.store.id} is wanted; the job watch starts it from its newest checkpoint, or from the beginning"


def _delete(request: TrainingRequest, config: DeleteConfig) -> str:
    root = all_trainings(request.tiers)
    store = request.store
    if not config.remove:
        deletion = deleting.outlook(root, store, request.tiers, request.tracking)
        return f"{store.id}: nothing is removed yet, as `remove` is not set. It would be so: {deletion.sentence()}"
    deletion = deleting.delete(root, store, request.tiers, request.tracking, request.by, config.why)
    return f"{store.id} is let go, and the next retention removes it: {deletion.sentence()}"


def _stopped(request: TrainingRequest, reason: str) -> str:
    """Put on record that the training is to stop. Raises ValueError for one that is not wanted."""
    store = request.store
    facts = store.read()
    if not facts.unfinished:
        state = "it has succeeded" if facts.succeeded else "it is stopped, or asked to stop, already"
        state = state if facts.desired is not None else "it was never started"
        raise ValueError(f"training {store.id}: {state}: there is nothing to stop")
    store.want("stop", request.by, reason)
    return f"{store.id} is to stop: its job saves a checkpoint of its last step, and ends"
