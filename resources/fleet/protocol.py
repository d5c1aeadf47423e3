"""The interface of fleets: the nodes, and whether each accepts work."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

NODE_VARIABLE = "SLIPWAY_NODE"
"""The variable of a node's processes with the node's name."""


@dataclass(frozen=True)
class Node:
    """One node and its current state."""

    name: str
    ready: bool
    """Whether it accepts new work."""
    reason: str = ""
    """Why it is not ready, for a person."""
    since: float | None = None
    """When it became unready, in seconds since the epoch."""
    cordoned: bool = False
    """Whether it is only closed to new work, while running work may finish."""
    fault: str = ""
    """The report of a hardware fault, or ""."""

    @property
    def lost(self) -> bool:
        """Whether its processes are lost too."""
        return not self.ready and not self.cordoned


def by_name(nodes: Iterable[Node]) -> dict[str, Node]:
    return {node.name: node for node in nodes}


class Fleet(Protocol):
    """The nodes on which trainings may run."""

    @property
    def scheduled(self) -> bool:
        """Whether a scheduler places jobs. Then a job may use all ready nodes, and Slipway does not choose."""

    def nodes(self) -> list[Node]:
        """All nodes, sorted by name. Raises `slipway.resources.errors.Unavailable` if they cannot be read."""
