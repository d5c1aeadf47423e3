"""Last words: what happened to a checkpoint is an event of its partition, and is there before the partition goes.

What the event log has is asked of the event log: an observation names what it tells, and is made until it is there.
"""

from collections.abc import Iterable

import dagster as dg

from assets import keys
from assets.checkpoints import checkpoint_observation
from resources.trainings import checkpoint_faults
from resources.trainings.checkpoint_faults import CheckpointFault
from resources.trainings.facts import TrainingFacts

RECENT = 50
"""So many observations of a checkpoint are looked through."""


def untold(instance: dg.DagsterInstance, facts: TrainingFacts) -> list[dg.AssetObservation]:
    """The faults of a training's checkpoints that the event log does not have. Raises OSError."""
    return [
        checkpoint_observation(facts, fault)
        for fault in checkpoint_faults.known(facts)
        if not _is_told(instance, facts, fault)
    ]


def before_deletion(
    instance: dg.DagsterInstance, facts: TrainingFacts, partitions: Iterable[str]
) -> tuple[list[dg.AssetObservation], list[str]]:
    """Of the partitions that are to go: the last events that the log lacks, and those that may go now.

    Raises OSError and ValueError.
    """
    lacking, ready = [], []
    for partition in partitions:
        fault = checkpoint_faults.of_gone(facts, keys.parse_checkpoint_partition(partition)[1])
        if _is_told(instance, facts, fault):
            ready.append(partition)
        else:
            lacking.append(checkpoint_observation(facts, fault))
    return lacking, ready


def _is_told(instance: dg.DagsterInstance, facts: TrainingFacts, fault: CheckpointFault) -> bool:
    key = keys.key(facts.specification.recipe, "checkpoint")
    partition = keys.checkpoint_partition(facts.id, fault.step)
    found = instance.fetch_observations(dg.AssetRecordsFilter(key, asset_partitions=[partition]), limit=RECENT)
    told = [each.asset_observation for each in found.records]
    return any(each is not None and fault.id in _named(each) for each in told)


def _named(observation: dg.AssetObservation) -> list[object]:
    return [observation.metadata["fault"].value] if "fault" in observation.metadata else []
