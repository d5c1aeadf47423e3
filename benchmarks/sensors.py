"""What a tick of each sensor costs, by what there is and by what is new.

``python -m benchmarks.sensors [--trainings N ...] [--closed N] [--checkpoints N] [--nodes N] [--only SENSOR ...]``
makes a home for each place: with N open trainings (0, 100, 1,000), with N closed ones, with one training of N
checkpoints of which half are pruned, and with N nodes. It evaluates each sensor of the real definitions over a real
instance of Dagster, as the daemon does, and prints seconds and CPU-milliseconds of a tick: with nothing new (the best
of some), and of the first one after something new. Only launcher and fleet are not real: they say that all runs.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster import DagsterRunStatus

from slipway.assets import keys
from slipway.assets.checkpoints import checkpoint_materialization
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.protocol import JobState, Status
from slipway.resources.mlflow.ledger_delivery import ShippedLedger
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.base import codec
from slipway.trainer.record import fence, files, heartbeat
from slipway.trainer.record.ledger import Ledger
from slipway.trainer.record.scores import Score
from tests.assets.datasets.corpora import make_corpus
from tests.sensors.platform import TINY, Platform, write_recipes

SENSORS = (
    "job_watch",
    "checkpoint_arrivals",
    "promotions",
    "node_failures",
    "metrics_shipping",
    "staging",
    "sweep_completions",
    "offers",
    "terms",
)
QUIET_SECONDS = 2.5
"""After so long without a change, a sensor may take it that there was none."""
BY = "benchmark"
AIM_SECONDS = 2.0


class Running:
    """A launcher whose jobs all run, and that starts nothing."""

    def poll(self, name: str) -> Status:
        return Status(JobState.RUNNING, nodes=("node-0",), submitted_at=time.time(), started_at=time.time())

    def submit(self, job: object) -> None: ...

    def cancel(self, name: str, grace_seconds: float) -> None: ...

    def logs(self, name: str, tail_bytes: int = 0) -> dict[str, str]:
        return {}


class ReadyFleet:
    """A fleet whose nodes are all ready."""

    scheduled = False

    def __init__(self, count: int) -> None:
        self._nodes = [Node(f"node-{number}", ready=True) for number in range(count)]

    def nodes(self) -> list[Node]:
        return self._nodes


class RunningCompute(EmbeddedCompute):
    """The embedded compute with that launcher and that fleet.

    The nodes' names are no configuration, as on a cluster: Dagster would validate each of them in every tick.
    """

    count: int

    def launcher(self) -> Running:  # type: ignore[override]
        return Running()

    def fleet(self) -> ReadyFleet:  # type: ignore[override]
        return ReadyFleet(self.count)


@dataclass(frozen=True)
class Load:
    """What there is."""

    name: str
    open: int = 0
    closed: int = 0
    checkpoints: int = 0
    nodes: int = 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sensors", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trainings", type=int, nargs="*", default=[0, 100, 1000], help="open trainings")
    parser.add_argument("--closed", type=int, default=10_000, help="closed trainings; 0 leaves this place out")
    parser.add_argument("--checkpoints", type=int, default=10_000, help="checkpoints of one; 0 leaves this place out")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes; 0 leaves this place out")
    parser.add_argument("--only", nargs="*", choices=SENSORS, default=SENSORS, help="sensors to measure")
    parser.add_argument("--rounds", type=int, default=3, help="ticks with nothing new (default: 3)")
    options = parser.parse_args()
    loads = [Load(f"{count} open", open=count) for count in options.trainings]
    loads += [Load(f"{options.closed} closed", closed=options.closed)] if options.closed else []
    loads += [Load(f"{options.checkpoints} checkpoints", 1, 0, options.checkpoints)] if options.checkpoints else []
    loads += [Load(f"{options.nodes} nodes", nodes=options.nodes)] if options.nodes else []
    for load in loads:
        with tempfile.TemporaryDirectory(prefix="slipway-sensors-") as folder:
            measure(load, Path(folder), options.only, options.rounds)


def measure(load: Load, root: Path, sensors: tuple[str, ...], rounds: int) -> None:
    """Print the cost of each sensor's tick in one place."""
    (root / "dagster").mkdir()
    with dg.instance_for_test(temp_dir=str(root / "dagster")) as instance:
        with unsynced():
            platform = furnished(load, root, instance)
        for sensor in sensors:
            for _ in range(3):
                platform.apply(sensor)
        time.sleep(QUIET_SECONDS)
        for sensor in sensors:
            platform.apply(sensor)
        quiet = {sensor: min(cost(platform, sensor) for _ in range(rounds)) for sensor in sensors}
        something_new(load, platform)
        for sensor in sensors:
            show(load, sensor, quiet[sensor], cost(platform, sensor))


def cost(platform: Platform, sensor: str) -> tuple[float, float]:
    """Seconds and CPU-milliseconds of one tick."""
    begun, cpu = time.perf_counter(), time.process_time()
    platform.tick(sensor)
    return time.perf_counter() - begun, (time.process_time() - cpu) * 1000


def show(load: Load, sensor: str, quiet: tuple[float, float], new: tuple[float, float]) -> None:
    for news, (seconds, cpu) in (("nothing", quiet), ("one thing", new)):
        line = {"benchmark": "sensors", "metric": sensor, "place": load.name, "new": news, "unit": "s"}
        figures = {"ours": round(seconds, 4), "cpu_ms": round(cpu, 1), "aim": AIM_SECONDS, "better": "lower"}
        print(json.dumps({**line, **figures}), flush=True)


@contextlib.contextmanager
def unsynced() -> Iterator[None]:
    """Have nothing put on disk at once: making the place would take hours."""
    sync, os.fsync = os.fsync, lambda fd: None
    try:
        yield
    finally:
        os.fsync = sync


def furnished(load: Load, root: Path, instance: dg.DagsterInstance) -> Platform:
    """A home with all that there is in a place, shown already."""
    make_corpus(root / "corpus")
    write_recipes(root / "recipes")
    platform = Platform(root, instance)
    names = [f"node-{number}" for number in range(load.nodes)]
    plain = platform.compute
    platform.resources["compute"] = RunningCompute(jobs=plain.jobs, nodes=plain.nodes, names=[], count=len(names))
    dataset, durable = platform.recipes.datasets["texts"], platform.home.durable
    source = steps.make_documents(dataset, durable).inputs["source"]["digest"]
    steps.make_tokenizer(dataset, durable)
    snapshot = steps.make_snapshot(dataset, durable).result["sha256"]
    pointer.point(durable, dataset.name, snapshot, source)
    platform.add(keys.NODES, *names)
    for node in names:
        key, tags = keys.key("texts", "staged_shards"), {"dagster/data_version": snapshot}
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=node, tags=tags))
    for number in range(load.open):
        is_open(platform, f"open {number}", load.checkpoints or 3)
    for number in range(load.closed):
        is_closed(platform, f"closed {number}")
    return platform


def is_open(platform: Platform, cause: str, checkpoints: int) -> None:
    """A training that runs, with checkpoints of which half are pruned and the others shown and evaluated."""
    store = platform.start_training(cause)
    assert store.claim(1, ("node-0",), "first start", BY)
    store.mark_submitted(1)
    token = fence.Token(1)
    heartbeat.Heartbeat(store.folder, token, 0).beat("step", 1)
    for step in range(1, checkpoints + 1):
        committed(store, step)
        if step % 2 == 0 and checkpoints > 3:
            fence.prune(store.folder, store.commits()[-1] if step < 3 else _commit(store, step), "a benchmark")
    facts, partitions = store.read(), []
    for commit in facts.commits:
        platform.instance.report_runless_asset_event(checkpoint_materialization(facts, commit))
        partitions.append(keys.checkpoint_partition(store.id, commit.step))
        score = Score(commit.name, 1.0, 2.7, 1.0, 0.1, 100)
        codec.replace(files.named(store.folder, files.EVALUATIONS, commit.name), score)
    platform.add(keys.checkpoint_partitions(TINY), *partitions)
    ledger = Ledger(store.folder, token, "rank-0")
    ledger.write("step", step=1, loss=1.0, seconds=0.1)
    ledger.close()
    ShippedLedger(
        "none", {p.name: p.stat().st_size for p in (store.folder / files.LEDGER).iterdir()}, experiment="none"
    ).save(store)
    run = platform.instance.create_run_for_job(
        platform._job(dg.RunRequest(asset_selection=[keys.key(TINY, "training")])),
        tags={keys.TRAINING_TAG: store.id, "dagster/partition": store.id},
        status=DagsterRunStatus.STARTED,
    )
    assert run.run_id


def is_closed(platform: Platform, cause: str) -> None:
    """A training that is over and shown, with nothing left to do."""
    store = platform.proposed(cause)
    store.want("run", BY, "a benchmark")
    assert store.claim(1, ("node-0",), "first start", BY)
    committed(store, 1)
    store.record_exit(1, "succeeded", "all steps done", BY)
    event = dg.AssetMaterialization(keys.key(TINY, "training"), partition=store.id)
    platform.instance.report_runless_asset_event(event)


def committed(store: TrainingStore, step: int) -> None:
    commit = _commit(store, step)
    codec.create_only(files.named(store.folder, files.COMMITS, commit.name), commit, fence.FORMAT)


def _commit(store: TrainingStore, step: int) -> fence.Commit:
    return fence.Commit(step, fence.Token(1), f"checkpoints/{store.id}/{step}", f"{step:064d}", {}, time.time())


def something_new(load: Load, platform: Platform) -> None:
    """One training is wanted, one more checkpoint is committed, and one node is staged with something else."""
    for id in platform.trainings.pending(WorkQueue.CHECKPOINTS)[:1]:
        committed(platform.trainings.store(id), 1_000_000)
    platform.start_training("something new")
    tags = {"dagster/data_version": "something else"}
    event = dg.AssetMaterialization(keys.key("texts", "staged_shards"), partition="node-1", tags=tags)
    platform.instance.report_runless_asset_event(event)


if __name__ == "__main__":
    main()
