"""What an operation does for each training alone, so that what is wrong with one does not keep it from the others.

A problem is shown once on the training, as the sensors do, and the operation's run lists it at its end.
"""

from collections.abc import Callable, Iterable, Iterator

import dagster as dg

from slipway.assets import subjects
from slipway.resources.event_log import observed
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import TrainingStore, all_trainings, all_trials

Context = dg.OpExecutionContext | dg.AssetExecutionContext | dg.AssetCheckExecutionContext


def everything(tiers: Tiers) -> Iterator[TrainingStore]:
    """All trainings, and all trials of all sweeps."""
    for root in [all_trainings(tiers), *all_trials(tiers).values()]:
        yield from root.stores()


def apply(context: Context, stores: Iterable[TrainingStore], act: Callable[[TrainingFacts], None]) -> list[str]:
    """Act on the facts of each training; what went wrong, a sentence for each training that it went wrong with."""
    failed = []
    for store in stores:
        try:
            act(store.read())
        except Exception as error:
            report_problem(context, store, error)
            failed.append(f"{store.id}: {subjects.problem(error)}")
    return failed


def report_problem(context: Context, store: TrainingStore, error: Exception) -> None:
    """Report what is wrong with a training, in the log, and on the training unless it is shown there already."""
    who = subjects.of_store(store)
    context.log.warning(f"{who.name}: {subjects.problem(error)}", exc_info=error)
    assert who.key is not None and who.partition is not None
    if not observed(context.instance, who.key, who.partition, {"problem": subjects.problem(error)}):
        context.instance.report_runless_asset_event(subjects.observation(who, context.run.job_name, error))
