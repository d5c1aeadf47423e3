"""Tracking: deliver metrics from the ledger to MLflow, independently of the training.

The ledger serves as the spool. `ship` delivers what is new in it and records its progress. A metric is identified by
its step and its time in the ledger, so delivering it twice after a crash changes nothing. While MLflow is away, nothing
is lost and no training waits. The scores of a training's checkpoints are metrics of its run too, at the checkpoints'
steps. They have the same names in every run, so that MLflow can overlay the curves of several trainings.
"""

import contextlib
import enum
import functools
import os
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import ConfigDict, Field

from slipway.resources import credentials
from slipway.resources.credentials import PublicAddress
from slipway.resources.mlflow import artifacts, circuit_breaker, database, filters, pages, sweeps
from slipway.resources.mlflow.ledger_delivery import ShippedLedger
from slipway.resources.mlflow.pages import Pages
from slipway.resources.mlflow.sweeps import SweepRun, TrialRun
from slipway.resources.trainings import naming
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec, journal, proxy_bypass
from slipway.trainer.record import files, ledger
from slipway.trainer.record.scores import Score

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, RunTag

BATCH = 1000
"""MLflow's limit of metrics in one request. One such request costs 60 times less per metric than single requests."""
PART_BYTES = 1 << 20
"""How much of a ledger is read at a time: some thousand steps of possibly a million."""
PARAMETERS = 100
"""MLflow's limit of parameters in one request."""
PARAMETER_LENGTH = 6000
"""MLflow's limit of a parameter's length."""
TAG_LENGTH = 5000
"""MLflow's limit of a tag's length."""
DELIVERY_SECONDS = 5.0
"""The time for one training in each tick; the rest waits for the next tick, so that other trainings have their turn."""
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
    "optimizer_seconds",
    "communication_seconds",
    "checkpoint_seconds",
    "cpu_cores",
    "host_memory",
    "gpu_use",
    "gpu_memory",
)
VALIDATION_METRICS = {"loss": "validation_loss", "accuracy": "validation_accuracy"}
ENDED = {"succeeded": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
USER = "MLFLOW_TRACKING_USERNAME"
PASSWORD = "MLFLOW_TRACKING_PASSWORD"
BEARER = "MLFLOW_TRACKING_TOKEN"
"""The variables from which MLflow's client reads its credentials at each request."""
SCORES = ("loss", "perplexity", "accuracy")


class Tracking(dg.ConfigurableResource):  # type: ignore[type-arg]
    """An MLflow server or SQLite database. Its fields hold no secret, but name the files that do."""

    model_config = ConfigDict(hide_input_in_errors=True)  # a rejected address may hold a secret

    uri: PublicAddress = Field(
        default="", description="MLflow's tracking URI: http://… for a server, sqlite:///… embedded"
    )
    uri_file: str = Field(default="", description="File that holds the URI if it contains a user and a password")

    token_file: str = Field(default="", description="File with Slipway's own token, if the chart's MLflow requires it")
    promoters: list[str] = Field(
        default_factory=list, description="People who may decide which version is champion; empty for everybody"
    )
    page: PublicAddress = Field(
        default="", description="Address of MLflow in a browser; empty for the URI, if that is a server's"
    )
    dagster_page: PublicAddress = Field(default="", description="Address of Dagster's UI; empty for no links")

    @property
    def pages(self) -> Pages:
        """The page links to runs and trainings."""
        mlflow = self.page
        if not mlflow and self.uri.startswith("http"):
            mlflow = self.uri
        return Pages(self.dagster_page, mlflow)

    @property
    def database(self) -> Path | None:
        """The file of MLflow's SQLite database; None for a server."""
        return Path(self.uri.removeprefix(database.URI)) if self.uri.startswith(database.URI) else None

    @property
    def is_there(self) -> bool:
        """Whether MLflow exists; False for a SQLite database that has not been created yet."""
        return self.database is None or self.database.exists()

    def client(self) -> "MlflowClient":
        """MLflow's client. The first call imports MLflow, which takes seconds.

        Raises OSError and ValueError as `read_address` and `token` of `slipway.resources.credentials` do, and for
        a SQLite database as `slipway.resources.mlflow.database.make_ready` does.
        """
        if not self.uri_file:
            if self.token_file:
                os.environ[BEARER] = credentials.password_of_platform(Path(self.token_file))
            return _client(self.uri)
        address = credentials.read_address(Path(self.uri_file))
        # Not in the URI, since MLflow's errors, which appear in Dagster's event log, quote the whole URI.
        if address.user:
            os.environ[USER] = address.user
            os.environ[PASSWORD] = address.password
        return _client(address.uri)

    def ship(
        self, store: TrainingStore, experiment: str, tags: Mapping[str, str], trial: TrialRun | None = None
    ) -> "Delivery":
        """Deliver a training's new metrics for at most `DELIVERY_SECONDS`, in bounded parts that are recorded singly.

        The run of a `trial` is nested in that of its sweep, with its own name and how it ended. Raises MLflow's own
        errors if it is away, and for a moment after that Unavailable at once, so that a silent server does not cost its
        time-out for each training. The next call continues where this one stopped.
        """
        with self._silence():
            return self._ship(store, experiment, tags, trial)

    def ship_artifacts(self, store: TrainingStore, durable: Path, *names: str) -> None:
        """Deliver the pending artefacts of a training, and the files called `names` of its folder. Raises as `ship`.

        Call it after `ship`, which creates the run, so that an artefact store that is away does not delay metrics.
        """
        with self._silence():
            artifacts.deliver(self.client(), store, durable, ShippedLedger.of(store), (*artifacts.ALWAYS, *names))

    def ship_sweep(self, folder: Path, sweep: SweepRun) -> None:
        """Update the parent run of a sweep. Raises as `ship` does."""
        with self._silence():
            client = self.client()
            run = sweeps.parent_run(client, folder, sweep.sweep, experiment_id(client, sweep.experiment))
            sweeps.deliver(client, run, sweep)

    def _silence(self) -> contextlib.AbstractContextManager[None]:
        if self.database is not None:
            return contextlib.nullcontext()
        return circuit_breaker.of(self.uri or self.uri_file)

    def _ship(
        self, store: TrainingStore, experiment: str, tags: Mapping[str, str], trial: TrialRun | None
    ) -> "Delivery":
        client = self.client()
        facts = store.read()  # before the ledger: if the training is over now, its ledger is complete
        shipped = ShippedLedger.of(store)
        if not shipped.run:
            shipped.run = _find_or_create_run(client, facts, experiment, tags, trial)
            _log_parameters(client, shipped.run, facts)
            shipped.save(store)
        if not shipped.experiment:
            shipped.experiment = str(client.get_run(shipped.run).info.experiment_id)
            shipped.save(store)
        page = self._page(facts, trial)
        if page not in ("", shipped.page):
            pages.link(client, shipped.run, facts.id, page)
            shipped.page = page
            shipped.save(store)
        deadline = time.monotonic() + DELIVERY_SECONDS
        for segment in ledger.segments(store.folder):
            for reading in _parts(segment, shipped.offsets.get(segment.name, 0)):
                environment = _environment_tags(reading.events)
                if environment:
                    client.log_batch(shipped.run, tags=environment)
                for batch in _batches(list(_metrics(reading.events))):
                    client.log_batch(shipped.run, metrics=batch)
                shipped.code += [name for name in artifacts.of_starts(reading.events) if name not in shipped.code]
                shipped.offsets[segment.name] = reading.offset
                shipped.save(store)
                if time.monotonic() > deadline:  # checked after a part, so that each call delivers at least one
                    return Delivery.IN_PART
        for commit, scores in new_scores(facts, shipped.evaluations).items():
            client.log_batch(shipped.run, metrics=scores)
            shipped.evaluations.append(commit)
            shipped.save(store)
        if facts.over and facts.ended is not None:
            if trial is not None:
                client.set_tag(shipped.run, sweeps.STATE_TAG, facts.ended.reason or facts.ended.outcome)
            client.set_terminated(shipped.run, ENDED[facts.ended.outcome])
        return Delivery.COMPLETE if facts.over else Delivery.UP_TO_DATE

    def _page(self, facts: TrainingFacts, trial: TrialRun | None) -> str:
        """The page in Dagster to which the run links."""
        if trial is not None:
            return self.pages.of_trial(trial.sweep, facts.id)
        return self.pages.of_training(facts.specification.recipe, facts.id)

    def run_of(self, store: TrainingStore) -> str:
        """The MLflow run of a training, or ""."""
        return ShippedLedger.of(store).run


class Delivery(enum.Enum):
    """How far a training's metrics have been delivered."""

    IN_PART = "more is in its ledger, for the next call"
    UP_TO_DATE = "all of its ledger; the training goes on"
    COMPLETE = "all of its ledger; the training has ended"


def experiment_id(client: "MlflowClient", name: str) -> str:
    """The id of the experiment with this name, created if there is none. With a SQLite database, its artefacts lie
    beside the database."""
    experiment = client.get_experiment_by_name(name)
    if experiment:
        return str(experiment.experiment_id)
    uri = client.tracking_uri
    location = None
    if uri.startswith(database.URI):  # MLflow's default would be a folder below the working directory
        location = (Path(uri.removeprefix(database.URI)).resolve().parent / "mlartifacts" / name).as_uri()
    return str(client.create_experiment(name, artifact_location=location))


def new_scores(facts: TrainingFacts, delivered: Collection[str]) -> "dict[str, list[Metric]]":
    """The metrics of each score that has not been delivered yet, by the name of the commit.

    A metric has the time of its commit, so delivering it twice changes nothing.
    """
    from mlflow.entities import Metric

    metrics: dict[str, list[Metric]] = {}
    there = set(files.names(facts.folder, files.EVALUATIONS)) - set(delivered)
    if not there:
        return metrics
    for commit in facts.commits:
        if commit.name not in there:
            continue
        score = codec.read_if_whole(files.named(facts.folder, files.EVALUATIONS, commit.name), Score)
        if score is None or score.damaged:
            continue
        known = {name: getattr(score, name) for name in SCORES} | score.coded
        at = int(commit.at * 1000)
        metrics[commit.name] = [Metric(f"evaluation_{name}", value, at, commit.step) for name, value in known.items()]
    return metrics


@functools.cache
def _client(uri: str) -> "MlflowClient":
    from mlflow import MlflowClient

    # MLflow's own retries would take minutes; the next tick retries instead.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    proxy_bypass.bypass(os.environ, uri)
    if uri.startswith(database.URI):
        database.make_ready(Path(uri.removeprefix(database.URI)))
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _find_or_create_run(
    client: "MlflowClient", facts: TrainingFacts, experiment: str, tags: Mapping[str, str], trial: TrialRun | None
) -> str:
    where = experiment_id(client, experiment)
    known = client.search_runs([where], filters.equal("tags.`slipway.training`", facts.id), max_results=1)
    if known:
        return str(known[0].info.run_id)
    specification = facts.specification
    lineage = {
        "slipway.training": facts.id,
        "slipway.recipe": specification.recipe,
        "slipway.snapshot": specification.snapshot,
        "slipway.tokenizer": specification.tokenizer,
    }
    if trial is not None:
        lineage[sweeps.NESTED] = sweeps.parent_run(client, trial.folder, trial.sweep, where)
        lineage |= {sweeps.SWEEP_TAG: trial.sweep, sweeps.TRIAL_TAG: str(trial.number)}
    run = client.create_run(where, run_name=trial.name if trial else naming.of(facts), tags={**lineage, **tags})
    return str(run.info.run_id)


def _log_parameters(client: "MlflowClient", run: str, facts: TrainingFacts) -> None:
    """Log the configuration as parameters. Idempotent."""
    from mlflow.entities import Param

    flat = [Param(name, str(value)[:PARAMETER_LENGTH]) for name, value in _flat(facts.specification.identity_config)]
    for first in range(0, len(flat), PARAMETERS):
        client.log_batch(run, params=flat[first : first + PARAMETERS])


def _flat(numbers: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """All nested fields as `section.field`, so that MLflow can compare runs field by field."""
    for name, value in numbers.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value


def _environment_tags(events: list[journal.JournalEvent]) -> "list[RunTag]":
    """The environment of the newest start among the events, as tags."""
    from mlflow.entities import RunTag

    started = [event for event in events if event["event"] == "started"]
    if not started:
        return []
    known = {"revision": started[-1].get("revision", ""), "world": started[-1].get("world", "")}
    known |= started[-1].get("environment", {})
    tags = {f"slipway.{name}": str(value)[:TAG_LENGTH] for name, value in _flat(known) if value not in ("", {})}
    if known["revision"]:
        tags["mlflow.source.git.commit"] = str(known["revision"]).partition("+")[0]
    return [RunTag(name, value) for name, value in tags.items()]


def _metrics(events: list[journal.JournalEvent]) -> "Iterator[Metric]":
    from mlflow.entities import Metric

    for event in events:
        moment = int(event["t"] * 1000)
        if event["event"] == "step":
            for name in STEP_METRICS:
                if name in event:
                    yield Metric(name, event[name], moment, event["step"])
            for name, value in event.get("figures", {}).items():
                yield Metric(name, value, moment, event["step"])
        elif event["event"] == "node_usage":
            for name, value in event["usage"].items():
                yield Metric(f"system/{event['node']}/{name}", value, moment, event["step"])
        elif event["event"] == "rank_figures":
            for name, value in event["figures"].items():
                yield Metric(f"rank/{event['rank']}/{name}", value, moment, event["step"])
        elif event["event"] == "validated":
            for name, metric in VALIDATION_METRICS.items():
                if name in event:
                    yield Metric(metric, event[name], moment, event["step"])


def _parts(segment: Path, offset: int) -> Iterator[journal.JournalReading]:
    """The content of a segment from an offset on, in parts."""
    while True:
        reading = journal.read(segment, offset, PART_BYTES)
        if reading.offset == offset:
            return
        yield reading
        offset = reading.offset


def _batches(metrics: "list[Metric]") -> "Iterator[list[Metric]]":
    for start in range(0, len(metrics), BATCH):
        yield metrics[start : start + BATCH]
