"""The buffers of a node's ranks, which its supervisor owns: what they hold outlives the ranks, and dies with the node.

The supervisor makes them before it forks ranks, which find their descriptors in the environment. A rank that no
supervisor started makes buffers of its own.
"""

import os
from collections.abc import Mapping, Sequence

from slipway.trainer.checkpoint.memory import seal
from slipway.trainer.config.operation import Storage
from slipway.trainer.record import causes

VARIABLE = "SLIPWAY_MEMORY"
"""The descriptors of a rank's buffers."""
SAVED_FROM = 2
"""One that is being written to a tier, and one to fill meanwhile."""
DOUBTED = (causes.CORRUPTION, causes.DIVERGED, causes.SPIKE)
"""After an end of these causes nothing goes on from what ranks had in memory."""


def count(storage: Storage) -> int:
    """How many buffers a rank has: with states in memory alone, one more holds the newest while another is filled."""
    return SAVED_FROM + (storage.memory_steps > 0)


def make(storage: Storage, ranks: int) -> tuple[tuple[int, ...], ...]:
    """New buffers, empty, for each rank of a node; forked processes have them too."""
    return tuple(tuple(os.memfd_create("checkpoint", 0) for _ in range(count(storage))) for _ in range(ranks))


def named(descriptors: Sequence[int]) -> dict[str, str]:
    """The environment that tells a rank its buffers."""
    return {VARIABLE: ",".join(map(str, descriptors))}


def given(environment: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """The buffers of this rank that its supervisor owns; none without a supervisor."""
    return tuple(map(int, filter(None, environment.get(VARIABLE, "").split(","))))


def forget(buffers: Sequence[Sequence[int]]) -> None:
    """Have nobody go on from what is in these buffers."""
    for descriptor in (each for of_rank in buffers for each in of_rank):
        seal.remove(descriptor)
