"""The interface of every fleet: its nodes, and whether each takes work."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

NODE_VARIABLE = "SLIPWAY_NODE"
"""In the environment of a node's processes: the node's name."""


@dataclass(frozen=True)
class Node:
    """One node and its state now."""

    name: str
    ready: bool
    """Whether it takes new work."""
    reason: str = ""
    """Why it is not ready, for a person."""
    since: float | None = None
    """When it became not ready, seconds since the epoch."""
    cordoned: bool = False
    """Whether it is only closed to new work: what runs there may finish."""
    fault: str = ""
    """What says that its hardware is at fault; empty where nothing does."""

    @property
    def lost(self) -> bool:
        """Whether the processes on it are lost too."""
        return not self.ready and not self.cordoned


def by_name(nodes: Iterable[Node]) -> dict[str, Node]:
    return {node.name: node for node in nodes}


class Fleet(Protocol):
    """The nodes that trainings may run on."""

    @property
    def scheduled(self) -> bool:
        """Whether a scheduler places jobs: then a job is offered all ready nodes, and Slipway picks none."""

    def nodes(self) -> list[Node]:
        """All nodes, by name. Raises `slipway.resources.errors.Unavailable` when they cannot be read."""
