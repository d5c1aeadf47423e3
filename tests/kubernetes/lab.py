"""A platform whose trainings run on a cluster: the lab of the state machine, with another launcher and fleet."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.kubernetes.fleet import KubernetesFleet
from slipway.resources.kubernetes.objects import KubernetesObject
from slipway.resources.launchers.kubernetes import names
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.store import Trainings, TrainingStore
from tests.assets.datasets.snapshots import make_snapshot
from tests.conftest import until
from tests.kubernetes.grounds import Ground, pods_of
from tests.resources.trainings.lab import BY, Lab, happened

PATIENCE_SECONDS = 600.0
"""A cluster needs minutes to notice a lost node, and trainers start slowly on a busy machine."""


class ClusterLab(Lab):
    """Trainings on a cluster; `until` stands in for the sensors."""

    no_progress_seconds = PATIENCE_SECONDS

    def __init__(self, ground: Ground, workload: Workload) -> None:
        self.ground, self.root = ground, ground.folder()
        self.durable = self.root / "durable"
        self.on_pods = KubernetesLauncher(ground.client, ground.cluster, workload)
        self.cluster_fleet = KubernetesFleet(ground.client, ground.cluster)
        self.trainings = Trainings(self.durable / "trainings")
        self.snapshot = make_snapshot(self.durable).sha256

    @property
    def paths(self) -> Paths:
        return Paths(self.durable, str(self.root / "nodes" / "{node}" / "nvme"))

    def cluster_control(self) -> TrainingControl:
        return TrainingControl(self.on_pods, self.cluster_fleet, self.paths, "a revision")

    def until(self, condition: Callable[[], object], what: str, store: TrainingStore) -> None:
        """Act on the training like the sensors job watch and node failures, until the condition holds."""
        control = self.cluster_control()

        def ticked() -> object:
            # An API server that is away is asked again at the next tick.
            with suppress(Unavailable):
                fault = control.fault(store.read(), self.cluster_fleet.nodes())
                if fault is not None and store.read().should_run:
                    control.supersede(store, store.read(), fault, BY)
                control.advance(store, BY)
            return condition()

        until(ticked, what, PATIENCE_SECONDS)

    def until_committed(self, store: TrainingStore, incarnation: int, count: int = 1) -> None:
        def committed() -> bool:
            return sum(commit.token.incarnation == incarnation for commit in store.commits()) >= count

        self.until(committed, f"{count} checkpoints of incarnation {incarnation}", store)

    def until_restored(self, store: TrainingStore, incarnation: int) -> None:
        restored = functools.partial(_restored, store, incarnation)
        self.until(restored, f"incarnation {incarnation} to go on from a checkpoint", store)

    def until_stopped(self, store: TrainingStore) -> None:
        store.want("stop", BY, "the drill is over")
        self.until(lambda: store.exit() is not None, "the training to stop", store)

    def order(self, store: TrainingStore, incarnation: int) -> str:
        return names.object_name(self.job(store, incarnation))

    def pods(self, store: TrainingStore, incarnation: int) -> list[KubernetesObject]:
        return pods_of(self.ground, self.order(store, incarnation))


def _restored(store: TrainingStore, incarnation: int) -> bool:
    return incarnation in [event["incarnation"] for event in happened(store, "restored")]


@contextmanager
def open_to_all() -> Iterator[None]:
    """Files written meanwhile are writable by every user: pods run as another user than this process."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)
