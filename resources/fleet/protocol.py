"""What a fleet tells: its nodes and whether each can take work."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Node:
    """One node as the fleet sees it now."""

    name: str
    ready: bool
    reason: str = ""
    """Why it is not ready, for a person."""
    since: float | None = None
    """When it became not ready, seconds since the epoch."""


class Fleet(Protocol):
    def nodes(self) -> list[Node]:
        """All nodes, by name. Raises `resources.launcher.protocol.Unavailable` when they cannot be read."""
