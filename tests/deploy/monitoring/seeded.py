"""A home as a platform leaves it in the middle of its work, written through the doors that it uses."""

import time
from typing import Any

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, TickData, TickStatus
from dagster._daemon.types import DaemonHeartbeat

from slipway.assets.sweeps.store import SweepStore
from slipway.resources.home import Home
from slipway.resources.trainings.store import TrainingStore
from slipway.serving.records import ServedVersion, ServingRecords, ServingWish, SwitchVerdict
from slipway.trainer.base import journal
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Heartbeat
from slipway.trainer.record.incidents import IncidentRecord
from tests.assets.sweeps import simulation
from tests.cli import homes

SENSOR = "job_watch"


def seed(home: Home, dagster: dg.DagsterInstance) -> TrainingStore:
    """A training that runs, one that waits, one that is over, a sweep, a served model, a sensor; returns the first."""
    homes.ended(home, "over", "succeeded", "all steps are done", 10)
    homes._trainings(home).start(homes.offered(home, "waiting"), "ada", "the test wants it")
    store = homes.running(home, "tiny", 10, 20)
    for commit in store.commits():
        replicas.record(store.folder, commit, "backup", 100)
    store.note_incident(IncidentRecord(str(Token(1)), "machine", "a fault", "restarted", "ada", time.time(), 20))
    Heartbeat(store.folder, Token(1), 0).beat("training", 21, pace=(0.6, 0.5))
    write(store, {"event": "phase", "phase": "starting", "step": 0, "since": time.time() - 30},
          {"event": "met", "world": 1}, {"event": "phase", "phase": "training", "step": 0},
          {"event": "restored", "step": 0, "commit": "c", "seconds": 1.0},
          {"event": "validated", "step": 20, "loss": 2.5},
          {"event": "bound", "step": 20, "bound": "compute", "share": 0.9},
          {"event": "replication_failed", "step": 20, "tier": "backup", "reason": "away"})  # fmt: skip
    step(store, 22)
    sweep = SweepStore(home.durable / "sweeps" / "curves-000000000000")
    sweep.create({})
    sweep.append(*simulation.log_of(*simulation.begun(trials=2), simulation.power_law))
    served = ServingRecords(home.durable)
    wish = ServingWish("serve", "ada", "the test", ServedVersion("3", "0" * 64, "exports/3", "1" * 64))
    assert served.wish(served.state("tiny"), wish)
    assert served.judge(served.state("tiny"), SwitchVerdict("all", "ready"))
    _sensor(dagster)
    return store


def write(store: TrainingStore, *events: dict[str, Any]) -> None:
    """Append events of rank 0."""
    with journal.Journal(store.folder / "ledger" / f"{Token(1)}.rank-0.jsonl", durable=False) as log:
        log.append(*({"t": time.time(), **event} for event in events))


def step(store: TrainingStore, number: int) -> None:
    """Append a step with all its figures, a checkpoint, and its copy."""
    figures = {
        "samples": number * 8, "tokens": number * 512, "loss": 2.0, "accuracy": 0.25, "learning_rate": 0.01,
        "gradient_norm": 1.5, "seconds": 0.5, "samples_per_second": 16.0, "tokens_per_second": 1024.0,
        "flops_per_second": 1e9, "mfu": 0.4, "data_seconds": 0.1, "forward_seconds": 0.3,
        "communication_seconds": 0.01, "cpu_cores": 1.0, "cpu_wait": 0.0, "host_memory": 1e9,
        "host_memory_free_share": 0.5, "gpu_use": 0.9, "gpu_memory": 2e9, "gpu_memory_total": 8e9,
        "gpu_memory_retries": 0,
    }  # fmt: skip
    saved = {"event": "committed", "step": number, "commit": "c", "seconds": 1.0, "bytes": 100, "blocked_seconds": 0.1}
    copied = {"event": "replicated", "step": number, "commit": "c", "tier": "durable", "bytes": 100, "seconds": 1.0}
    write(store, {"event": "step", "step": number, **figures}, saved, copied)


def _sensor(dagster: dg.DagsterInstance) -> None:
    """A sensor that ticks, and a daemon that lives."""
    code = RegisteredCodeLocationOrigin("slipway")
    origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(code, "__repository__"), SENSOR)
    kind = InstigatorType.SENSOR
    dagster.add_instigator_state(InstigatorState(origin, kind, InstigatorStatus.RUNNING))
    now = time.time()
    dagster.create_tick(
        TickData(
            origin.get_id(), SENSOR, kind, TickStatus.SKIPPED, now, selector_id=origin.get_selector().get_id(),
            end_timestamp=now + 0.1,
        )
    )  # fmt: skip
    dagster.add_daemon_heartbeat(DaemonHeartbeat(now, "SENSOR", "d"))
