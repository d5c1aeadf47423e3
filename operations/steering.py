"""Steering in the UI: a job for each sweep recipe, whose launchpad offers what a person may ask of the sweep."""

import enum

import dagster as dg
from pydantic import Field

from slipway.assets import keys
from slipway.assets.execution import pods
from slipway.assets.sweeps import steering
from slipway.assets.sweeps.assets import current_subject, find_sweep
from slipway.assets.sweeps.store import SweepStore, sweeps
from slipway.operations.job_config import ReasonConfig
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import ModelRecipe
from slipway.resources import identity
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.trainer.base import field_changes


class SweepRequestKind(enum.Enum):
    """What is asked of a sweep."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    SPEND = "spend"


class SteeringConfig(ReasonConfig):
    """One request."""

    request: SweepRequestKind = Field(
        description="pause: trials save and leave; resume; stop: for good; spend: change `fields`"
    )
    fields: list[str] = Field(
        default=[], description="With spend, FIELD=VALUE: trials=64, parallel=8, limits.retries=2, goal.at_most=1.9"
    )
    sweep: str = Field(default="", description="The sweep's id; empty for the recipe's present sweep")


def steer_job(recipe: SweepRecipe, training: ModelRecipe) -> dg.JobDefinition:
    """The job that asks something of the sweeps of a recipe."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_ask", tags=pods.tags("steer"))
    def ask(
        context: dg.OpExecutionContext, config: SteeringConfig, tiers: Tiers, tracking: Tracking
    ) -> dg.Output[None]:
        """Raises Failure with the reason where the sweep cannot do so."""
        actor = identity.of_run(context.run)
        try:
            store = _named(config.sweep, recipe, training, tiers, tracking)
            answer = _ask(store, config, actor)
        except ValueError as error:
            raise dg.Failure(str(error)) from error
        return dg.Output(None, metadata={"sweep": store.sweep, **answer})

    @dg.job(
        name=f"{lane}_steer",
        description="Pauses, resumes or stops a sweep of this recipe, or changes what it may spend, while it runs.",
    )
    def job() -> None:
        ask()

    return job


def _ask(store: SweepStore, config: SteeringConfig, actor: str) -> dict[str, str]:
    """Put the request on record; what it changes, for a person. Raises ValueError."""
    match config.request:
        case SweepRequestKind.PAUSE:
            steering.pause(store, actor, config.why)
        case SweepRequestKind.RESUME:
            steering.resume(store, actor, config.why)
        case SweepRequestKind.STOP:
            steering.stop(store, actor, config.why)
        case SweepRequestKind.SPEND:
            changed = steering.spend(store, config.fields, actor, config.why)
            return {name: field_changes.change(old, new) for name, (old, new) in changed.items()}
    return {"asked": config.request.value}


def _named(id: str, recipe: SweepRecipe, training: ModelRecipe, tiers: Tiers, tracking: Tracking) -> SweepStore:
    """The sweep of this id, or the present one of the recipe. Raises ValueError for one that is not there."""
    if not id:
        return find_sweep(current_subject(recipe, training, tiers, tracking), tiers)
    known = {store.sweep: store for store in sweeps(tiers.durable_path / "sweeps")}
    own = [sweep for sweep in known if sweep.rpartition("-")[0] == recipe.name]
    if id not in own:
        expected = ", ".join(own) or "none"
        raise ValueError(f"sweep {id}: found no such sweep of {recipe.name}, expected one of {expected}")
    return known[id]
