"""Metrics shipping: what the ledgers hold reaches MLflow once, whatever breaks in between."""

import contextlib
import itertools
import json
import socket
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from slipway.assets import keys
from slipway.resources import code
from slipway.resources.mlflow import circuit_breaker, pages
from slipway.resources.mlflow import tracking as tracking_module
from slipway.resources.mlflow.ledger_delivery import ShippedLedger
from slipway.resources.mlflow.tracking import Delivery, Tracking
from slipway.resources.trainings import naming
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.base import atomic
from slipway.trainer.metrics import rank_figures
from slipway.trainer.node import runtime_info
from slipway.trainer.record import files, ledger
from slipway.trainer.record.fence import Token
from tests.conftest import until
from tests.sensors.platform import STEPS, TINY, Platform


def ship(platform: Platform, store: TrainingStore, tags: Mapping[str, str] | None = None) -> bool:
    """Deliver what is new; whether all is delivered and the training has ended."""
    return platform.tracking.ship(store, TINY, tags or {}) is Delivery.COMPLETE


def losses(platform: Platform, store: TrainingStore) -> list[int]:
    """The steps of the loss's history, in MLflow's own order."""
    run = platform.tracking.run_of(store)
    return sorted(metric.step for metric in platform.tracking.client().get_metric_history(run, "loss"))


def evaluated_steps(platform: Platform, store: TrainingStore) -> list[int]:
    run = platform.tracking.run_of(store)
    history = platform.tracking.client().get_metric_history(run, "evaluation_loss")
    return sorted(metric.step for metric in history)


def runs_of(platform: Platform) -> int:
    client = platform.tracking.client()
    return len(client.search_runs([experiment.experiment_id for experiment in client.search_experiments()]))


def assert_postponed(platform: Platform, store: TrainingStore) -> None:
    """A tick delivers nothing, and says so."""
    reason = str(platform.tick("metrics_shipping").skip_message)
    assert reason.startswith(f"{store.id}: its metrics and artefacts are not all delivered yet: ")


def test_a_finished_training_is_delivered_whole(tracked: Platform):
    store = tracked.finished(WorkQueue.TRACKING)
    tracked.apply("metrics_shipping")
    run = tracked.tracking.client().get_run(tracked.tracking.run_of(store))
    assert losses(tracked, store) == list(range(1, STEPS + 1))
    assert run.info.status == "FINISHED"
    assert ShippedLedger.of(store).experiment == run.info.experiment_id
    figures = {"accuracy", "samples_per_second", "data_seconds", "forward_seconds", "backward_seconds", "host_memory"}
    assert figures <= run.data.metrics.keys()
    assert run.data.params["optimizer.learning_rate"] == "0.01"
    assert run.data.tags["slipway.training"] == store.id
    assert run.info.run_name == naming.of(store.read()) and run.info.run_name.startswith(f"{TINY}, ")
    assert {"evaluation_loss", "evaluation_accuracy", "evaluation_bits_per_byte"} <= run.data.metrics.keys()
    assert run.data.tags["slipway.snapshot"] == store.specification().snapshot


def test_a_score_that_is_measured_after_the_end_reaches_the_run_once(tracked: Platform):
    store = tracked.finished(WorkQueue.TRACKING)
    commit = store.commits()[-1]
    score, aside = files.named(store.folder, files.EVALUATIONS, commit.name), tracked.root / "score"
    score.rename(aside)
    tracked.apply("metrics_shipping")
    assert evaluated_steps(tracked, store) == [commit_of_store.step for commit_of_store in store.commits()[:-1]]
    aside.rename(score)
    tracked.add(keys.checkpoint_partitions(TINY), partition := keys.checkpoint_partition(store.id, commit.step))
    assert tracked.materialize([keys.key(TINY, "evaluation")], partition).success
    for _ in range(2):
        tracked.apply("metrics_shipping")
    assert evaluated_steps(tracked, store) == [commit_of_store.step for commit_of_store in store.commits()]
    assert not tracked.trainings.is_open(store.id, WorkQueue.TRACKING)


def test_a_parameter_is_a_field_however_deep_it_lies():
    numbers = {"batch": {"micro": 4}, "mix": {"texts": {"weight": 0.5}}, "none": {}}
    assert dict(tracking_module._flat(numbers)) == {"batch.micro": 4, "mix.texts.weight": 0.5, "none": {}}


def test_each_variable_of_a_start_is_a_tag_of_its_own_and_none_is_longer_than_mlflow_takes():
    environment = {"python": "3.11", "variables": {"NCCL_DEBUG": "x" * 9000}}
    started = {"event": "started", "revision": "", "world": 2, "environment": environment}
    tags = {tag.key: tag.value for tag in tracking_module._environment_tags([started])}
    assert tags == {
        "slipway.world": "2",
        "slipway.python": "3.11",
        "slipway.variables.NCCL_DEBUG": "x" * tracking_module.TAG_LENGTH,
    }


def test_a_run_says_what_it_ran_on_and_what_its_nodes_did(tracked: Platform):
    store = tracked.finished(WorkQueue.TRACKING)
    tracked.apply("metrics_shipping")
    data = tracked.tracking.client().get_run(tracked.tracking.run_of(store)).data
    listed = runtime_info.packages_path(tracked.home.durable, data.tags["slipway.packages"])
    assert f"numpy=={version('numpy')}\n" in listed.read_text()
    assert data.tags["slipway.kernel"].startswith("Linux ") and data.tags["slipway.accelerator"]
    assert data.tags["mlflow.source.git.commit"] == tracked.compute.revision.partition("+")[0]
    used = {"cpu_utilization_percentage", "system_memory_usage_percentage", "disk_usage_percentage"}
    assert {f"system/node-0/{name}" for name in used | {"network_receive_megabytes"}} <= data.metrics.keys()


def test_a_run_has_what_ran_and_in_the_end_its_page(tracked: Platform):
    store = tracked.finished(WorkQueue.TRACKING)
    changed = f"{'1' * 40}+{'2' * 12}"
    atomic.create_only(code.difference_path(tracked.home.durable, changed), b"+ a line\n")
    ledger.note(store.folder, Token(1), "another", "started", revision=changed)
    tracked.apply("metrics_shipping")
    client, run = tracked.tracking.client(), tracked.tracking.run_of(store)
    packages = runtime_info.packages_path(tracked.home.durable, client.get_run(run).data.tags["slipway.packages"])
    assert {artifact.path for artifact in client.list_artifacts(run)} == {"code", "report.html", "specification.json"}
    paths = {
        artifact.path for artifact in client.list_artifacts(run, "code")
    }  # and the difference of this checkout, maybe
    assert {f"code/{changed}.diff", f"code/{packages.name}"} <= paths
    difference = client.download_artifacts(run, f"code/{changed}.diff", str(tracked.root))
    assert Path(difference).read_bytes() == b"+ a line\n"
    assert "Curves" in Path(client.download_artifacts(run, "report.html", str(tracked.root))).read_text()
    assert tracked.trainings.pending(WorkQueue.TRACKING) == []


def test_artefacts_that_cannot_be_kept_hold_no_metric_back(tracked: Platform, monkeypatch: pytest.MonkeyPatch):
    store, client = tracked.finished(WorkQueue.TRACKING), tracked.tracking.client()

    def away(*_: object) -> None:
        raise ConnectionError("the store of artefacts is away")

    with monkeypatch.context() as patched:
        patched.setattr(client, "log_artifact", away)
        tracked.resources["tracking"] = Tracking(uri=tracked.tracking.uri, page="https://mlflow.example")
        tracked.apply("metrics_shipping")
    assert tracked.trainings.pending(WorkQueue.TRACKING) == [store.id]
    run = tracked.tracking.run_of(store)
    assert losses(tracked, store) == list(range(1, STEPS + 1))
    assert client.get_run(run).info.status == "FINISHED" and not client.list_artifacts(run)
    [observation] = tracked.observations(store.id)
    assert observation.metadata["mlflow"].value == f"https://mlflow.example/#/runs/{run}"
    tracked.cursors.clear()  # the rest after a failure is over
    tracked.apply("metrics_shipping")
    assert {artifact.path for artifact in client.list_artifacts(run)} == {"code", "report.html", "specification.json"}
    assert tracked.trainings.pending(WorkQueue.TRACKING) == []


def test_what_differs_between_ranks_is_in_the_run_rank_by_rank(tracked: Platform):
    store = tracked.finished(WorkQueue.TRACKING)
    for rank in (0, 1):
        figures = {"steps": 3, "forward_seconds": 1.0 + rank}
        event = {"rank": rank, "step": 3, "figures": figures}
        ledger.note(store.folder, Token(1), f"figures-{rank}", rank_figures.EVENT, **event)
    tracked.apply("metrics_shipping")
    metrics = tracked.tracking.client().get_run(tracked.tracking.run_of(store)).data.metrics
    assert (metrics["rank/0/forward_seconds"], metrics["rank/1/forward_seconds"]) == (1.0, 2.0)


def test_a_run_and_its_partition_lead_to_each_other(tracked: Platform):
    store = tracked.finished(WorkQueue.TRACKING)
    tracked.resources["tracking"] = Tracking(
        uri=tracked.tracking.uri, page="https://mlflow.example/", dagster_page="https://slipway.example"
    )
    tracked.apply("metrics_shipping")
    run = tracked.tracking.client().get_run(tracked.tracking.run_of(store))
    page = f"https://slipway.example/assets/tiny/training?view=partitions&partition={store.id}"
    assert run.data.tags[pages.PAGE_TAG] == page
    assert run.data.tags[pages.NOTE] == f"[{store.id} in Dagster]({page})"
    [observation] = tracked.observations(store.id)
    assert observation.metadata["mlflow"].value == f"https://mlflow.example/#/runs/{run.info.run_id}"


def test_the_description_that_a_person_wrote_stays(tracked: Platform):
    store = tracked.finished()
    assert ship(tracked, store)
    client, run = tracked.tracking.client(), tracked.tracking.run_of(store)
    client.set_tag(run, pages.NOTE, "the one for the paper")
    pages.link(client, run, store.id, "https://slipway.example/assets/tiny/training")
    tags = client.get_run(run).data.tags
    assert tags[pages.NOTE] == "the one for the paper"
    assert tags[pages.PAGE_TAG] == "https://slipway.example/assets/tiny/training"


def test_the_second_tick_delivers_nothing(tracked: Platform):
    tracked.finished(WorkQueue.TRACKING)
    tracked.apply("metrics_shipping")
    assert tracked.trainings.pending(WorkQueue.TRACKING) == []
    tracked.apply("metrics_shipping")
    assert runs_of(tracked) == 1


def test_delivering_all_of_it_twice_leaves_each_metric_once(tracked: Platform):
    store = tracked.finished()
    assert ship(tracked, store)
    (store.folder / "tracking.json").unlink()
    assert ship(tracked, store)
    assert losses(tracked, store) == list(range(1, STEPS + 1))
    assert runs_of(tracked) == 1


def test_a_delivery_that_broke_between_two_batches_is_completed(tracked: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracking_module, "BATCH", 100)
    store = tracked.finished(WorkQueue.TRACKING)
    client = tracked.tracking.client()
    log_batch, calls = client.log_batch, []

    def break_at_the_third(*arguments: object, **named: object) -> None:
        calls.append(named)
        if len(calls) == 3:
            raise ConnectionError("MLflow went away")
        log_batch(*arguments, **named)

    monkeypatch.setattr(client, "log_batch", break_at_the_third)
    assert_postponed(tracked, store)
    assert tracked.trainings.pending(WorkQueue.TRACKING) == [store.id]
    tracked.apply("metrics_shipping")
    assert losses(tracked, store) == list(range(1, STEPS + 1))
    assert tracked.trainings.pending(WorkQueue.TRACKING) == []


def test_a_long_ledger_is_delivered_in_parts_over_several_ticks(tracked: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracking_module, "PART_BYTES", 8192)
    monkeypatch.setattr(tracking_module, "DELIVERY_SECONDS", 0.0)
    store, stood = tracked.finished(WorkQueue.TRACKING), list[int]()
    while tracked.trainings.pending(WorkQueue.TRACKING):
        tracked.apply("metrics_shipping")
        stood.append(sum(ShippedLedger.of(store).offsets.values()))
    parts = [after - before for before, after in itertools.pairwise(stood)]
    assert len(parts) > 5 and max(parts) < 2 * 8192
    assert losses(tracked, store) == list(range(1, STEPS + 1))


def test_a_run_that_was_made_without_its_parameters_gets_them(tracked: Platform):
    store = tracked.finished()
    client = tracked.tracking.client()
    where = client.create_experiment(TINY)
    client.create_run(where, tags={"slipway.training": store.id})
    ship(tracked, store)
    assert runs_of(tracked) == 1
    assert client.get_run(tracked.tracking.run_of(store)).data.params["run.steps"] == str(STEPS)


def test_while_mlflow_is_away_nothing_is_lost_and_the_tick_says_so(tracked: Platform):
    store = tracked.finished(WorkQueue.TRACKING)
    there = tracked.resources["tracking"]
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        tracked.resources["tracking"] = Tracking(uri=f"http://127.0.0.1:{nobody_listens.getsockname()[1]}")
        assert_postponed(tracked, store)
    tracked.resources["tracking"] = there
    tracked.apply("metrics_shipping")
    assert losses(tracked, store) == list(range(1, STEPS + 1))


def test_a_server_that_accepts_and_never_answers_costs_one_deadline_for_all_trainings(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(circuit_breaker, "SECONDS", 60.0)
    stores = [tracked.proposed(f"cause {number}") for number in range(5)]
    for store in stores:
        tracked.trainings.open(store.id, WorkQueue.TRACKING)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracked.resources["tracking"] = Tracking(uri=f"http://127.0.0.1:{silent.getsockname()[1]}")
        reason = str(tracked.tick("metrics_shipping").skip_message)
        silent.settimeout(0.0)
        connections = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
    assert connections == 1
    assert reason.count("MLflow did not answer a moment ago") == len(stores) - 1


@pytest.mark.slow
def test_a_training_that_runs_is_delivered_as_it_goes(tracked: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracking_module, "DELIVERY_SECONDS", 2.0)  # the training goes on as long as the delivery
    store = tracked.start_training(run={"steps": 1_000_000})
    tracked.advance(store, Action.SUBMIT)
    until(store.commits, "the first checkpoint")
    assert not ship(tracked, store)
    before = losses(tracked, store)
    tracked.stopped(store)
    until(lambda: ship(tracked, store), "all to be delivered, in more than one call on a slow machine")
    reached = store.commits()[-1].step
    assert 0 < len(before) < reached and losses(tracked, store) == list(range(1, reached + 1))
    assert tracked.tracking.client().get_run(tracked.tracking.run_of(store)).info.status == "KILLED"


def test_where_the_delivery_stands_is_a_file_beside_the_ledger(tracked: Platform):
    store = tracked.finished()
    ship(tracked, store)
    offsets = json.loads((store.folder / "tracking.json").read_text())["offsets"]
    assert offsets == {path.name: path.stat().st_size for path in (store.folder / "ledger").iterdir()}
