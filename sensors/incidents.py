"""Incidents: every incarnation that failed is shown once, with its cause, whoever noticed that it did.

An incident counts as shown when the event log has it: no crash loses one.
"""

import dagster as dg

from assets import keys
from resources.event_log import observed
from resources.training_store import TrainingStore
from trainer.fence import Exit


def unshown(instance: dg.DagsterInstance, store: TrainingStore) -> list[dg.AssetObservation]:
    """The observations of those incidents that the event log does not have yet."""
    key = keys.key(store.specification().recipe, "training")
    found = []
    for failure in store.failures():
        if store.reported(_mark(failure)):
            continue
        if observed(instance, key, store.id, {"cause": failure.reason, "incarnation": failure.incarnation}):
            store.mark_reported(_mark(failure))
        else:
            found.append(_observation(key, store.id, failure))
    return found


def _observation(key: dg.AssetKey, partition: str, failure: Exit) -> dg.AssetObservation:
    return dg.AssetObservation(
        key,
        partition=partition,
        description=failure.reason,
        metadata={
            "cause": failure.reason,
            "incarnation": failure.incarnation,
            "last_checkpoint": failure.step,
            "noticed_by": failure.by,
            "nodes": ", ".join(failure.nodes),
            "disrupted": failure.disrupted,
        },
    )


def _mark(failure: Exit) -> str:
    return f"incident-{failure.incarnation:06d}"
