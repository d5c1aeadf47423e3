"""Long waits: the observation of what a training waits for too long, with the reason; a new one when it changes.

There is at most one in the time that the training's terms call too long: a launcher may try something else each second
and give a new reason each time. As with incidents, an observation counts as shown when the event log has it.
"""

import dagster as dg

from slipway.assets import keys
from slipway.resources.event_log import observed
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.faults import Waiting


def unshown(
    instance: dg.DagsterInstance, facts: TrainingFacts, waiting: Waiting, settled: set[tuple[int, int]]
) -> list[dg.AssetObservation]:
    """The observation of what the training waits for, unless the event log has it.

    `settled` are the incarnations and periods for which it has one; it grows.
    """
    key = keys.key(facts.specification.recipe, "training")
    period = int(waiting.seconds // facts.run_policy.pending_seconds)
    if (waiting.incarnation, period) in settled:
        return []
    values: dict[str, str | int] = {"outcome": "pending", "incarnation": waiting.incarnation}
    if any(
        observed(instance, key, facts.id, {**values, **more})
        for more in ({"reason": waiting.reason}, {"period": period})
    ):
        settled.add((waiting.incarnation, period))
        return []
    metadata = {**values, "reason": waiting.reason, "seconds": waiting.seconds, "period": period}
    return [dg.AssetObservation(key, partition=facts.id, description=waiting.reason, metadata=metadata)]
