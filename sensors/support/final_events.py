"""Final events: what happened to a checkpoint is an event of its partition, and is there before the partition goes.

What the event log has is asked of the event log, in one query for all that is not known to be there: an observation
names what it tells, and is made until it is there.
"""

from collections.abc import Sequence

import dagster as dg

from slipway.assets import keys
from slipway.assets.checkpoints import checkpoint_observation
from slipway.resources.event_log import observed_values
from slipway.resources.trainings import checkpoints
from slipway.resources.trainings.checkpoints import CheckpointFault
from slipway.resources.trainings.facts import TrainingFacts


def unlogged(
    instance: dg.DagsterInstance, facts: TrainingFacts, going: Sequence[str], logged: set[str]
) -> tuple[list[dg.AssetObservation], list[str]]:
    """What the event log lacks of what happened to a training's checkpoints, and which partitions may go now.

    `going` are the partitions that are to go. `logged` are the ids of the faults that the event log has;
    it grows. Raises OSError and ValueError.
    """
    steps = {partition: keys.parse_checkpoint_partition(partition)[1] for partition in going}
    last = checkpoints.why_gone(facts, steps.values())
    faults = [*checkpoints.known_faults(facts), *last.values()]
    logged |= _logged(instance, facts, [fault for fault in faults if fault.id not in logged])
    observations = {fault.id: checkpoint_observation(facts, fault) for fault in faults if fault.id not in logged}
    return list(observations.values()), [partition for partition, step in steps.items() if last[step].id in logged]


def _logged(instance: dg.DagsterInstance, facts: TrainingFacts, faults: Sequence[CheckpointFault]) -> set[str]:
    """Of these faults, the ids of those that the event log has."""
    where = {fault.id: keys.checkpoint_partition(facts.id, fault.step) for fault in faults}
    key = keys.key(facts.specification.recipe, "checkpoint")
    logged = observed_values(instance, key, where.values(), "fault") if faults else set()
    return {id for id, partition in where.items() if (partition, id) in logged}
