"""The interface for running tasks on nodes: stage a snapshot, remove old data, measure the disk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from slipway.trainer.node_task import Result, Task

Say = Callable[[str], None]
"""Prints one line for the waiting person."""


@dataclass(frozen=True)
class TaskOutcome:
    """The end of a task on a node: its result, or why there is none."""

    result: Result = field(default_factory=dict)
    failure: str = ""
    """Why there is no result, or ""."""


class NodeTasks(Protocol):
    """Runs tasks on nodes."""

    def run(self, tasks: Mapping[str, Task], say: Say) -> dict[str, TaskOutcome]:
        """Run each node's task and wait for all. The failure of one node does not stop the others.

        A running task is adopted. Raises `slipway.resources.errors.Unavailable` if no task can be started.
        """

    def stop(self, tasks: Mapping[str, Task]) -> None:
        """Stop the running tasks. Raises Unavailable."""
