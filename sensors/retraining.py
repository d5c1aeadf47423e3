"""Retraining: trains a recipe anew on its schedule, and when its data or what people ask have changed.

The schedule. Should be: each tick of a recipe's schedule has led to a training of its own. Is: the current snapshot of
the recipe's dataset. Follows: a training whose cause key is the tick, so that a tick that is evaluated twice gives one
training. Where the recipe's trainings have spent its budget (`renewal.gpu_hours`), the tick says so and starts none.

The sensor. Should be: the newest training of a recipe with `renewal.new_data` or `renewal.drift` has nearly all
documents of the current snapshot, and documents like those; with `renewal.live_drift`, documents like what people ask.
Is: the current snapshot of each dataset, the snapshot of the recipe's newest training, and what the front has counted.
Follows: a training on the current snapshot, whose cause names the snapshot, so that a tick that is evaluated twice
gives one training. A snapshot that was looked at is not looked at again, unless people ask otherwise by then; one that
the recipe's limits hold back is.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import dagster as dg

from slipway.assets import drift, keys, training_data
from slipway.assets.datasets.snapshots.difference import difference
from slipway.assets.initial import with_initial_weights
from slipway.assets.retraining import NotRenewed, RenewedBefore, check_budget, of_recipe, renew
from slipway.assets.serving import asked_of
from slipway.assets.training import run_policy, specification
from slipway.recipes.renewal import RenewalSection
from slipway.recipes.training import ModelRecipe, TrainingRecipe
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import Trainings, all_trainings
from slipway.sensors import job_watch
from slipway.trainer.base import parsing
from slipway.trainer.data import snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot

NAME = "renewals"
LIVE_DRIFT_MARK = ": asked otherwise"
"""In the cursor, after the name of a recipe: the snapshot that was looked at as people asked otherwise."""


def retraining_schedule(recipe: TrainingRecipe) -> dg.ScheduleDefinition:
    """The schedule of one training recipe."""
    assert recipe.retrain is not None

    @dg.schedule(
        name=f"{keys.lane(recipe.name)}_retraining",
        cron_schedule=recipe.retrain,
        target=dg.AssetSelection.assets(keys.key(recipe.name, "training")),
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Trains {recipe.name} anew on the current snapshot.",
    )
    def schedule(
        context: dg.ScheduleEvaluationContext, tiers: Tiers, tracking: Tracking
    ) -> dg.RunRequest | dg.SkipReason:
        current = training_data.current(recipe, tiers.durable_path)
        if current is None:
            return dg.SkipReason(training_data.missing_snapshots(recipe, tiers.durable_path))
        tick = context.scheduled_execution_time.isoformat()
        root = all_trainings(tiers)
        initialized = with_initial_weights(recipe, current, tiers, tracking)
        proposal = specification(initialized, current, tiers, cause=tick)
        try:
            _check_budget(recipe, proposal.id, root)
        except NotRenewed as error:
            return dg.SkipReason(str(error))
        store = root.propose(proposal, run_policy(initialized, {"schedule": tick}))
        keys.add_partition(context.instance, keys.training_partitions(recipe.name), store.id)
        root.start(store, "retraining", f"scheduled for {tick}")
        return job_watch.training_request(store.read())

    return schedule


def retraining_sensor(recipes: dict[str, TrainingRecipe]) -> dg.SensorDefinition:
    """The sensor over all recipes that are trained anew by what their dataset's snapshots have."""
    compared = {name: recipe for name, recipe in recipes.items() if recipe.renewal and _compares(recipe.renewal)}

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/training"',
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts trainings anew on snapshots with enough new documents, or with documents of another kind.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking
    ) -> dg.SensorResult | dg.SkipReason:
        checked: dict[str, str] = parsing.value(context.cursor or "{}")
        lines = []
        for name, recipe in compared.items():
            try:
                current = training_data.current(recipe, tiers.durable_path)
                if current is None or _is_checked(checked, recipe, current, tiers):
                    continue
                lines.append(_look_at_data(recipe, current, tiers, tracking, context.instance))
                checked[name if checked.get(name) != current else f"{name}{LIVE_DRIFT_MARK}"] = current
            except NotRenewed as error:
                lines.append(f"{name} waits: {error}")
            except (ValueError, OSError) as error:  # each recipe alone
                lines.append(f"{name}: {error}")
        return dg.SensorResult(
            cursor=json.dumps(checked), skip_reason=dg.SkipReason("; ".join(lines) or "nothing is new")
        )

    return sensor


@dataclass(frozen=True)
class RetrainingReason:
    """Why a training may start anew on a snapshot."""

    name: str
    holds: bool
    figures: Mapping[str, float]
    sentence: str


def new_share(before: str, current: str, tiers: Tiers) -> float:
    """The share of the current snapshot's documents that the one before lacks; 1 where that is not known any more."""
    if before == current:
        return 0.0
    now = snapshots.read(tiers.durable_path, current)
    if isinstance(now, MixtureSnapshot):
        return _new_share_of(now, before, tiers)
    try:
        changes = difference(snapshots.read(tiers.durable_path, before), now, tiers.durable_path).documents
    except ValueError:
        return 1.0
    if changes is None:
        return 1.0
    return (changes.added + changes.changed) / max(1, int(now.documents["kept"]))


def _check_budget(recipe: TrainingRecipe, id: str, root: Trainings) -> None:
    """Raises NotRenewed when the budget is spent; a training that has begun is no further one."""
    if recipe.renewal is None or recipe.renewal.gpu_hours is None:
        return
    known = of_recipe(root, recipe.name)
    if id not in (training.store.id for training in known):
        check_budget(recipe.renewal, known, time.time())


def _look_at_data(
    recipe: TrainingRecipe, current: str, tiers: Tiers, tracking: Tracking, instance: dg.DagsterInstance
) -> str:
    """What was done about a snapshot. Raises NotRenewed and ValueError."""
    known = of_recipe(all_trainings(tiers), recipe.name)
    if not known:
        return f"{recipe.name}: it was never trained"  # a person starts the first one
    before = known[-1].store.specification().snapshot
    assert recipe.renewal is not None
    reasons = []
    if before == current:
        return f"{recipe.name}: it has been trained on the current snapshot"
    for reason in _reasons(recipe, before, current, tiers):
        if reason.holds:
            origin = {"renewal": reason.name, "before": before, **reason.figures}
            cause = f"{reason.name} {current[:12]}"
            try:
                return f"{renew(recipe, cause, origin, tiers, tracking, instance, NAME).id}: {reason.sentence}"
            except RenewedBefore as error:  # no later look at this snapshot finds anything else
                return f"{recipe.name}: {error}"
        reasons.append(reason.sentence)
    return f"{recipe.name}: {', '.join(reasons)}"


def _compares(renewal: RenewalSection) -> bool:
    return any(threshold is not None for threshold in (renewal.new_data, renewal.drift, renewal.live_drift))


def _is_checked(checked: Mapping[str, str], recipe: TrainingRecipe, current: str, tiers: Tiers) -> bool:
    """Whether a snapshot was looked at; people may ask otherwise after that, and then it is looked at once more."""
    if checked.get(recipe.name) != current:
        return False
    if checked.get(f"{recipe.name}{LIVE_DRIFT_MARK}") == current:
        return True
    return (reason := _live_drift_reason(recipe, tiers)) is None or not reason.holds


def _live_drift_reason(recipe: TrainingRecipe, tiers: Tiers) -> RetrainingReason | None:
    """What people ask the champion, beside what it was trained on; None where that is not compared or not known."""
    assert recipe.renewal is not None
    if recipe.renewal.live_drift is None or not isinstance(recipe, ModelRecipe):
        return None
    live_drift = asked_of(tiers, recipe.registered_model)
    if live_drift is None:
        return None
    sentence = ", ".join(f"{name} of what is asked differ by {value:.3g}" for name, value in live_drift.figures.items())
    holds = live_drift.cause >= recipe.renewal.live_drift
    return RetrainingReason("live requests", holds, {"asked": live_drift.texts, **live_drift.figures}, sentence)


def _reasons(recipe: TrainingRecipe, before: str, current: str, tiers: Tiers) -> Iterator[RetrainingReason]:
    """What the recipe compares, one after the other: a later one is not computed where an earlier one holds."""
    assert recipe.renewal is not None
    renewal = recipe.renewal
    if renewal.new_data is not None:
        share = new_share(before, current, tiers)
        sentence = f"{share:.1%} of the documents are new"
        yield RetrainingReason("new data", share >= renewal.new_data, {"share": round(share, 4)}, sentence)
    if renewal.drift is not None:
        distances = drift.between(before, current, tiers)
        figures = {name: round(value, 4) for name, value in distances.items()}
        sentence = (
            ", ".join(f"{name} drifted by {value:.3g}" for name, value in distances.items()) or "drift is not known"
        )
        yield RetrainingReason("drift", max(distances.values(), default=0.0) >= renewal.drift, figures, sentence)
    if (reason := _live_drift_reason(recipe, tiers)) is not None:
        yield reason


def _new_share_of(now: MixtureSnapshot, before: str, tiers: Tiers) -> float:
    """The share of a mixture: of the documents of all its datasets together."""
    try:
        former = snapshots.read(tiers.durable_path, before)
    except ValueError:
        return 1.0
    known = {part.dataset: part.snapshot for part in former.sources} if isinstance(former, MixtureSnapshot) else {}
    new = 0.0
    total = 0
    for source in now.sources:
        documents = int(snapshots.read(tiers.durable_path, source.snapshot).documents["kept"])
        share = new_share(known[source.dataset], source.snapshot, tiers) if source.dataset in known else 1.0
        new = new + share * documents
        total = total + documents
    return new / max(1, total)
