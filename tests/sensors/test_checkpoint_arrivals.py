"""Checkpoint arrivals: each commit is shown once and evaluated once; what counts no longer is withdrawn."""

import shutil

import pytest

from assets import keys
from assets.evaluation import evaluated
from resources.training_store import TrainingStore
from sensors.checkpoint_arrivals import EVALUATES_TAG
from tests.sensors.platform import BY, EVERY, STEPS, Platform
from trainer import fence

CHECKPOINTS = keys.checkpoint_partitions("tiny")
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def not_evaluated(platform: Platform) -> TrainingStore:
    store = platform.finished("checkpoints")
    shutil.rmtree(store.folder / "evaluations")
    return store


def partitions(store: TrainingStore) -> list[str]:
    return [keys.checkpoint_partition(store.id, step) for step in range(EVERY, STEPS + 1, EVERY)]


def test_each_commit_is_shown_once(platform: Platform):
    store = platform.finished("checkpoints")
    for _ in range(3):
        assert platform.apply("checkpoint_arrivals") == []
    assert platform.partitions(CHECKPOINTS) == partitions(store)
    for commit, partition in zip(store.commits(), partitions(store), strict=True):
        [shown] = platform.materialisations("checkpoint", partition)
        assert (shown.tags or {})["dagster/data_version"] == commit.manifest
        assert shown.metadata["step"].value == commit.step
    assert platform.trainings.opened("checkpoints") == []


def test_no_commit_is_lost_when_the_daemon_dies_before_it_has_stored_the_events(platform: Platform):
    platform.finished("checkpoints")
    for _ in range(3):
        assert len(platform.tick("checkpoint_arrivals").asset_events) == 3


def test_nor_when_it_dies_between_the_events_and_the_partitions(platform: Platform):
    store = platform.finished("checkpoints")
    for event in platform.tick("checkpoint_arrivals").asset_events:
        platform.instance.report_runless_asset_event(event)
    again = platform.tick("checkpoint_arrivals")
    assert not again.asset_events and len(again.dynamic_partitions_requests or []) == 3
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


def test_evaluation_measures_all_that_wait_and_then_nothing_is_left_to_do(platform: Platform):
    store = not_evaluated(platform)
    platform.apply("checkpoint_arrivals")
    [request] = platform.apply("checkpoint_arrivals")
    assert platform.launch(request).success
    scores = [score for _, score in evaluated(store)]
    assert len(scores) == 3 and scores[-1].loss < scores[0].loss
    for (_, score), partition in zip(evaluated(store), partitions(store), strict=True):
        [shown] = platform.materialisations("evaluation", partition)
        assert shown.metadata["bits_per_byte"].value == pytest.approx(score.bits_per_byte)
        assert "loss_curve" in shown.metadata
    assert platform.apply("checkpoint_arrivals") == []
    assert platform.trainings.opened("checkpoints") == []


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
    assert [commit.step for commit, _ in evaluated(store)] == [EVERY, STEPS]
    assert platform.trainings.opened("checkpoints") == []


def test_a_commit_that_was_shown_and_then_superseded_is_withdrawn(platform: Platform):
    """The next claim had counted the commits just before it landed, and the tick came in between."""
    store = platform.finished("checkpoints")
    platform.apply("checkpoint_arrivals")
    platform.apply("checkpoint_arrivals")
    late = store.folder / "commits" / f"{store.commits()[-1].name}.json"
    late.rename(store.folder / "late.json")
    store.claim(2, ("node-0",), "a test", BY)
    (store.folder / "late.json").rename(late)
    platform.trainings.start(store, BY, "a test", ("checkpoints",))
    assert len(platform.tick("checkpoint_arrivals").dynamic_partitions_requests or []) == 1
    for _ in range(2):
        platform.apply("checkpoint_arrivals")
    assert platform.partitions(CHECKPOINTS) == partitions(store)[:-1]
    assert not platform.tick("checkpoint_arrivals").dynamic_partitions_requests


def test_the_same_step_committed_by_the_next_incarnation_is_shown_anew(platform: Platform):
    store = platform.finished("checkpoints")
    platform.apply("checkpoint_arrivals")
    platform.apply("checkpoint_arrivals")
    old = store.commits()[-1]
    fence.set_aside(store.folder, old, "a test")
    store.claim(2, ("node-0",), "a test", BY)
    fence.commit(store.folder, fence.Commit(old.step, fence.Token(2), old.folder, "d" * 64, old.metrics, old.at))
    platform.trainings.start(store, BY, "a test", ("checkpoints",))
    for _ in range(3):
        platform.apply("checkpoint_arrivals")
    shown = platform.materialisations("checkpoint", partitions(store)[-1])
    versions = [(each.tags or {})["dagster/data_version"] for each in shown]
    assert versions == ["d" * 64, old.manifest]
    assert platform.partitions(CHECKPOINTS) == partitions(store)


def test_a_training_that_still_runs_is_watched_further(platform: Platform):
    store = platform.wanted(cause="not started yet")
    for _ in range(2):
        assert platform.apply("checkpoint_arrivals") == []
    assert platform.trainings.opened("checkpoints") == [store.id]
