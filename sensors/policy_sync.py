"""Policy sync: brings the terms of each unfinished training to its recipe's, and shows what was changed by hand.

Should be: a training that should run has the terms of its recipe as this code location has it, but for what a person
set for that training alone; and every change that it took over while it ran is shown.
Is: the terms and changes in the training's store, and what the event log has of them.
Follows: an observation of what changes, by whom and when it takes effect; once the event log has it, the terms are
replaced, and the ledger has the change too. So no crash between the two leaves a change that nobody can see. A change
that ranks took over, or refused, is observed with the step.
"""

import dagster as dg

from slipway.assets import keys, subjects
from slipway.assets.results import change_description, change_metadata
from slipway.assets.training import common_policy, current_policy, follows
from slipway.recipes.training import TrainingRecipe
from slipway.resources.compute.protocol import Compute
from slipway.resources.event_log import observed
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import updates
from slipway.resources.trainings.records import RunPolicy, changes_sentence, policy_changes, takes_effect
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.observation_cache import recalled
from slipway.sensors.support.tick import Tick
from slipway.trainer.record import files

NAME = BY = "terms"


def policy_sync(recipes: dict[str, TrainingRecipe]) -> dg.SensorDefinition:
    """The sensor over all training recipes."""

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/training"',
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Gives unfinished trainings the terms of their recipes when those change, and shows what changes.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        tick = Tick(context, NAME)
        common = {name: common_policy(recipe) for name, recipe in recipes.items()}
        root = all_trainings(tiers)
        memory = recalled(tick.instance, NAME, root.root)
        pending = root.pending(WorkQueue.RUN)
        memory.keep_only(pending)

        def bring(id: str) -> None:
            store = root.store(id)
            recipe = id.rpartition("-")[0]
            paths = [f"{store.folder}/{name}" for name in (files.RUN_POLICY, files.APPLIED)]
            if memory.is_quiet(id, paths) and memory.entries.get(id) == common.get(recipe):
                return
            if _show_changes(tick, store, recipe):
                return
            policy = store.run_policy()
            if recipe in recipes and not follows(policy, common[recipe]):
                _follow(tick, store, policy, recipes[recipe], compute.revision)
            else:
                memory.entries[id] = common.get(recipe)
                memory.found_nothing(id)

        tick.for_each(pending, subjects.training, bring)
        return tick.result()

    return sensor


def _show_changes(tick: Tick, store: TrainingStore, recipe: str) -> bool:
    """Show what ranks took over of the changes by hand; whether there was anything to show."""
    key = keys.key(recipe, "training")
    reported = store.read().reported
    unreported = [update for update in updates.known(store.folder) if update.applied and _mark(update) not in reported]
    for change in unreported:
        metadata = change_metadata(change)
        if observed(tick.instance, key, store.id, {"change": change.number, "state": change.state}):
            store.mark_reported(_mark(change))
        else:
            description = change_description(change)
            tick.events.append(dg.AssetObservation(key, partition=store.id, description=description, metadata=metadata))
    return bool(unreported)


def _mark(change: updates.KnownChange) -> str:
    assert change.applied is not None
    return f"change-{change.number:06d}-{change.applied.step}"


def _follow(tick: Tick, store: TrainingStore, policy: RunPolicy, recipe: TrainingRecipe, revision: str) -> None:
    """Bring one training's terms to what its recipe says. Raises ValueError when they do not fit the training."""
    now = current_policy(recipe, policy, store.specification().identity_config)
    differing = policy_changes(policy, now)
    if not differing or not store.read().unfinished:
        return
    key = keys.key(recipe.name, "training")
    source = f"recipe {recipe.name}, owned by {recipe.owner}"
    source += f", at revision {revision}" if revision else ""
    summary: dict[str, str | int] = {"terms": policy.edition + 1, "changed": changes_sentence(differing)}
    if observed(tick.instance, key, store.id, summary):
        store.change_run_policy(now, BY, source)
    else:
        metadata = {**summary, "by": source, "takes_effect": takes_effect(differing)}
        tick.events.append(
            dg.AssetObservation(key, partition=store.id, description=f"terms: {summary['changed']}", metadata=metadata)
        )
