"""Caching: the launcher and the fleet, asked only once for all decisions of one tick.

A caller that decides about a hundred trainings lists the nodes once and polls each job once. An action on a job
invalidates its cached status.
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
        """All nodes at the time of the first call. Raises Unavailable."""
        if self._nodes is None:
            self._nodes = self.fleet.nodes()
        return self._nodes


@dataclass
class CachingLauncher:
    """Implements `slipway.resources.launchers.protocol.Launcher`."""

    launcher: Launcher
    is_recurring: bool = False
    """Whether similar jobs follow one another, so that a warm process can serve the next one."""
    _known: dict[str, Status] = field(default_factory=dict)

    def submit(self, job: Job) -> None:
        self._known.pop(job.name, None)
        self.launcher.submit(dataclasses.replace(job, warm_start=True) if self.is_recurring else job)

    def poll(self, name: str) -> Status:
        """The status of the job at the time of the first call. Raises Unavailable."""
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
    """A copy of the control with caches, for the decisions of one tick.

    is_recurring: whether similar jobs follow one another.
    """
    now = copy.copy(control)
    now.launcher = CachingLauncher(control.launcher, is_recurring)
    now.fleet = CachingFleet(control.fleet)
    return now
