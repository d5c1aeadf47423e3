"""The interface of compute: one resource joins a launcher, a fleet and node tasks; its class decides which.

`slipway.resources.compute.embedded` runs on this machine, `slipway.resources.compute.kubernetes` on a cluster.
"""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field

from slipway.resources.fleet.health.door import NodeHealth, Scheduler
from slipway.resources.fleet.health.guarded import GuardedFleet
from slipway.resources.fleet.health.register import NodeRegister
from slipway.resources.fleet.health.standing import HealthRules
from slipway.resources.fleet.protocol import Fleet
from slipway.resources.launchers.protocol import Launcher
from slipway.resources.node_tasks.protocol import NodeTasks
from slipway.resources.serving.protocol import ServingPlace
from slipway.resources.short_jobs.running import ShortJobs
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.control import GRACE_SECONDS, TrainingControl
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.quotas import Quota, Quotas
from slipway.trainer.config.profiles import HardwareProfile

if TYPE_CHECKING:  # an embedded instance needs no client of Kubernetes
    from slipway.resources.launchers.kubernetes.demand import NodeDemand


class Compute(dg.ConfigurableResource, abc.ABC):  # type: ignore[type-arg]
    """A launcher, a fleet, the tasks of its nodes, and the revision of the code that they run."""

    poll_seconds: ClassVar[float]
    """How often a waiting run asks."""
    sees_nodes: ClassVar[bool]
    """Whether this process sees the nodes' NVMe folders."""
    revision: str = Field(default="", description="Revision of the code, recorded in every checkpoint")

    rank_hours: dict[str, Any] = Field(
        default={}, description="The quotas: by owner, `rank_hours`, and the period as `per`"
    )

    @abc.abstractmethod
    def launcher(self) -> Launcher:
        """What runs jobs."""

    @abc.abstractmethod
    def fleet(self) -> Fleet:
        """The nodes that jobs run on."""

    @abc.abstractmethod
    def node_tasks(self, tiers: Tiers) -> NodeTasks:
        """What runs tasks on a node, where its NVMe is."""

    @abc.abstractmethod
    def serving(self, tiers: Tiers) -> ServingPlace:
        """What runs the server of the models that are to answer."""

    @property
    def gpus(self) -> int:
        """How many GPUs each node gives a job; 0 for none."""
        return 0

    def diagnosis(self, tiers: Tiers) -> NodeTasks:
        """What runs tasks on a node that is out of service, with all its hardware."""
        return self.node_tasks(tiers)

    @property
    def health_rules(self) -> HealthRules:
        """When nodes are taken out of service."""
        return HealthRules()

    def scheduler(self, tiers: Tiers) -> Scheduler | None:
        """What else places work on the nodes, and must obey their standings; None for nothing."""
        return None

    def node_demand(self) -> "NodeDemand | None":
        """What shows an autoscaler the nodes that trainings wait for; None where nothing changes the fleet."""
        return None

    def node_health(self, tiers: Tiers) -> NodeHealth:
        """The one door to the standings of the nodes."""
        fleet = self.fleet()
        return NodeHealth(NodeRegister(tiers.durable_path), self.health_rules, fleet.nodes, self.scheduler(tiers))

    def working_fleet(self, tiers: Tiers) -> Fleet:
        """The fleet as work may use it: without the nodes that are out of service."""
        return GuardedFleet(self.fleet(), NodeRegister(tiers.durable_path), self.health_rules)

    def short_jobs(self, tiers: Tiers) -> ShortJobs:
        """What runs jobs that come after a training, on the nodes of trainings."""
        return ShortJobs(self.launcher(), self.working_fleet(tiers), tiers.durable_path, self.poll_seconds)

    @property
    def grace_seconds(self) -> float:
        """How long a job that is asked to stop may take for a last checkpoint, unless its recipe says otherwise."""
        return GRACE_SECONDS

    @property
    def hardware(self) -> HardwareProfile | None:
        """The profile that trainings must fit; None for nodes that no profile describes."""
        return None

    def quotas(self, tiers: Tiers) -> Quotas:
        """How much each team may use, and has used."""
        return Quotas(
            tiers.durable_path, {owner: Quota(**quota_fields) for owner, quota_fields in self.rank_hours.items()}
        )

    def control(self, tiers: Tiers) -> TrainingControl:
        """The state machine over this launcher and fleet."""
        paths = Paths(tiers.durable_path, tiers.nvme, tiers.backup, tuple(tiers.origins))
        return TrainingControl(
            self.launcher(),
            self.working_fleet(tiers),
            paths,
            self.revision,
            grace_seconds=self.grace_seconds,
            hardware=self.hardware,
            sees_nodes=self.sees_nodes,
            quotas=self.quotas(tiers),
        )
