"""Metrics shipping: what trainings and trials have written into their ledgers goes to MLflow, once.

While MLflow is away the ledgers keep everything, and the tick says so.
"""

import dagster as dg

from resources.compute import trainings, trials
from resources.tiers import Tiers
from resources.tracking import Tracking
from resources.training_store import Trainings

DUTY = "tracking"


@dg.sensor(
    name="metrics_shipping",
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Delivers the ledgers' metrics to MLflow, outside the trainings' path.",
)
def metrics_shipping(context: dg.SensorEvaluationContext, tiers: Tiers, tracking: Tracking) -> dg.SensorResult:
    failures = []
    for known, sweep in _roots(tiers):
        for id in known.opened(DUTY):
            store = known.store(id)
            tags = {"slipway.sweep": sweep} if sweep else {}
            try:
                if tracking.ship(store, store.specification().recipe, tags):
                    known.close(id, DUTY)
            except Exception as error:
                # Whatever keeps MLflow away: the ledger has it all, and the next tick tries again.
                context.log.warning(f"{id}: MLflow did not take the metrics: {error}")
                failures.append(id)
    return dg.SensorResult(skip_reason=f"not delivered yet: {', '.join(failures)}" if failures else None)


def _roots(tiers: Tiers) -> list[tuple[Trainings, str]]:
    """Where ledgers are: the trainings, and each sweep's trials with the sweep's id."""
    return [(trainings(tiers), ""), *((known, sweep) for sweep, known in trials(tiers).items())]
