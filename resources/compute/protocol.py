"""The interface of compute: one resource that provides a launcher, a fleet and node tasks.

`slipway.resources.compute.embedded` runs on this machine, `slipway.resources.compute.kubernetes` on a cluster.
"""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field

from slipway.resources.fleet.health.guarded import GuardedFleet
from slipway.resources.fleet.health.node_health import NodeHealth, Scheduler
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
    """A launcher, a fleet, node tasks, and the revision of the code that they run."""

    poll_seconds: ClassVar[float]
    """How often a waiting run polls its job."""
    sees_nodes: ClassVar[bool]
    """Whether this process can read the nodes' NVMe folders."""
    revision: str = Field(default="", description="Revision of the code, recorded in every checkpoint")

    rank_hours: dict[str, Any] = Field(
        default={}, description="Quotas by owner, each with `rank_hours` and its period `per`"
    )

    @abc.abstractmethod
    def launcher(self) -> Launcher:
        """The launcher of jobs."""

    @abc.abstractmethod
    def fleet(self) -> Fleet:
        """The nodes on which jobs run."""

    @abc.abstractmethod
    def node_tasks(self, tiers: Tiers) -> NodeTasks:
        """The runner of tasks on a node, with access to its NVMe."""

    @abc.abstractmethod
    def serving(self, tiers: Tiers) -> ServingPlace:
        """The runner of model servers."""

    @property
    def gpus(self) -> int:
        """The number of GPUs that each node gives to a job."""
        return 0

    def diagnosis(self, tiers: Tiers) -> NodeTasks:
        """The runner of tasks on a node that is out of service, with access to all its hardware."""
        return self.node_tasks(tiers)

    @property
    def health_rules(self) -> HealthRules:
        """When nodes are taken out of service."""
        return HealthRules()

    def scheduler(self, tiers: Tiers) -> Scheduler | None:
        """Another scheduler that places work on the nodes and must respect their health; None if there is none."""
        return None

    def node_demand(self) -> "NodeDemand | None":
        """The signal to an autoscaler that trainings wait for nodes; None if the fleet is fixed."""
        return None

    def node_health(self, tiers: Tiers) -> NodeHealth:
        """Access to the health of the nodes."""
        fleet = self.fleet()
        return NodeHealth(NodeRegister(tiers.durable_path), self.health_rules, fleet.nodes, self.scheduler(tiers))

    def working_fleet(self, tiers: Tiers) -> Fleet:
        """The fleet without the nodes that are out of service."""
        return GuardedFleet(self.fleet(), NodeRegister(tiers.durable_path), self.health_rules)

    def short_jobs(self, tiers: Tiers) -> ShortJobs:
        """The runner of short jobs that follow a training, on the same nodes."""
        return ShortJobs(self.launcher(), self.working_fleet(tiers), tiers.durable_path, self.poll_seconds)

    @property
    def grace_seconds(self) -> float:
        """How long a stopping job may take for its last checkpoint, unless its recipe sets another time."""
        return GRACE_SECONDS

    @property
    def hardware(self) -> HardwareProfile | None:
        """The hardware profile that trainings must fit, or None."""
        return None

    def quotas(self, tiers: Tiers) -> Quotas:
        """The quota of each team, and its use."""
        return Quotas(
            tiers.durable_path, {owner: Quota(**quota_fields) for owner, quota_fields in self.rank_hours.items()}
        )

    def control(self, tiers: Tiers) -> TrainingControl:
        """The state machine of trainings on this launcher and fleet."""
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
