"""Pending: a training that waits for too long is told of with the reason, once, and again when the reason changes.

As with incidents it counts as told when the event log has it.
"""

import dagster as dg

from assets import keys
from resources.event_log import observed
from resources.training_faults import Waiting
from resources.training_store import TrainingStore
from trainer import digest


def untold(instance: dg.DagsterInstance, store: TrainingStore, waiting: Waiting) -> list[dg.AssetObservation]:
    """The observation of what the training waits for, unless the event log has it."""
    key, mark = keys.key(store.specification().recipe, "training"), _mark(waiting)
    if store.reported(mark):
        return []
    shown: dict[str, str | int] = {"outcome": "pending", "reason": waiting.reason, "incarnation": waiting.incarnation}
    if observed(instance, key, store.id, shown):
        store.mark_reported(mark)
        return []
    return [
        dg.AssetObservation(
            key, partition=store.id, description=waiting.reason, metadata={**shown, "seconds": waiting.seconds}
        )
    ]


def _mark(waiting: Waiting) -> str:
    return f"pending-{waiting.incarnation:06d}-{digest.sha256(waiting.reason.encode())[:12]}"
