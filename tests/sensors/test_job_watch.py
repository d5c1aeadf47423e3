"""Job watch: what should run, runs; what a person cancelled, stops; how it ended is shown once."""

import time
from types import SimpleNamespace

import pytest
from dagster import DagsterRunStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from slipway.assets import keys
from slipway.resources.identity import CANCELLED_TAG
from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import WorkQueue
from slipway.sensors.job_watch import training_request
from slipway.sensors.support import runs
from tests.conftest import until
from tests.sensors.platform import BY, STEPS, Platform

ENDLESS = {"steps": 1_000_000}


def test_with_nothing_to_watch_a_tick_asks_for_nothing(platform: Platform):
    outcome = platform.tick("job_watch")
    assert not outcome.run_requests and not outcome.asset_events


def test_a_wanted_training_is_started_and_a_run_requested_to_show_it(platform: Platform):
    store = platform.start_training(run=ENDLESS)
    [request] = platform.apply("job_watch")
    assert request.asset_selection == [keys.key("tiny", "training")]
    assert request.run_key is None and request.partition_key is None
    assert (request.tags["dagster/partition"], request.tags[keys.TRAINING_TAG]) == (store.id, store.id)
    until(lambda: platform.compute.launcher().poll(job_name(store.id, 1)).state is JobState.RUNNING, "the job to run")
    platform.stopped(store)


def test_no_second_run_is_requested_while_one_is_unfinished(platform: Platform):
    store = platform.start_training(run=ENDLESS)
    [request] = platform.apply("job_watch")
    platform.queue(request)
    assert platform.apply("job_watch") == []
    assert [path.name for path in platform.home.jobs.glob(f"{store.id}-*")] == [job_name(store.id, 1)]
    platform.stopped(store)


def test_after_a_run_that_failed_the_next_one_waits_a_while(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    store = platform.start_training(run=ENDLESS)
    [request] = platform.apply("job_watch")
    platform.end(platform.queue(request), DagsterRunStatus.FAILURE)
    assert platform.apply("job_watch") == []
    monkeypatch.setattr(runs, "BACKOFF_SECONDS", 0.0)
    assert len(platform.apply("job_watch")) == 1
    platform.stopped(store)


@pytest.mark.slow
def test_a_cancelled_run_stops_the_training(platform: Platform):
    store = platform.start_training(run=ENDLESS)
    [request] = platform.apply("job_watch")
    run = platform.queue(request)
    until(lambda: store.read().beats, "the trainer")
    platform.instance.add_run_tags(run.run_id, {CANCELLED_TAG: "ann"})
    platform.end(run, DagsterRunStatus.CANCELED)
    assert platform.apply("job_watch") == []
    desired = store.desired()
    assert desired is not None and (desired.want, desired.by) == ("stop", "ann")
    assert desired.why == f"run {run.run_id} was cancelled"
    platform.advance(store)
    assert platform.apply("job_watch") == []
    [observation] = platform.observations(store.id)
    metadata = {name: value.value for name, value in observation.metadata.items()}
    assert (metadata["outcome"], metadata["why"]) == ("stopped", f"run {run.run_id} was cancelled")


def test_a_run_that_was_cancelled_before_the_training_was_last_wanted_does_not_stop_it(platform: Platform):
    store = platform.start_training(run=ENDLESS)
    [request] = platform.apply("job_watch")
    platform.end(platform.queue(request), DagsterRunStatus.CANCELED)
    platform.apply("job_watch")
    platform.advance(store)
    store.want("run", BY, "after all")
    platform.apply("job_watch")
    assert store.read().should_run
    platform.stopped(store)


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_the_order_of_cancelling_and_wanting_is_not_known_by_clocks(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, skew: float
):
    """What is wanted was written on a machine whose clock is an hour off; nothing of the training has run yet."""
    for node in ("node-0", "node-1"):
        platform.compute.fleet().mark_lost(node, "a test")
    monkeypatch.setattr("slipway.resources.trainings.store.time", SimpleNamespace(time=lambda: time.time() + skew))
    store = platform.start_training(run=ENDLESS)
    [request] = platform.apply("job_watch")
    platform.end(platform.queue(request), DagsterRunStatus.CANCELED)
    platform.apply("job_watch")
    assert not store.read().should_run
    store.want("run", BY, "after all")
    platform.apply("job_watch")
    assert store.read().should_run


def test_a_run_that_failed_does_not_stop_the_training(platform: Platform):
    store = platform.start_training(run=ENDLESS)
    [request] = platform.apply("job_watch")
    platform.end(platform.queue(request), DagsterRunStatus.FAILURE)
    platform.apply("job_watch")
    assert store.read().should_run and platform.compute.launcher().poll(job_name(store.id, 1)).state is JobState.RUNNING
    platform.stopped(store)


def test_a_result_that_no_run_showed_is_materialised_once(platform: Platform):
    store = platform.finished(WorkQueue.RUN)
    for _ in range(3):
        assert platform.apply("job_watch") == []
    [materialization] = platform.materializations("training", store.id)
    assert materialization.metadata["steps"].value == STEPS
    assert (materialization.tags or {})["dagster/data_version"] == store.commits()[-1].manifest
    assert platform.trainings.pending(WorkQueue.RUN) == []


def test_a_result_is_in_the_event_log_when_the_daemon_dies_before_the_tick_is_over(platform: Platform):
    store = platform.finished(WorkQueue.RUN)
    for _ in range(3):
        assert not platform.tick("job_watch").asset_events
    assert len(platform.materializations("training", store.id)) == 1


def test_an_end_without_success_is_not_lost_either(platform: Platform):
    store = platform.start_training(cause="never starts", run=ENDLESS)
    platform.compute.fleet().mark_lost("node-0", "a test")
    platform.compute.fleet().mark_lost("node-1", "a test")
    store.claim(1, ("node-0",), "a test", BY)
    store.record_exit(1, "failed", "a test", BY)
    store.want("stop", BY, "it fails")
    for _ in range(2):
        assert len(platform.tick("job_watch").asset_events) == 1
    for _ in range(4):
        platform.apply("job_watch")
    assert len(platform.observations(store.id)) == 2, "the incident, and the end"
    assert platform.trainings.pending(WorkQueue.RUN) == []


def test_what_the_run_itself_showed_is_not_shown_again(platform: Platform):
    store = platform.finished(WorkQueue.RUN)
    assert platform.materialize([keys.key("tiny", "training")], store.id).success
    for _ in range(2):
        assert platform.apply("job_watch") == []
    assert len(platform.materializations("training", store.id)) == 1
    assert platform.trainings.pending(WorkQueue.RUN) == []


def test_while_a_run_is_unfinished_the_result_is_left_to_it(platform: Platform):
    store = platform.finished(WorkQueue.RUN)
    platform.queue(training_request(store.read()))
    assert not platform.tick("job_watch").asset_events
    assert platform.trainings.pending(WorkQueue.RUN) == [store.id]


def test_a_result_does_not_wait_for_a_run_that_is_queued_behind_other_trainings(platform: Platform):
    store = platform.finished(WorkQueue.RUN)
    request = training_request(store.read())
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("slipway"), "all"), "training")
    platform.instance.create_run_for_job(
        platform._job(request), tags=dict(request.tags), status=DagsterRunStatus.QUEUED, remote_job_origin=origin
    )
    for _ in range(2):
        assert platform.apply("job_watch") == []
    assert platform.trainings.pending(WorkQueue.RUN) == []
    assert platform.launch(request).success, "its turn comes"
    assert len(platform.materializations("training", store.id)) == 1


def test_without_nodes_a_run_is_requested_all_the_same_and_waits(platform: Platform):
    for node in ("node-0", "node-1"):
        platform.compute.fleet().mark_lost(node, "a test")
    store = platform.start_training(run=ENDLESS)
    assert len(platform.apply("job_watch")) == 1
    assert platform.control.advance(store, BY) is Action.WAIT


def test_a_training_that_cannot_be_read_does_not_hold_up_the_others(platform: Platform):
    broken, store = platform.start_training(cause="another"), platform.finished(WorkQueue.RUN)
    for path in broken.folder.glob("terms.*"):
        path.write_text("{")
    platform.apply("job_watch")
    assert len(platform.materializations("training", store.id)) == 1


def test_what_a_training_waits_for_too_long_is_shown_once(platform: Platform):
    for node in ("node-0", "node-1"):
        platform.compute.fleet().mark_lost(node, "the power is gone")
    store = platform.start_training("never starts", recovery={"pending_seconds": 0.01})
    until(lambda: platform.apply("job_watch") is not None and platform.observations(store.id), "the wait to be shown")
    metadata = {name: value.value for name, value in platform.observations(store.id)[0].metadata.items()}
    assert (metadata["outcome"], metadata["incarnation"]) == ("pending", 0)
    assert str(metadata["reason"]).startswith(
        "found 0 of the fleet's 2 nodes ready, expected 1 or more (node-0: the power is gone"
    )
    for _ in range(3):
        platform.apply("job_watch")
    assert len(platform.observations(store.id)) == 1 and store.read().should_run


def test_what_a_training_waits_for_is_shown_again_when_it_changes(platform: Platform):
    fleet = platform.compute.fleet()
    for node in ("node-0", "node-1"):
        fleet.mark_lost(node, "the power is gone")
    store = platform.start_training("never starts", recovery={"pending_seconds": 0.01})
    until(lambda: platform.apply("job_watch") is not None and platform.observations(store.id), "the wait to be shown")
    fleet.mark_lost("node-1", "the roof leaks")
    until(lambda: platform.apply("job_watch") is not None and len(platform.observations(store.id)) == 2, "the news")
    assert "the roof leaks" in str(platform.observations(store.id)[0].metadata["reason"].value)


def test_what_a_training_waits_for_briefly_is_not_shown(platform: Platform):
    for node in ("node-0", "node-1"):
        platform.compute.fleet().mark_lost(node, "the power is gone")
    platform.start_training("never starts")
    assert not platform.tick("job_watch").asset_events
