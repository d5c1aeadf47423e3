"""Pending: a training that waits for too long is told of with the reason, and told of again when that changes.

No more than once in the time that its terms call too long: a reason may name what is tried anew each second. As with
incidents, it counts as told when the event log has it.
"""

import dagster as dg

from assets import keys
from resources.event_log import observed
from resources.training_faults import Waiting
from resources.training_store import TrainingStore


def untold(instance: dg.DagsterInstance, store: TrainingStore, waiting: Waiting) -> list[dg.AssetObservation]:
    """The observation of what the training waits for, unless the event log has it."""
    key = keys.key(store.specification().recipe, "training")
    period = int(waiting.seconds // store.terms().pending_seconds)
    mark = f"pending-{waiting.incarnation:06d}-{period}"
    if store.reported(mark):
        return []
    shown: dict[str, str | int] = {"outcome": "pending", "incarnation": waiting.incarnation}
    if any(
        observed(instance, key, store.id, {**shown, **more})
        for more in ({"reason": waiting.reason}, {"period": period})
    ):
        store.mark_reported(mark)
        return []
    metadata = {**shown, "reason": waiting.reason, "seconds": waiting.seconds, "period": period}
    return [dg.AssetObservation(key, partition=store.id, description=waiting.reason, metadata=metadata)]
