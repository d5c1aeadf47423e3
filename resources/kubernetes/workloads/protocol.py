"""What a kind of workload knows: which objects make a job, and what its main object says. Pure."""

from dataclasses import dataclass
from typing import Protocol

from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import Object, Resource
from resources.launcher.protocol import Job, State


@dataclass(frozen=True)
class Reading:
    """What a workload's own status says; the pods say the rest (exit codes, nodes, why they wait)."""

    state: State
    """PENDING also while it is suspended: a queue holds it back, or took its place away."""
    reason: str = ""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    """Seconds since the epoch."""


class Workload(Protocol):
    """One kind."""

    resource: Resource
    """Of the main object, whose name is that of the job's objects."""

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[Object]:
        """What to create besides the order, in this order; the main object last.

        All have the label `slipway/job` and no owner yet. Raises ValueError for a patch that does not fit.
        """

    def read(self, main: Object) -> Reading:
        """What the main object says."""
