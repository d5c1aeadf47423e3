"""Node shortage: the nodes that a training waits for, apart from the client that shows them to a cluster autoscaler."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Lack:
    """What a training waits for."""

    nodes: int
    """How many it would run on."""
    kubernetes: Mapping[str, object]
    """Its recipe's section `placement.kubernetes`."""
