"""The interface of a kind of workload: how a job is written as one, and how its status is read. Pure."""

import abc
from dataclasses import dataclass
from typing import ClassVar

from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import CONTAINER, PODS, SERVICES, KubernetesObject, Resource
from slipway.resources.launchers.kubernetes.queues import POD_GROUPS
from slipway.resources.launchers.protocol import Job, JobState

OF_THE_STORE = (SERVICES, PODS)
"""The kinds of the objects of a job's rendezvous store."""


@dataclass(frozen=True)
class WorkloadReading:
    """What a workload's own status says; the pods say the rest (exit codes, nodes, why they wait)."""

    state: JobState
    """PENDING also while the workload is suspended: a queue holds it back, or took its place away. Workloads count the
    pods that are ready, not those that run: the pods of a PENDING workload may run all the same, and say so."""
    reason: str = ""
    disrupted: bool = False
    """Whether it failed because a pod was evicted or pre-empted, or its node died: not through a fault of the job. Such
    a pod may be gone without any other trace."""
    ending: JobState | None = None
    """How it will have ended once the last of its pods has; until then it is not terminal."""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    """Seconds since the epoch."""


class Workload(abc.ABC):
    """One kind. The choices of the settings, the mirror, the messages and the chart's rights follow from its class."""

    name: ClassVar[str]
    """Its name in the platform's settings."""
    resource: ClassVar[Resource]
    """The kind of the main object, which has the same name as all objects of the job."""
    parts: ClassVar[tuple[Resource, ...]] = ()
    """The kinds of the objects that the main one needs beside it."""
    container: ClassVar[str] = CONTAINER
    """The container whose end is the end of a pod; some controllers want a name of their own."""

    @abc.abstractmethod
    def objects(self, name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
        """What to create after the order, in this order; the main object last.

        All have the label `slipway/job` and no owner yet. Raises ValueError for a patch that does not fit.
        """

    @abc.abstractmethod
    def read(self, main: KubernetesObject) -> WorkloadReading:
        """What the main object says."""

    def resource_of(self, part: KubernetesObject) -> Resource:
        """The kind of one of the `objects`."""
        return {resource.kind: resource for resource in (*self.parts, self.resource, POD_GROUPS, *OF_THE_STORE)}[
            part["kind"]
        ]
