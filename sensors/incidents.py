"""Incidents: every incarnation that failed is shown once, with its cause, whoever noticed that it did.

An incident counts as shown when the event log has it: no crash loses one.
"""

import dagster as dg

from assets import keys
from resources.training_store import TrainingStore
from trainer.fence import Exit


def unshown(instance: dg.DagsterInstance, store: TrainingStore) -> list[dg.AssetObservation]:
    """The observations of those incidents that the event log does not have yet."""
    unmarked = [failure for failure in store.failures() if not store.reported(_mark(failure))]
    if not unmarked:
        return []
    key = keys.key(store.specification().recipe, "training")
    known = _in_event_log(instance, key, store.id)
    for failure in unmarked:
        if failure.incarnation in known:
            store.mark_reported(_mark(failure))
    return [_observation(key, store.id, failure) for failure in unmarked if failure.incarnation not in known]


def _in_event_log(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> set[int]:
    """The incarnations whose incidents the event log has."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    records = instance.fetch_observations(where, limit=1000).records
    shown = [record.asset_observation.metadata for record in records if record.asset_observation]
    return {int(str(metadata["incarnation"].value)) for metadata in shown if "cause" in metadata}


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
        },
    )


def _mark(failure: Exit) -> str:
    return f"incident-{failure.incarnation:06d}"
