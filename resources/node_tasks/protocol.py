"""What has nodes do something: stage a snapshot, remove what is old, look at the disk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainer.node_task import Result, Task

Say = Callable[[str], None]
"""Told what a person who waits wants to know."""


@dataclass(frozen=True)
class Done:
    """How a node got through with its task."""

    result: Result = field(default_factory=dict)
    failure: str = ""
    """Why there is no result; empty when there is one."""


class NodeTasks(Protocol):
    def run(self, tasks: Mapping[str, Task], say: Say) -> dict[str, Done]:
        """Have each node do its task, and wait for all; a node that fails does not keep the others from theirs.

        A task that is under way already is adopted. Raises `resources.launcher.protocol.Unavailable` when nobody can
        be asked to begin.
        """

    def stop(self, tasks: Mapping[str, Task]) -> None:
        """Stop those that are under way. Raises Unavailable."""
