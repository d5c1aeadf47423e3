"""Metrics shipping: delivers to MLflow what trainings and trials have written into their ledgers.

Should be: every event of a ledger is in MLflow, once.
Is: how far the delivery of each ledger has come.
Follows: what is new is delivered. While MLflow is away the ledgers keep everything, and the tick names the trainings
whose metrics are not delivered yet.
"""

from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from assets import subjects
from assets.subjects import Subject
from resources.mlflow.tracking import Delivery, Tracking
from resources.tiers import Tiers
from resources.trainings.duties import Duty, OpenDuty
from resources.trainings.roots import trainings, trials
from resources.trainings.store import TrainingStore
from sensors.support.tick import Tick
from trainer.record import files, ledger

NAME = "metrics_shipping"


@dataclass(frozen=True)
class Undelivered:
    """A training or trial whose metrics are to be delivered."""

    duty: OpenDuty
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
    tick, roots = Tick(context, NAME), [("", trainings(tiers)), *trials(tiers).items()]
    spools = [
        Undelivered(duty, root.store(duty.training), sweep)
        for sweep, root in roots
        for duty in root.with_open(Duty.TRACKING)
    ]
    for gone in _delivered.keys() - {spool.store.folder for spool in spools}:
        del _delivered[gone]
    tick.each(spools, lambda spool: spool.subject, lambda spool: _deliver(tick, spool, tracking))
    return tick.result()


_delivered: dict[Path, tuple[object, ...]] = {}
"""By folder, how the ledger and the end of a training were when all of it had been delivered."""


def _deliver(tick: Tick, spool: Undelivered, tracking: Tracking) -> None:
    """Deliver what is new of one training."""
    state = _state(spool.store)
    if _delivered.get(spool.store.folder) == state:
        return
    recipe, life = spool.store.specification().recipe, spool.store.life()
    try:
        done = tracking.ship(spool.store, recipe, {"slipway.sweep": spool.sweep} if spool.sweep else {})
    except Exception as error:
        if isinstance(error, ValueError) or (isinstance(error, OSError) and error.filename):
            raise  # its own records
        # Whatever keeps MLflow away: the ledger has it all, and it is tried again.
        tick.postpone(f"{spool.store.id}: its metrics are not delivered yet: {error}", spool.subject)
        return
    if done is Delivery.WHOLE:
        spool.duty.close(life)
    elif done is Delivery.UP_TO_DATE:
        _delivered[spool.store.folder] = state


def _state(store: TrainingStore) -> tuple[object, ...]:
    """The sizes of the ledger's segments, which are only appended to, and the names of what says that it is over."""
    sizes = tuple((path.name, path.stat().st_size) for path in ledger.segments(store.folder))
    return (sizes, *(tuple(files.names(store.folder, name)) for name in (files.DESIRED, files.CLAIMS, files.EXITS)))
