"""Tracking: metrics go from the ledger to MLflow, outside the training's path.

The ledger is the spool. `ship` delivers what is new in it and remembers how far it came; a metric is keyed
by its step and its ledger time, so that delivering twice after a crash changes nothing. While MLflow is
away nothing is lost and nothing waits.
"""

import functools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from resources.training_store import TrainingStore
from trainer import atomic, journal, ledger

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

BATCH = 1000
"""Metrics in one request: MLflow's limit, and 60 times cheaper a metric than one by one."""
STEP_METRICS = (
    "loss",
    "accuracy",
    "perplexity",
    "learning_rate",
    "gradient_norm",
    "samples_per_second",
    "tokens_per_second",
    "flops_per_second",
    "mfu",
    "seconds",
    "data_seconds",
    "forward_seconds",
    "backward_seconds",
    "optimiser_seconds",
    "communication_seconds",
    "checkpoint_seconds",
    "cpu_cores",
    "host_memory",
    "gpu_use",
    "gpu_memory",
)
VALIDATION_METRICS = {"loss": "validation_loss", "accuracy": "validation_accuracy"}
ENDED = {"succeeded": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class Tracking(dg.ConfigurableResource):  # type: ignore[type-arg]
    """An MLflow server, or a database of its own."""

    uri: str = Field(description="MLflow's tracking URI: http://… for a server, sqlite:///… embedded")

    def client(self) -> "MlflowClient":
        """MLflow's client; importing it takes seconds, so this is the first time that anyone does."""
        return _client(self.uri)

    def ship(self, store: TrainingStore, experiment: str, tags: Mapping[str, str]) -> bool:
        """Deliver a training's new metrics; True when it has ended and all of it is delivered.

        Raises what MLflow raises when it is away; the next call goes on where this one stopped.
        """
        client = self.client()
        shipped = _Shipped(store)
        if not shipped.run:
            shipped.run = _find_or_create_run(client, store, experiment, tags)
            _log_parameters(client, shipped.run, store)
            shipped.save()
        ended = store.exit()
        for segment in ledger.segments(store.folder):
            reading = journal.read(segment, shipped.offsets.get(segment.name, 0))
            for batch in _batches(list(_metrics(reading.events))):
                client.log_batch(shipped.run, metrics=batch)
            if reading.offset != shipped.offsets.get(segment.name, 0):
                shipped.offsets[segment.name] = reading.offset
                shipped.save()
        final = ended is not None and (ended.outcome == "succeeded" or not store.wanted)
        if final and ended is not None:
            client.set_terminated(shipped.run, ENDED[ended.outcome])
        return final

    def run_of(self, store: TrainingStore) -> str:
        """The MLflow run of a training, empty when nothing was shipped yet."""
        return _Shipped(store).run


class _Shipped:
    """How far the delivery of a training's ledger has come."""

    def __init__(self, store: TrainingStore) -> None:
        self._path = store.folder / "tracking.json"
        known = json.loads(self._path.read_bytes()) if self._path.exists() else {}
        self.run: str = known.get("run", "")
        self.offsets: dict[str, int] = known.get("offsets", {})

    def save(self) -> None:
        atomic.replace(self._path, atomic.readable_json({"run": self.run, "offsets": self.offsets}))


@functools.cache
def _client(uri: str) -> "MlflowClient":
    from mlflow import MlflowClient

    # MLflow's own retries go on for minutes; ours is the next tick.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def experiment_id(client: "MlflowClient", name: str) -> str:
    """The experiment of this name, made when there is none."""
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


def _find_or_create_run(client: "MlflowClient", store: TrainingStore, experiment: str, tags: Mapping[str, str]) -> str:
    where = experiment_id(client, experiment)
    known = client.search_runs([where], f"tags.`slipway.training` = '{store.id}'", max_results=1)
    if known:
        return str(known[0].info.run_id)
    specification = store.specification()
    lineage = {
        "slipway.training": store.id,
        "slipway.recipe": specification.recipe,
        "slipway.snapshot": specification.snapshot,
        "slipway.tokenizer": specification.tokenizer,
    }
    run = client.create_run(where, run_name=store.id, tags={**lineage, **tags})
    return str(run.info.run_id)


def _log_parameters(client: "MlflowClient", run: str, store: TrainingStore) -> None:
    """Logging them again, after a crash, changes nothing."""
    from mlflow.entities import Param

    client.log_batch(run, params=[Param(name, str(value)) for name, value in _flat(store.specification().numbers)])


def _flat(numbers: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, fields in numbers.items():
        for name, value in fields.items():
            yield f"{section}.{name}", value


def _metrics(events: list[journal.Event]) -> "Iterator[Metric]":
    from mlflow.entities import Metric

    for event in events:
        moment = int(event["t"] * 1000)
        if event["event"] == "step":
            for name in STEP_METRICS:
                if name in event:
                    yield Metric(name, event[name], moment, event["step"])
            for name, value in event.get("figures", {}).items():
                yield Metric(name, value, moment, event["step"])
        elif event["event"] == "validated":
            for name, metric in VALIDATION_METRICS.items():
                if name in event:
                    yield Metric(metric, event[name], moment, event["step"])


def _batches(metrics: "list[Metric]") -> "Iterator[list[Metric]]":
    for start in range(0, len(metrics), BATCH):
        yield metrics[start : start + BATCH]
