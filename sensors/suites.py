"""Suites: compares each evaluation set with the training documents of today.

Should be: each suite that was made is compared with the current snapshot of every dataset whose models it measures.
Is: the comparisons on record beside the suite.
Follows: a run that materialises the suite, and with it its check `decontaminated`, once for each new snapshot. One that
failed is requested again an hour later.
"""

import time

import dagster as dg

from slipway.assets import keys, subjects
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.suites import leaks, suite
from slipway.assets.suites.assets import compared_with
from slipway.recipes.load import Recipes
from slipway.recipes.suite import SuiteRecipe
from slipway.resources.tiers import Tiers
from slipway.sensors.support.runs import NewestRuns
from slipway.sensors.support.tick import Tick
from slipway.trainer.base.units import HOUR

NAME = "suites"
CHECKS_TAG = "slipway/checks-suite"
RETRY_SECONDS = HOUR


def suites(recipes: Recipes) -> dg.SensorDefinition:
    """The sensor over all recipes of suites."""
    datasets = {name: compared_with(recipe, recipes) for name, recipe in recipes.suites.items()}

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/suite"',
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Compares evaluation sets with the training documents of new snapshots.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers) -> dg.SensorResult:
        tick = Tick(context, NAME)
        tick.for_each(
            recipes.suites.values(),
            lambda recipe: subjects.suite(recipe.name),
            lambda recipe: _check(tick, recipe, datasets[recipe.name], tiers),
        )
        return tick.result()

    return sensor


def _check(tick: Tick, recipe: SuiteRecipe, datasets: list[str], tiers: Tiers) -> None:
    """Request a run for a suite that was not compared with a current snapshot; one that nobody needed yet is left."""
    durable = tiers.durable_path
    known = suite.named(tiers.durable_path, recipe.name)
    if known is None or known.recipe != recipe.content():
        return
    current = [snapshot for name in datasets if (snapshot := pointer.current(durable, name))]
    new = [sha256 for sha256 in current if not leaks.path(durable, known.suite, sha256).exists()]
    if not new:
        return
    value = f"{known.suite[:16]}.{new[0][:16]}"
    run = NewestRuns(tick.instance, CHECKS_TAG, [value]).newest(value)
    if run is None or (not run.unfinished and time.time() - run.ended > RETRY_SECONDS):
        tick.request([keys.key(recipe.name, "suite")], {CHECKS_TAG: value})
