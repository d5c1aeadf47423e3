"""Trainings on a cluster: how long they take to start, what they ask of the API server, how long a lost node costs.

``python -m benchmarks.cluster [--starts N]``. Requests are counted on a simulated cluster of 1,000 nodes and 100
trainings. The rest needs KUBECONFIG and what docs/kubernetes.md says of tests on a cluster (SLIPWAY_TEST_IMAGE,
SLIPWAY_TEST_SHARED, SLIPWAY_TEST_POWER_OFF and _ON), and is left out without: a start from the moment that a run
executes the asset, beside the same JobSet created by hand; and a node that loses power, beside the time in which the
cluster itself notices.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from slipway.resources.fleet.kubernetes.fleet import KubernetesFleet
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.mirror import Mirror
from slipway.resources.kubernetes.objects import CONFIG_MAPS
from slipway.resources.launchers.kubernetes import access, names, orders
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.launchers.protocol import Job, JobState
from slipway.resources.trainings import job as training_job
from slipway.resources.trainings.store import TrainingStore
from tests.conftest import until
from tests.kubernetes import run
from tests.kubernetes.grounds import RealGround
from tests.kubernetes.lab import ClusterLab, open_to_all
from tests.kubernetes.live import NAMESPACES, SERVICE_ACCOUNTS, allow_names, connected, furnished
from tests.kubernetes.simulated.cluster import Cluster as Simulation
from tests.resources.trainings.lab import BRIEF, ENDLESS, happened, numbers

TRAININGS, NODES, TICKS = 100, 1000, 5
PATIENCE = 600.0
MOST_REQUESTS = 20
"""Of a tick."""
MORE_THAN_BY_HAND = 1.2
TICK_SECONDS = 5.0
"""Of the sensors that notice a lost node."""
AFTER_DETECTION = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--starts", type=int, default=3, help="how often each start is measured (%(default)s)")
    starts = parser.parse_args().starts
    _requests()
    if not all(os.environ.get(name) for name in ("KUBECONFIG", "SLIPWAY_TEST_IMAGE", "SLIPWAY_TEST_SHARED")):
        print("no cluster: KUBECONFIG, SLIPWAY_TEST_IMAGE and SLIPWAY_TEST_SHARED are not all set", file=sys.stderr)
        return
    with furnished(connected()) as live, open_to_all():
        allow_names(live.client)
        ground = RealGround(live)
        _starts(ground, starts)
        if os.environ.get("SLIPWAY_TEST_POWER_OFF"):
            _power(ground)


def _requests() -> None:
    """Requests of a tick of job watch and node failures, once all trainings run and nothing changes."""
    with tempfile.TemporaryDirectory() as folder, Simulation(Path(folder), nodes=()) as simulation:
        simulation.add_nodes(*(f"node-{number:04d}" for number in range(NODES)), with_kubelet=False)
        simulation.create(NAMESPACES, "", {"metadata": {"name": "slipway"}})
        client, cluster = Client(str(simulation.kubeconfig)), Cluster(image="slipway-trainer:test")
        client.create(SERVICE_ACCOUNTS, {"metadata": {"name": cluster.service_account}})
        jobs = [Job(f"training-{number}", ("python",), {}, (f"node-{number:04d}",)) for number in range(TRAININGS)]
        submitting = KubernetesLauncher(client, cluster, JobSet())
        for job in jobs:
            submitting.submit(job)
        mirror = Mirror(client, access.mirrored_kinds())
        launcher, fleet = replace(submitting, mirror=mirror), KubernetesFleet(mirror, cluster)
        until(lambda: all(launcher.poll(job.name).state is JobState.RUNNING for job in jobs), "all to run", PATIENCE)
        value = _requests_per_tick(client, lambda: _tick(launcher, fleet, jobs))
        without_mirror = _requests_per_tick(client, lambda: _tick(submitting, KubernetesFleet(client, cluster), jobs))
        metric = f"API requests of a tick: {TRAININGS} trainings, {NODES} nodes"
        _print(metric, "requests", value, {"asking each time": without_mirror}, MOST_REQUESTS)


def _tick(launcher: KubernetesLauncher, fleet: KubernetesFleet, jobs: list[Job]) -> None:
    """What the two sensors read in a tick."""
    fleet.nodes()
    for job in jobs:
        launcher.poll(job.name)


def _requests_per_tick(client: Client, what: Callable[[], None]) -> float:
    """Requests made in one call, in the mean of several."""
    before: Counter[str] = Counter(client.requests)
    for _ in range(TICKS):
        what()
    return (client.requests - before).total() / TICKS


def _starts(ground: RealGround, count: int) -> None:
    """Seconds to the first step: a run that executes the training asset, and the same JobSet created by hand."""
    value = statistics.median(_materialized(ground) for _ in range(count))
    by_hand = statistics.median(_by_hand(ground) for _ in range(count))
    aim = MORE_THAN_BY_HAND * by_hand + TICK_SECONDS
    _print("from materialising to the first step", "s", value, {"the same JobSet by hand": by_hand}, aim)


def _materialized(ground: RealGround) -> float:
    lab = ClusterLab(ground, JobSet())
    store = lab.start_training(numbers(BRIEF))
    with tempfile.TemporaryDirectory() as folder:
        description = run.described(lab, store, Path(folder))
        begun = time.time()
        executing = threading.Thread(target=run.execute, args=(description,))
        executing.start()
        seconds = _first_step(store) - begun
        executing.join()
    ground.clear()
    return seconds


def _by_hand(ground: RealGround) -> float:
    """The objects that the launcher would create, created one after the other."""
    lab = ClusterLab(ground, JobSet())
    store = lab.start_training(numbers(BRIEF))
    store.claim(1, tuple(node.name for node in lab.cluster_fleet.nodes()), "by hand", "benchmark")
    job = training_job.job(store.read(), lab.paths)
    name = names.object_name(job.name)
    begun = time.time()
    order = lab.ground.client.create(CONFIG_MAPS, orders.written(name, job))
    assert order is not None
    for part in JobSet().objects(name, job, lab.ground.cluster):
        lab.ground.client.create(JobSet().resource_of(part), orders.owned(part, orders.read(order)))
    seconds = _first_step(store) - begun
    until(lambda: store.exit() is not None, "the training to end", PATIENCE)
    ground.clear()
    return seconds


def _power(ground: RealGround) -> None:
    """From a power cut to the first step of the next incarnation, beside the cluster's own detection."""
    lab = ClusterLab(ground, JobSet())
    store = lab.start_training(numbers(ENDLESS, every=200), nodes=2)
    lab.until_committed(store, incarnation=1)
    victim = lab.pods(store, 1)[1]["spec"]["nodeName"]
    with _seen_lost(ground.live.ready_nodes, victim) as moments:
        begun = time.time()
        ground.power_off(victim)
        try:
            lab.until_restored(store, incarnation=2)
            lab.until(lambda: _stepped(store, 2), "the first step", store)
            value = _first_step(store, 2) - begun
            lab.until_stopped(store)
        finally:
            ground.power_on(victim)
    detected = moments[0] - begun
    _print(
        "from power-off to the first step of the next incarnation",
        "s",
        value,
        {"the cluster's own detection of the lost node": detected},
        detected + AFTER_DETECTION,
    )


@contextmanager
def _seen_lost(ready: Callable[[], list[str]], node: str) -> Iterator[list[float]]:
    """When the cluster first says that the node is not ready, looked up four times a second meanwhile."""
    moments: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25) and not moments:
            if node not in ready():
                moments.append(time.time())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield moments
    finally:
        over.set()
        watching.join()


def _stepped(store: TrainingStore, incarnation: int) -> bool:
    return any(event["incarnation"] == incarnation for event in happened(store, "step"))


def _first_step(store: TrainingStore, incarnation: int = 1) -> float:
    """When the incarnation's first step was over, seconds since the epoch."""
    until(lambda: _stepped(store, incarnation), "the first step", PATIENCE)
    return min(float(event["t"]) for event in happened(store, "step") if event["incarnation"] == incarnation)


def _print(metric: str, unit: str, value: float, peers: dict[str, float], aim: float) -> None:
    rounded = {name: round(value, 2) for name, value in peers.items()}
    line = {"benchmark": "cluster", "metric": metric, "unit": unit, "better": "lower", "ours": round(value, 2)}
    print(json.dumps(line | {"peers": rounded, "aim": round(aim, 2)}), flush=True)


if __name__ == "__main__":
    main()
