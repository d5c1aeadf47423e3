"""The interface of a kind of workload: how it represents a job, and how its status is read. Pure."""

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
    """What a workload's own status shows. The pods show exit codes, nodes and why they wait."""

    state: JobState
    """PENDING also while a queue has suspended the workload. Workloads count ready pods and not running ones, so pods
    of a PENDING workload may be running."""
    reason: str = ""
    disrupted: bool = False
    """Whether it failed because a pod was evicted or pre-empted or its node died, and not through a fault of the job.
    Such a pod may have disappeared without any other trace."""
    ending: JobState | None = None
    """How it will end once its last pod has ended; until then it is not terminal."""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    """Seconds since the epoch."""


class Workload(abc.ABC):
    """One kind of workload. The settings, the mirror, the messages and the chart's rights follow from its class."""

    name: ClassVar[str]
    """Its name in the platform's settings."""
    resource: ClassVar[Resource]
    """The kind of the main object, which has the same name as all objects of the job."""
    parts: ClassVar[tuple[Resource, ...]] = ()
    """The kinds of further objects that the main object needs."""
    container: ClassVar[str] = CONTAINER
    """The name of the container whose end is the end of its pod. Some controllers require a certain name."""

    @abc.abstractmethod
    def objects(self, name: str, job: Job, cluster: Cluster) -> list[KubernetesObject]:
        """The objects to create after the order, in sequence, with the main object last.

        All have the label `slipway/job` and no owner yet. Raises ValueError for a patch that does not fit.
        """

    @abc.abstractmethod
    def read(self, main: KubernetesObject) -> WorkloadReading:
        """The status in the main object."""

    def resource_of(self, part: KubernetesObject) -> Resource:
        """The kind of one of the `objects`."""
        return {resource.kind: resource for resource in (*self.parts, self.resource, POD_GROUPS, *OF_THE_STORE)}[
            part["kind"]
        ]
