"""Building a dataset by hand: its lane is materialised in this process, as a run of Dagster does it."""

import logging
from collections.abc import Callable

import dagster as dg

from slipway.assets.datasets.assets import dataset_assets
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.execution.advice import Advice, advised
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources.tiers import Tiers


def build(recipe: DatasetRecipe, tiers: Tiers, instance: dg.DagsterInstance, report: Callable[[str], None]) -> str:
    """Build the snapshot of the present source, which the dataset points at afterwards; returns its SHA-256.

    Parts that have not changed are not made again. Raises what a step raises (ValueError for a source that cannot be
    used), and ValueError when the snapshot does not pass a check.
    """
    definitions = dg.Definitions(
        assets=dataset_assets(recipe), resources={"tiers": tiers}, loggers={"lines": _lines(report)}
    )
    job = advised(definitions, stacks=False).resolve_implicit_global_asset_job_def()
    try:
        job.execute_in_process(instance=instance, run_config={"loggers": {"lines": {}}})
    except Advice as advice:
        raise advice.error from None
    current = pointer.current(tiers.durable_path, recipe.name)
    assert current is not None
    return current


def _lines(report: Callable[[str], None]) -> dg.LoggerDefinition:
    """A logger that passes on the lines of the steps, without Dagster's own events."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = getattr(record, "dagster_meta", {})
            if not said.get("dagster_event"):
                report(str(said.get("orig_message", record.getMessage())))

    def lines(_: dg.InitLoggerContext) -> logging.Logger:
        made = logging.Logger("slipway", logging.INFO)
        made.addHandler(Handler())
        return made

    return dg.LoggerDefinition(lines)
