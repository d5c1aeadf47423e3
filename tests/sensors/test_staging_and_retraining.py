"""Staging, offers and the retraining schedule: each brings about what is missing, once."""

import datetime

import dagster as dg

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.recipes.renewal import RenewalSection
from slipway.resources.trainings.store import WorkQueue
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from slipway.trainer.staging import stage
from tests import disks
from tests.sensors.platform import TINY, Platform

TRAININGS = keys.training_partitions(TINY)


def test_each_ready_node_is_staged_once(platform: Platform):
    platform.start_training("anew")
    platform.apply("node_failures")
    platform.compute.fleet().mark_lost("node-1", "a test")
    [request] = platform.apply("staging")
    assert request.tags["dagster/partition"] == "node-0"
    assert platform.launch(request).success
    current = pointer.current(platform.home.durable, "texts")
    assert current is not None and stage.is_staged(current, platform.tiers.nvme_path("node-0"))
    assert platform.apply("staging") == []
    platform.compute.fleet().restore("node-1")
    [request] = platform.apply("staging")
    assert request.tags["dagster/partition"] == "node-1"
    platform.queue(request)
    assert platform.apply("staging") == []


def test_nothing_is_staged_that_no_wanted_training_reads_whole(platform: Platform):
    platform.apply("node_failures")
    assert platform.apply("staging") == []
    platform.start_training("a window", placement={"staging": "window"})
    assert platform.apply("staging") == []


def test_a_training_that_has_its_nodes_is_staged_for_on_these_alone(platform: Platform):
    store = platform.start_training("anew")
    platform.apply("node_failures")
    assert len(platform.apply("staging")) == 2
    assert fence.claim(store.folder, Token(1), nodes=("node-1",), cause="a test", by="a test")
    [request] = platform.apply("staging")
    assert request.tags["dagster/partition"] == "node-1"


def test_a_snapshot_that_is_too_large_for_a_node_is_left_to_the_ranks(platform: Platform):
    platform.start_training("anew")
    platform.apply("node_failures")
    nvme = platform.tiers.nvme_path("node-0")
    nvme.parent.mkdir(parents=True, exist_ok=True)
    with disks.mounted(nvme, "size=16k"):
        for request in platform.apply("staging"):
            assert platform.launch(request).success
        assert not list((nvme / "shards").glob("*"))
    held_metadata = platform.materializations("staged_shards", "node-0", "texts")[0].metadata["held"]
    assert "there is room for" in str(held_metadata.value) and "placement.staging" in str(held_metadata.value)
    assert platform.apply("staging") == []


def test_a_training_recipe_is_offered_once_on_the_current_snapshot(platform: Platform):
    store = platform.finished()
    for _ in range(2):
        platform.apply("offers")
    assert platform.partitions(TRAININGS) == [store.id]
    assert not platform.tick("offers").dynamic_partitions_requests


def retrain(platform: Platform, at: datetime.datetime) -> dg.RunRequest | None:
    with dg.build_schedule_context(
        instance=platform.instance,
        scheduled_execution_time=at,
        resources=platform.resources,
        repository_def=platform.repository,
    ) as context:
        requests = platform.repository.get_schedule_def("tiny_retraining").evaluate_tick(context).run_requests
    return requests[0] if requests else None


def test_each_tick_of_the_schedule_is_a_training_of_its_own_and_the_same_tick_the_same(platform: Platform):
    sunday = datetime.datetime(2026, 1, 4, 3, tzinfo=datetime.UTC)
    first, again = retrain(platform, sunday), retrain(platform, sunday)
    next_week = retrain(platform, sunday + datetime.timedelta(days=7))
    assert first is not None and again is not None and next_week is not None
    id = first.tags[keys.TRAINING_TAG]
    assert id == again.tags[keys.TRAINING_TAG] != next_week.tags[keys.TRAINING_TAG]
    assert platform.trainings.store(id).specification().cause == sunday.isoformat()
    assert set(platform.trainings.pending(WorkQueue.RUN)) == {id, next_week.tags[keys.TRAINING_TAG]}
    assert len(platform.partitions(TRAININGS)) == 3


def test_a_spent_budget_holds_the_schedule_back_and_not_what_it_has_begun(platform: Platform):
    sunday = datetime.datetime(2026, 1, 4, 3, tzinfo=datetime.UTC)
    begun = retrain(platform, sunday)
    assert begun is not None
    section = RenewalSection(gpu_hours=1e-9)  # the finished training has taken more
    spent = platform.with_training(platform.recipe.model_copy(update={"renewal": section}))
    assert retrain(spent, sunday + datetime.timedelta(days=7)) is None
    again = retrain(spent, sunday)
    assert again is not None and again.tags[keys.TRAINING_TAG] == begun.tags[keys.TRAINING_TAG]
    assert spent.trainings.pending(WorkQueue.RUN) == [begun.tags[keys.TRAINING_TAG]]


def test_without_a_snapshot_the_schedule_asks_for_nothing(platform: Platform):
    (platform.home.durable / "datasets" / "texts" / "current.json").unlink()
    assert retrain(platform, datetime.datetime(2026, 1, 4, 3, tzinfo=datetime.UTC)) is None
