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
    """PENDING also while it is suspended: a queue holds it back, or took its place away. Workloads count pods that
    are ready, not those that run: one that is PENDING with pods may be running all the same, and its pods say so."""
    reason: str = ""
    disrupted: bool = False
    """Whether it failed because a pod was evicted or pre-empted, or its node died: not the job's own fault. A pod that
    was may be gone without a trace but this."""
    ending: State | None = None
    """How it will have ended once the last of its pods has; until then it is not terminal."""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    """Seconds since the epoch."""


class Workload(Protocol):
    """One kind."""

    @property
    def resource(self) -> Resource:
        """Of the main object, whose name is that of the job's objects."""

    @property
    def container(self) -> str:
        """The container that decides how a pod of this kind ended; some controllers want a name of their own."""

    def objects(self, name: str, job: Job, cluster: Cluster) -> list[Object]:
        """What to create besides the order, in this order; the main object last.

        All have the label `slipway/job` and no owner yet. Raises ValueError for a patch that does not fit.
        """

    def read(self, main: Object) -> Reading:
        """What the main object says."""
