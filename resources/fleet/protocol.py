"""What a fleet tells: its nodes and whether each can take work."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Node:
    """One node as the fleet sees it now."""

    name: str
    ready: bool
    """Whether it takes new work."""
    reason: str = ""
    """Why it is not ready, for a person."""
    since: float | None = None
    """When it became not ready, seconds since the epoch."""
    cordoned: bool = False
    """It is not ready for new work alone: what runs there may finish."""

    @property
    def lost(self) -> bool:
        """Whether what runs on it is lost too."""
        return not self.ready and not self.cordoned


class Fleet(Protocol):
    @property
    def scheduled(self) -> bool:
        """Whether a scheduler places jobs: each is offered all nodes that are ready, and no more is picked for it."""

    def nodes(self) -> list[Node]:
        """All nodes, by name. Raises `resources.launcher.protocol.Unavailable` when they cannot be read."""
