"""The quality watch: measures the champion on the data of today, and acts on a fall.

A champion that is worse than on record by more than both intervals is rolled back to the one before it where that one
is better on the same data, and a training starts, with the fall as its cause. One job and one schedule for each recipe
with `renewal.quality`.
"""

import dagster as dg

from slipway.assets import keys, training_data
from slipway.assets.execution import pods
from slipway.assets.measurement import in_a_run
from slipway.assets.promotion import champion_quality
from slipway.assets.promotion.gate import Gate
from slipway.assets.retraining import NotRenewed, renew
from slipway.recipes.load import Recipes
from slipway.recipes.training import ModelRecipe
from slipway.resources.compute.protocol import Compute
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions.promotion import NotPromoted, Promotion
from slipway.resources.tiers import Tiers

BY = "quality watch"


def watched_recipes(recipes: Recipes) -> list[ModelRecipe]:
    """The recipes whose champions are watched."""
    return [recipe for recipe in recipes.trainings.values() if recipe.renewal and recipe.renewal.quality]


def job_of(recipe: ModelRecipe) -> dg.JobDefinition:
    """The job that measures the champion of a recipe's model."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_measure_champion", tags=pods.tags("model"))
    def measure_champion(
        context: dg.OpExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> dg.Output[None]:
        """Raises Failure where the champion cannot be measured."""
        measuring = in_a_run(context, tiers, compute)  # type: ignore[arg-type]
        gate = Gate(measuring, tracking, recipe.registered_model, {recipe.name: recipe})
        try:
            sentences = watch(gate, recipe, context.instance)
        except ValueError as error:
            raise dg.Failure(f"model {gate.model}: its champion cannot be measured: {error}") from error
        context.log.info("; ".join(sentences))
        return dg.Output(None, metadata={"result": "; ".join(sentences)})

    @dg.job(name=f"{lane}_quality", description="Measures the champion on the current snapshot, and acts on a fall.")
    def job() -> None:
        measure_champion()

    return job


def schedule_of(recipe: ModelRecipe) -> dg.ScheduleDefinition:
    """When it is measured."""
    assert recipe.renewal is not None and recipe.renewal.quality is not None
    return dg.ScheduleDefinition(
        name=f"{keys.lane(recipe.name)}_quality_watch",
        job_name=f"{keys.lane(recipe.name)}_quality",
        cron_schedule=recipe.renewal.quality,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


def watch(gate: Gate, recipe: ModelRecipe, instance: dg.DagsterInstance) -> list[str]:
    """What was found and done, a sentence each. Raises ValueError and dg.Failure where nothing can be found."""
    durable = gate.tiers.durable_path
    current = training_data.current(recipe, durable)
    measured = champion_quality.of_champion(gate, recipe, current) if current else None
    if current is None or measured is None:
        return ["there is no champion, or no snapshot"]
    now = f"version {measured.version}: {measured.now.mean:.4f} {measured.unit}"
    if not measured.has_fallen:
        return [f"{now}: no worse than on record"]
    assert measured.then is not None
    sentences = [f"{now}, on record {measured.then.mean:.4f}: it has fallen"]
    if (former := champion_quality.better_before(gate, recipe, current)) is not None:
        sentences.append(come_back(gate, former, sentences[0]))
    try:
        origin = {"renewal": "quality", **{name: round(value, 5) for name, value in measured.figures().items()}}
        store = renew(recipe, f"quality {measured.on[:12]}", origin, gate.tiers, gate.tracking, instance, BY)
        sentences.append(f"{store.id} starts")
    except NotRenewed as error:
        sentences.append(f"no training starts: {error}")
    return sentences


def come_back(gate: Gate, former: Promotion, why: str) -> str:
    """Make a former champion the champion again; what came of it, in words: a fall leads to a training in any case."""
    version = gate.registry.find(gate.model, former.manifest)
    if version is None:
        return f"version {former.version} does not come back: it is not registered any more"
    try:
        gate.rollback(version, BY, why)
    except NotPromoted as error:
        return f"version {version.number} does not come back: {error}"
    return f"version {version.number} is the champion again"
