"""Compute: where trainings run. One resource holds launcher, fleet and node tasks; what is used is its class alone.

The embedded one runs on this machine: a few nodes, each a process with an NVMe folder of its own. That of a cluster is
`resources.kubernetes.compute`.
"""

import abc
from pathlib import Path
from typing import ClassVar

import dagster as dg
from pydantic import Field

from resources.fleet.embedded import EmbeddedFleet
from resources.fleet.protocol import Fleet
from resources.launcher.local import LocalLauncher
from resources.launcher.protocol import Launcher
from resources.node_tasks.in_process import InProcess
from resources.node_tasks.protocol import NodeTasks
from resources.tiers import Tiers
from resources.training_control import GRACE_SECONDS, TrainingControl
from resources.training_job import Paths
from resources.training_store import Trainings

CODE = Path(__file__).resolve().parent.parent


class Compute(dg.ConfigurableResource, abc.ABC):  # type: ignore[type-arg]
    """A launcher, a fleet, what has its nodes do something, and the revision of the code that they run."""

    poll_seconds: ClassVar[float]
    """How often a run that waits asks for what it waits for."""
    sees_nodes: ClassVar[bool]
    """Whether the nodes' NVMe folders can be seen from here."""
    revision: str = Field(default="", description="Revision of the code, recorded in every checkpoint")

    @abc.abstractmethod
    def launcher(self) -> Launcher: ...

    @abc.abstractmethod
    def fleet(self) -> Fleet: ...

    @abc.abstractmethod
    def node_tasks(self, tiers: Tiers) -> NodeTasks:
        """What has something done on a node, where its NVMe is."""

    @property
    def grace_seconds(self) -> float:
        """What a job that is asked to stop gets to save a last checkpoint in, unless its recipe says otherwise."""
        return GRACE_SECONDS

    def control(self, tiers: Tiers) -> TrainingControl:
        """The state machine over this launcher and fleet."""
        paths = Paths(tiers.durable_path, tiers.nvme, tiers.backup)
        return TrainingControl(self.launcher(), self.fleet(), paths, self.revision, grace_seconds=self.grace_seconds)


class EmbeddedCompute(Compute):
    """This machine as a small cluster."""

    poll_seconds: ClassVar[float] = 0.5
    sees_nodes: ClassVar[bool] = True
    jobs: str = Field(description="Folder of the job objects")
    nodes: str = Field(description="Folder of the nodes")
    names: list[str] = Field(description="The nodes' names")
    reboot_seconds: float = Field(default=60.0, description="How long a killed node stays away, as a machine would")

    def launcher(self) -> LocalLauncher:
        return LocalLauncher(Path(self.jobs), CODE, fleet=self.fleet())

    def fleet(self) -> EmbeddedFleet:
        return EmbeddedFleet(Path(self.nodes), tuple(self.names), self.reboot_seconds)

    def node_tasks(self, tiers: Tiers) -> InProcess:
        return InProcess()


def trainings(tiers: Tiers) -> Trainings:
    """All trainings of this platform."""
    return Trainings(tiers.durable_path / "trainings")


def trials(tiers: Tiers) -> dict[str, Trainings]:
    """The trials of each sweep, by the sweep's id."""
    return {path.parent.name: Trainings(path) for path in sorted((tiers.durable_path / "sweeps").glob("*/trials"))}
