"""Metrics shipping: delivers to MLflow what trainings and trials have written into their ledgers.

Should be: every event of a ledger and every score of a checkpoint is in MLflow, once, with the files that say what ran
and the page of what has ended; each sweep is a run there, with its trials under it.
Is: how far the delivery of each ledger and of the scores has come, and whether a sweep that is over was delivered.
Follows: what is new is delivered. While MLflow is away the ledgers keep everything, and the tick names the trainings
whose metrics are not delivered yet.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from slipway.assets import keys, subjects
from slipway.assets.subjects import Subject
from slipway.assets.sweeps import tracked
from slipway.assets.sweeps.store import SweepStore
from slipway.resources.mlflow.tracking import Delivery, Tracking
from slipway.resources.pages import page_keeper
from slipway.resources.pages.reading import TrainingReader
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import PendingWork, TrainingStore, WorkQueue, all_trainings, all_trials
from slipway.sensors.support.tick import Tick
from slipway.trainer.record import files, ledger

NAME = "metrics_shipping"


@dataclass(frozen=True)
class Undelivered:
    """A training or trial whose metrics are to be delivered."""

    work: PendingWork
    store: TrainingStore
    sweep: str
    """The sweep of a trial, empty for a training."""

    @property
    def subject(self) -> Subject:
        return subjects.trial(self.sweep, self.store.id) if self.sweep else subjects.training(self.store.id)


@dg.sensor(
    name=NAME,
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Delivers the ledgers' metrics to MLflow, outside the trainings' path.",
)
def metrics_shipping(context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking) -> dg.SensorResult:
    tick = Tick(context, NAME)
    by_sweep = [("", all_trainings(tiers)), *all_trials(tiers).items()]
    spools = [
        Undelivered(work, root.store(work.training), sweep)
        for sweep, root in by_sweep
        for work in root.pending_work(WorkQueue.TRACKING)
    ]
    folder = tiers.durable_path / "sweeps"
    sweep_work = tracked.pending_work_below(folder)
    logs = {id: _logs.setdefault(folder / id, SweepStore(folder / id)) for id in _sweeps_of(spools, sweep_work)}
    for gone in _logs.keys() - {log.folder for log in logs.values()}:
        del _logs[gone]
    for gone in _delivered.keys() - {spool.store.folder for spool in spools} - _logs.keys():
        del _delivered[gone]
    delivery = functools.partial(_deliver, tick, tiers.durable_path, tracking)
    tick.for_each(spools, lambda spool: spool.subject, lambda spool: delivery(spool, logs.get(spool.sweep)))
    tick.for_each(sweep_work, _sweep_subject, lambda work: _deliver_sweep(tick, work, logs[work.training], tracking))
    return tick.result()


_delivered: dict[Path, tuple[object, ...]] = {}
"""By folder, how the ledger and the end of a training were when all of it had been delivered."""


_logs: dict[Path, SweepStore] = {}
"""By folder, the log of a sweep that has something to deliver: what was read of it is not read again."""


def _sweeps_of(spools: Sequence[Undelivered], sweep_work: Sequence[PendingWork]) -> set[str]:
    return {spool.sweep for spool in spools if spool.sweep} | {work.training for work in sweep_work}


def _sweep_subject(work: PendingWork) -> Subject:
    return subjects.sweep(work.training.rpartition("-")[0] or work.training, work.training)


def _deliver_sweep(tick: Tick, work: PendingWork, log: SweepStore, tracking: Tracking) -> None:
    """Bring the run of one sweep up to date."""
    sweep = log.state()
    if sweep is None:  # it is about to be opened
        return
    over = tracked.is_over(sweep)
    state = (len(sweep.finished), sweep.closed)
    if _delivered.get(log.folder) == state and not over:
        return
    run = tracked.sweep_run(log, sweep)
    try:
        tracking.ship_sweep(log.folder, run)
    except Exception as error:
        if isinstance(error, ValueError) or (isinstance(error, OSError) and error.filename):
            raise  # its own records
        tick.postpone(f"{log.sweep}: its run in MLflow is not up to date yet: {error}", _sweep_subject(work))
        return
    _delivered[log.folder] = state
    if over:
        work.close(tracked.GENERATION)


def _deliver(tick: Tick, durable: Path, tracking: Tracking, spool: Undelivered, log: SweepStore | None) -> None:
    """Deliver what is new of one training."""
    state = _state(spool.store)
    if _delivered.get(spool.store.folder) == state:
        return
    recipe = spool.store.specification().recipe
    generation = spool.store.desired_generation()
    sweep = log.state() if log else None
    trial = tracked.trial_run(log, sweep, spool.store.id) if log and sweep else None
    if log and trial is None:  # its sweep's log is behind: the next tick knows its name
        return
    run = tracking.run_of(spool.store)
    try:
        done = tracking.ship(spool.store, recipe, {}, trial)
        if done is not Delivery.IN_PART:
            tracking.ship_artifacts(spool.store, durable, *_pages(spool, durable, done))
    except Exception as error:
        if isinstance(error, ValueError) or (isinstance(error, OSError) and error.filename):
            raise  # its own records
        # Whatever keeps MLflow away: the ledger has it all, and it is tried again.
        tick.postpone(f"{spool.store.id}: its metrics and artefacts are not all delivered yet: {error}", spool.subject)
        return
    finally:  # the run may have been made before something failed
        if not run and (page := tracking.pages.of_run(tracking.run_of(spool.store))):
            tick.events.append(_tracked(spool, recipe, page))
    if done is Delivery.COMPLETE:
        spool.work.close(generation)
    elif done is Delivery.UP_TO_DATE:
        _delivered[spool.store.folder] = state


def _pages(spool: Undelivered, durable: Path, done: Delivery) -> list[str]:
    """The page of a training that has ended, as it is then; a trial has none: its sweep has a report."""
    if spool.sweep or done is not Delivery.COMPLETE:
        return []
    if page_keeper.is_behind(spool.store):  # `training_status`, which writes it, comes later
        page_keeper.write(TrainingReader(durable), spool.store)
    return [page_keeper.PAGE]


def _tracked(spool: Undelivered, recipe: str, page: str) -> dg.AssetObservation:
    """The event that leads from a partition to its run in MLflow; there is one when the run was made."""
    key = keys.key(spool.sweep.rpartition("-")[0], "trial") if spool.sweep else keys.key(recipe, "training")
    metadata = {"mlflow": dg.MetadataValue.url(page)}
    return dg.AssetObservation(key, partition=spool.store.id, description="its run in MLflow", metadata=metadata)


def _state(store: TrainingStore) -> tuple[object, ...]:
    """The sizes of the ledger's segments, which are only appended to, and the names of its scores and of what says that
    it is over."""
    sizes = tuple((path.name, path.stat().st_size) for path in ledger.segments(store.folder))
    folders = (files.DESIRED, files.CLAIMS, files.EXITS, files.EVALUATIONS)
    return (sizes, *(tuple(files.names(store.folder, name)) for name in folders))
