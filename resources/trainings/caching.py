"""Caching: what the launcher and the fleet say, asked once for all the decisions of one moment.

A caller that decides about a hundred trainings at a time has one listing of the nodes for them, and one answer about
each job. An action on a job forgets what was said of it.
"""

import copy
import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field

from slipway.resources.fleet.protocol import Fleet, Node
from slipway.resources.launchers.protocol import Job, Launcher, Status
from slipway.resources.trainings.control import TrainingControl


@dataclass
class CachingFleet:
    """Implements `slipway.resources.fleet.protocol.Fleet`."""

    fleet: Fleet
    _nodes: list[Node] | None = None

    @property
    def scheduled(self) -> bool:
        return self.fleet.scheduled

    def nodes(self) -> list[Node]:
        """All nodes, as they were when they were first asked for. Raises Unavailable."""
        if self._nodes is None:
            self._nodes = self.fleet.nodes()
        return self._nodes


@dataclass
class CachingLauncher:
    """Implements `slipway.resources.launchers.protocol.Launcher`."""

    launcher: Launcher
    is_recurring: bool = False
    """Whether jobs follow one another here, so that what one has imported serves the next."""
    _known: dict[str, Status] = field(default_factory=dict)

    def submit(self, job: Job) -> None:
        self._known.pop(job.name, None)
        self.launcher.submit(dataclasses.replace(job, warm=True) if self.is_recurring else job)

    def poll(self, name: str) -> Status:
        """Where the job stands, as it was when it was first asked for. Raises Unavailable."""
        if name not in self._known:
            self._known[name] = self.launcher.poll(name)
        return self._known[name]

    def cancel(self, name: str, grace_seconds: float) -> None:
        self._known.pop(name, None)
        self.launcher.cancel(name, grace_seconds)

    def take_back(self, name: str, nodes: Collection[str]) -> tuple[str, ...]:
        self._known.pop(name, None)
        return self.launcher.take_back(name, nodes)

    def release(self, name: str) -> bool:
        self._known.pop(name, None)
        return self.launcher.release(name)

    def rest(self) -> None:
        self.launcher.rest()

    def logs(self, name: str, tail_bytes: int = 65_536) -> dict[str, str]:
        return self.launcher.logs(name, tail_bytes)


def of_now(control: TrainingControl, is_recurring: bool = False) -> TrainingControl:
    """The same control for the decisions of this moment.

    is_recurring: whether what it submits comes again and again.
    """
    now = copy.copy(control)
    now.launcher = CachingLauncher(control.launcher, is_recurring)
    now.fleet = CachingFleet(control.fleet)
    return now
