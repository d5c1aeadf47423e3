"""The training asset: materialising it starts the training or adopts it, and waits for its end."""

import os
import signal
import threading

import dagster as dg
import pytest

from slipway.assets import keys, results
from slipway.assets.results import result_metadata
from slipway.resources import identity
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import WorkQueue
from tests.conftest import Marked, until
from tests.sensors.platform import BY, Platform

TRAINING = [keys.key("tiny", "training")]


@pytest.mark.slow
def test_materialising_a_training_trains_it_and_shows_what_came_of_it(platform: Platform):
    store = platform.proposed("by hand", run={"steps": 20})
    result = platform.materialize(TRAINING, store.id)
    assert result.success
    [materialization] = platform.materializations("training", store.id)
    metadata = {name: value.value for name, value in materialization.metadata.items()}
    assert metadata["steps"] == 20 and metadata["tokens"] == 20 * 4 * 16 and metadata["incarnations"] == 1
    assert metadata["loss"] == result_metadata(store.read())["loss"]
    assert (materialization.tags or {})["dagster/data_version"] == store.commits()[-1].manifest
    run = platform.instance.get_run_by_id(result.run_id)
    assert run is not None and run.tags[keys.TRAINING_TAG] == store.id
    desired = store.desired()
    assert desired is not None and desired.by == f"run {result.run_id}"


@pytest.mark.slow
def test_who_wants_a_training_is_the_person_whom_the_proxy_named(platform: Platform):
    store = platform.proposed("by hand", run={"steps": 2})
    tags = {"dagster/partition": store.id, identity.USER_TAG: "ann"}
    result = platform.launch(dg.RunRequest(asset_selection=TRAINING, tags=tags))
    desired = store.desired()
    assert desired is not None and desired.by == f"ann, run {result.run_id}"


@pytest.mark.slow
def test_a_training_that_runs_already_is_adopted(platform: Platform, marked: Marked):
    store = platform.start_training(run={"steps": 800})
    platform.advance(store, Action.SUBMIT)
    until(lambda: store.read().beats, "the trainer")
    [rank] = marked.running("slipway.trainer")
    os.kill(rank, signal.SIGSTOP)
    adopting = threading.Thread(target=platform.materialize, args=(TRAINING, store.id))
    adopting.start()
    of_training = dg.RunsFilter(tags={keys.TRAINING_TAG: store.id})
    until(lambda: platform.instance.get_runs(of_training), "the run to find it")
    os.kill(rank, signal.SIGCONT)
    until(store.exit, "the end of the training")
    adopting.join()
    assert len(platform.materializations("training", store.id)) == 1
    assert [event["incarnation"] for event in store.events() if event["event"] == "started"] == [1]


def test_a_run_says_what_its_training_waits_for(platform: Platform):
    for node in ("node-0", "node-1"):
        platform.compute.fleet().mark_lost(node, "a test")
    store = platform.proposed("waits")
    waiting = threading.Thread(target=platform.materialize, args=(TRAINING, store.id))
    waiting.start()
    reason = "it waits: found 0 of the fleet's 2 nodes ready, expected 1 or more"
    [run] = until(lambda: platform.instance.get_runs(dg.RunsFilter(tags={keys.TRAINING_TAG: store.id})), "the run")
    until(lambda: any(reason in line for line in platform.log_lines(run.run_id)), "the run to say so")
    store.want("stop", BY, "the test is over")
    waiting.join()


@pytest.mark.slow
def test_a_training_that_is_stopped_while_it_is_waited_for_ends_the_run_in_words_and_is_no_failure(platform: Platform):
    store = platform.start_training(run={"steps": 1_000_000})
    platform.advance(store, Action.SUBMIT)

    def stop() -> None:
        until(store.commits, "the first checkpoint")
        store.want("stop", BY, "enough")

    stopping = threading.Thread(target=stop)
    stopping.start()
    result = platform.materialize(TRAINING, store.id)
    stopping.join()
    assert result.success and not platform.materializations("training", store.id)
    assert any(f"{store.id} should not run any more: enough" in line for line in platform.log_lines(result.run_id))


def test_a_run_that_only_shows_a_training_does_not_want_it_again(platform: Platform):
    store = platform.start_training(cause="stopped in the queue", run={"steps": 1_000_000})
    [request] = platform.apply("job_watch")
    store.want("stop", BY, "a person stopped it before the run began")
    result = platform.launch(request)
    assert result.success and not platform.materializations("training", store.id)
    desired = store.desired()
    assert desired is not None and desired.want == "stop"
    platform.stopped(store)


def test_two_runs_of_one_training_show_its_result_once(platform: Platform):
    store = platform.finished(WorkQueue.RUN)
    for _ in range(2):
        assert platform.materialize([keys.key("tiny", "training")], store.id).success
    assert len(platform.materializations("training", store.id)) == 1


def test_a_run_that_wakes_up_after_the_job_watch_showed_the_result_shows_nothing(platform: Platform):
    store = platform.finished(WorkQueue.RUN)
    platform.apply("job_watch")
    result = platform.materialize([keys.key("tiny", "training")], store.id)
    assert result.success and len(platform.materializations("training", store.id)) == 1
    assert any("its result was already reported" in line for line in platform.log_lines(result.run_id))


def test_while_another_process_shows_a_result_the_job_watch_leaves_it_to_that(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(results, "LOCK_SECONDS", 0.1)
    store = platform.finished(WorkQueue.RUN)
    with results.showing(platform.instance, store.read()) as due:
        assert due
        assert "another process" in str(platform.tick("job_watch").skip_message)
    assert platform.trainings.pending(WorkQueue.RUN) == [store.id]
    platform.apply("job_watch")
    assert len(platform.materializations("training", store.id)) == 1
