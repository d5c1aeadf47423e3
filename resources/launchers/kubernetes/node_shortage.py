"""Node shortage: the nodes that a training waits for. Importing it does not import the Kubernetes client."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Lack:
    """The nodes that a training waits for."""

    nodes: int
    """The number of nodes that it could use."""
    kubernetes: Mapping[str, object]
    """The section `placement.kubernetes` of its recipe."""
