"""Checkpoint arrivals: each commit is shown once and evaluated once; what counts no longer is withdrawn."""

import shutil

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.assets.promotion.evaluation import evaluated
from slipway.resources.trainings.checkpoints import release
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.sensors.checkpoint_arrivals import EVALUATES_TAG
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.record import fence
from tests.sensors.platform import BY, EVERY, STEPS, Platform

CHECKPOINTS = keys.checkpoint_partitions("tiny")
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def not_evaluated(platform: Platform) -> TrainingStore:
    store = platform.finished(WorkQueue.CHECKPOINTS)
    shutil.rmtree(store.folder / "evaluations")
    return store


def partitions(store: TrainingStore) -> list[str]:
    return [keys.checkpoint_partition(store.id, step) for step in range(EVERY, STEPS + 1, EVERY)]


def without_success(store: TrainingStore) -> None:
    """As if the training had been stopped: one that has succeeded is never superseded."""
    for path in (store.folder / "exits").iterdir():
        path.unlink()
    store.record_exit(1, "stopped", "a test", BY)


def test_each_commit_is_shown_once(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    for _ in range(3):
        assert platform.apply("checkpoint_arrivals") == []
    assert platform.partitions(CHECKPOINTS) == partitions(store)
    for commit, partition in zip(store.commits(), partitions(store), strict=True):
        [materialization] = platform.materializations("checkpoint", partition)
        assert (materialization.tags or {})["dagster/data_version"] == commit.manifest
        assert materialization.metadata["step"].value == commit.step
    assert platform.trainings.pending(WorkQueue.CHECKPOINTS) == []


def test_no_commit_is_lost_when_the_daemon_dies_before_it_has_stored_the_events(platform: Platform):
    platform.finished(WorkQueue.CHECKPOINTS)
    for _ in range(3):
        assert len(platform.tick("checkpoint_arrivals").asset_events) == 3


def test_no_commit_is_lost_when_the_daemon_dies_between_the_events_and_the_partitions(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    for event in platform.tick("checkpoint_arrivals").asset_events:
        platform.instance.report_runless_asset_event(event)
    again = platform.tick("checkpoint_arrivals")
    [added] = again.dynamic_partitions_requests or []
    assert not again.asset_events and list(added.partition_keys) == partitions(store)
    platform.apply("checkpoint_arrivals")
    assert platform.partitions(CHECKPOINTS) == partitions(store)


def test_what_waits_for_evaluation_is_requested_as_one_range(platform: Platform):
    store = not_evaluated(platform)
    assert platform.apply("checkpoint_arrivals") == []
    [request] = platform.apply("checkpoint_arrivals")
    assert request.asset_selection == [keys.key("tiny", "evaluation")]
    first, *_, last = partitions(store)
    assert request.tags.items() >= {EVALUATES_TAG: store.id, START: first, END: last}.items()
    platform.queue(request)
    assert platform.apply("checkpoint_arrivals") == []


def test_a_range_goes_by_the_order_in_which_dagster_knows_the_partitions(platform: Platform):
    store = not_evaluated(platform)
    first, second, third = partitions(store)
    platform.add(CHECKPOINTS, third, first, second)
    platform.apply("checkpoint_arrivals")
    [request] = platform.apply("checkpoint_arrivals")
    assert (request.tags[START], request.tags[END]) == (third, second)


@pytest.mark.slow
def test_evaluation_measures_all_that_wait_and_then_nothing_is_left_to_do(platform: Platform):
    store = not_evaluated(platform)
    platform.apply("checkpoint_arrivals")
    [request] = platform.apply("checkpoint_arrivals")
    assert platform.launch(request).success
    scores = [score for _, score in evaluated(store.read())]
    assert len(scores) == 3 and scores[-1].loss < scores[0].loss
    for (_, score), partition in zip(evaluated(store.read()), partitions(store), strict=True):
        [materialization] = platform.materializations("evaluation", partition)
        assert materialization.metadata["bits_per_byte"].value == pytest.approx(score.bits_per_byte)
        assert "loss_curve" in materialization.metadata
    assert platform.apply("checkpoint_arrivals") == []
    assert platform.trainings.pending(WorkQueue.CHECKPOINTS) == []


@pytest.mark.slow
def test_a_damaged_checkpoint_is_set_aside_and_withdrawn_and_the_others_are_evaluated(platform: Platform):
    store = not_evaluated(platform)
    damaged = store.commits()[1]
    (platform.home.durable / damaged.folder / "model-00000.safetensors").write_bytes(b"rust")
    platform.apply("checkpoint_arrivals")
    [request] = platform.apply("checkpoint_arrivals")
    result = platform.launch(request)
    assert not result.success
    assert [path.stem for path in store.folder.glob("set-aside/*.json")] == [damaged.name]
    for _ in range(3):
        assert platform.apply("checkpoint_arrivals") == []
    first, _, last = partitions(store)
    assert platform.partitions(CHECKPOINTS) == [first, last]
    assert [commit.step for commit, _ in evaluated(store.read())] == [EVERY, STEPS]
    assert platform.trainings.pending(WorkQueue.CHECKPOINTS) == []


def test_a_commit_that_was_shown_and_then_superseded_is_withdrawn(platform: Platform):
    """The next claim had counted the commits just before it landed, and the tick came in between."""
    store = platform.finished(WorkQueue.CHECKPOINTS)
    platform.apply("checkpoint_arrivals")
    platform.apply("checkpoint_arrivals")
    without_success(store)
    late = store.folder / "commits" / f"{store.commits()[-1].name}.json"
    late.rename(store.folder / "late.json")
    store.claim(2, ("node-0",), "a test", BY)
    (store.folder / "late.json").rename(late)
    platform.trainings.start(store, BY, "a test", (WorkQueue.CHECKPOINTS,))
    assert len(platform.tick("checkpoint_arrivals").asset_events) == 1
    for _ in range(3):
        platform.apply("checkpoint_arrivals")
    assert platform.partitions(CHECKPOINTS) == partitions(store)[:-1]
    assert not platform.tick("checkpoint_arrivals").dynamic_partitions_requests


def test_the_same_step_committed_by_the_next_incarnation_is_shown_anew(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    platform.apply("checkpoint_arrivals")
    platform.apply("checkpoint_arrivals")
    without_success(store)
    old = store.commits()[-1]
    fence.set_aside(store.folder, old, "a test")
    store.claim(2, ("node-0",), "a test", BY)
    fence.commit(store.folder, fence.Commit(old.step, fence.Token(2), old.folder, "d" * 64, old.metrics, old.at))
    platform.trainings.start(store, BY, "a test", (WorkQueue.CHECKPOINTS,))
    for _ in range(3):
        platform.apply("checkpoint_arrivals")
    materializations = platform.materializations("checkpoint", partitions(store)[-1])
    versions = [(materialization.tags or {})["dagster/data_version"] for materialization in materializations]
    assert versions == ["d" * 64, old.manifest]
    assert platform.partitions(CHECKPOINTS) == partitions(store)


def test_a_training_that_still_runs_is_watched_further(platform: Platform):
    store = platform.start_training(cause="not started yet")
    for _ in range(2):
        assert platform.apply("checkpoint_arrivals") == []
    assert platform.trainings.pending(WorkQueue.CHECKPOINTS) == [store.id]


def metadata_of(platform: Platform, partition: str) -> list[dict[str, object]]:
    """The observations of a checkpoint, the newest first."""
    key = keys.key("tiny", "checkpoint")
    result = platform.instance.fetch_observations(dg.AssetRecordsFilter(key, asset_partitions=[partition]), limit=10)
    observations = [record.asset_observation for record in result.records]
    return [
        {name: value.value for name, value in observation.metadata.items()}
        for observation in observations
        if observation is not None
    ]


def test_a_checkpoint_that_was_set_aside_says_so_before_its_partition_goes(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    for _ in range(2):
        platform.apply("checkpoint_arrivals")
    first, *_ = store.commits()
    platform.trainings.start(store, BY, "a test", (WorkQueue.CHECKPOINTS,))
    store.set_aside(first, "model-00000.safetensors: found 4 bytes")
    partition = partitions(store)[0]
    platform.apply("checkpoint_arrivals")
    assert partition in platform.partitions(CHECKPOINTS), "the event comes first"
    platform.apply("checkpoint_arrivals")
    assert partition not in platform.partitions(CHECKPOINTS)
    for _ in range(2):
        platform.apply("checkpoint_arrivals")
    aside, copy = sorted(metadata_of(platform, partition), key=lambda metadata: str(metadata["what"]), reverse=True)
    assert (aside["what"], aside["tier"], aside["reason"]) == ("set aside", "all", copy["reason"])
    assert aside["what_to_do"] == (
        f"to make it valid again, run slipway checkpoints release {store.id}@{EVERY}, which verifies every byte of it"
    )
    assert (copy["what"], copy["tier"], copy["commit"]) == ("damaged copy", "durable", first.name)
    assert platform.trainings.pending(WorkQueue.CHECKPOINTS) == []


def test_a_fault_of_a_tier_is_reported_once_on_the_checkpoint(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    last = store.commits()[-1]
    replicas.note_fault(store.folder, last.name, "backup", replicas.NOT_COPIED, "s3://bucket: access denied")
    for _ in range(4):
        platform.apply("checkpoint_arrivals")
    [event] = metadata_of(platform, partitions(store)[-1])
    assert (event["what"], event["tier"], event["reason"]) == ("not copied", "backup", "s3://bucket: access denied")
    assert platform.partitions(CHECKPOINTS) == partitions(store)


def test_a_checkpoint_that_retention_removed_says_so_last(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    for _ in range(2):
        platform.apply("checkpoint_arrivals")
    fence.prune(store.folder, store.commits()[0], "retention: no tier keeps it")
    platform.trainings.start(store, BY, "a test", (WorkQueue.CHECKPOINTS,))
    for _ in range(3):
        platform.apply("checkpoint_arrivals")
    assert [metadata["what"] for metadata in metadata_of(platform, partitions(store)[0])] == ["removed"]
    assert platform.partitions(CHECKPOINTS) == partitions(store)[1:]


def test_a_released_checkpoint_is_shown_again_and_says_so(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    first = store.commits()[0]
    store.set_aside(first, "an error of the reader")
    for _ in range(4):
        platform.apply("checkpoint_arrivals")
    assert partitions(store)[0] not in platform.partitions(CHECKPOINTS)
    release(store, platform.tiers.shared(), first.name, BY, lambda *_: None)
    for _ in range(4):
        platform.apply("checkpoint_arrivals")
    assert sorted(platform.partitions(CHECKPOINTS)) == sorted(partitions(store))
    assert "released" in [metadata["what"] for metadata in metadata_of(platform, partitions(store)[0])]
