"""Terms: brings the terms of each unfinished training to what its recipe says now.

Should be: a training that should run has the terms of its recipe as this code location has it, but for what a person
set for that training alone.
Is: the terms in the training's store, and what the event log has of their changes.
Follows: an observation of what changes, by whom and when it takes effect; once the event log has it, the terms are
replaced, and the ledger has the change too. So no crash between the two leaves a change that nobody can see.
"""

import dagster as dg

from assets import keys, subjects
from assets.training import follows, terms_now, terms_of_all
from recipes.training import TrainingRecipe
from resources.compute.protocol import Compute
from resources.event_log import observed
from resources.tiers import Tiers
from resources.trainings.changes import changes, sentence, takes_effect
from resources.trainings.duties import Duty
from resources.trainings.records import Terms
from resources.trainings.roots import trainings
from resources.trainings.store import TrainingStore
from sensors.support.memory import recalled
from sensors.support.tick import Tick
from trainer.record import files

NAME = BY = "terms"


def terms(recipes: dict[str, TrainingRecipe]) -> dg.SensorDefinition:
    """The sensor over all training recipes."""

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/training"',
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Gives unfinished trainings the terms of their recipes when those change, and shows what changes.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        tick, common = Tick(context, NAME), {name: terms_of_all(recipe) for name, recipe in recipes.items()}
        root = trainings(tiers)
        memory, owed = recalled(tick.instance, NAME, root.root), root.opened(Duty.RUN)
        memory.keep_only(owed)

        def bring(id: str) -> None:
            store, recipe = root.store(id), id.rpartition("-")[0]
            if memory.is_quiet(id, [f"{store.folder}/{files.TERMS}"]) and memory.kept.get(id) == common.get(recipe):
                return
            held = store.terms()
            if recipe in recipes and not follows(held, common[recipe]):
                _follow(tick, store, held, recipes[recipe], compute.revision)
            else:
                memory.kept[id] = common.get(recipe)
                memory.found_nothing(id)

        tick.each(owed, subjects.training, bring)
        return tick.result()

    return sensor


def _follow(tick: Tick, store: TrainingStore, held: Terms, recipe: TrainingRecipe, revision: str) -> None:
    """Bring one training's terms to what its recipe says. Raises ValueError when they do not fit the training."""
    now = terms_now(recipe, held, store.specification().numbers)
    changed = changes(held, now)
    if not changed or not store.read().unfinished:
        return
    key, source = keys.key(recipe.name, "training"), f"recipe {recipe.name}, owned by {recipe.owner}"
    source += f", at revision {revision}" if revision else ""
    shown: dict[str, str | int] = {"terms": held.edition + 1, "changed": sentence(changed)}
    if observed(tick.instance, key, store.id, shown):
        store.change_terms(now, BY, source)
    else:
        metadata = {**shown, "by": source, "takes_effect": takes_effect(changed)}
        tick.events.append(
            dg.AssetObservation(key, partition=store.id, description=f"terms: {shown['changed']}", metadata=metadata)
        )
