"""Promotions: a finished training is judged once; its best checkpoint becomes the champion when the checks pass."""

import dagster as dg
import pytest
from dagster import DagsterRunStatus

from assets import keys
from assets.evaluation import evaluate, evaluated
from assets.models import BEATS_CHAMPION, BEATS_UNIGRAMS
from resources.registry import CANDIDATE, CHAMPION, MANIFEST_TAG, Registry, promotions
from resources.training_store import TrainingStore
from sensors import runs
from sensors.promotions import PROMOTES_TAG
from tests.sensors.platform import BY, Platform
from trainer import atomic, fence
from trainer.scores import Score

MODEL = "tiny-model"


def registry(platform: Platform) -> Registry:
    return Registry(platform.tracking, platform.home.durable)


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {each.check_name: each.passed for each in result.get_asset_check_evaluations()}


def judge(platform: Platform) -> dg.ExecuteInProcessResult:
    [request] = platform.apply("promotions")
    return platform.launch(request)


def worse(platform: Platform) -> TrainingStore:
    """A training of two steps, evaluated."""
    store = platform.wanted(run={"steps": 2})
    platform.advance(store)
    evaluate(store, store.commits(), platform.tiers)
    platform.trainings.close(store.id, "checkpoints")
    return store


def test_a_finished_training_whose_checkpoints_are_evaluated_is_to_be_judged(platform: Platform):
    store = platform.finished("promotion")
    [request] = platform.apply("promotions")
    assert request.asset_selection == [keys.key("tiny", "candidate"), keys.key("tiny", "champion")]
    assert request.tags.items() >= {PROMOTES_TAG: store.id, "dagster/partition": store.id}.items()
    platform.queue(request)
    assert platform.apply("promotions") == []


def test_trainings_of_one_recipe_are_judged_one_after_the_other(platform: Platform):
    first = platform.finished("promotion")
    second = platform.wanted(cause="another")
    second.claim(1, ("node-0",), "a test", BY)
    commit = fence.Commit(5, fence.Token(1), "checkpoints/another", "0" * 64)
    fence.commit(second.folder, commit)
    score = Score(commit.name, loss=4.0, perplexity=54.6, bits_per_byte=2.0, accuracy=0.1, tokens=100)
    atomic.replace(second.folder / "evaluations" / f"{commit.name}.json", atomic.readable_json(vars(score)))
    second.record_exit(1, "succeeded", "all steps done", BY)
    platform.trainings.close(second.id, "checkpoints")
    [request] = platform.apply("promotions")
    run = platform.queue(request)
    assert platform.apply("promotions") == []
    platform.end(run, DagsterRunStatus.FAILURE)
    [next_one] = platform.apply("promotions")
    judged = {each.tags["dagster/partition"] for each in (request, next_one)}
    assert judged == {first.id, second.id}


def test_it_is_not_before_all_its_checkpoints_are_evaluated(platform: Platform):
    store = platform.finished("promotion", "checkpoints")
    assert platform.apply("promotions") == []
    assert platform.trainings.opened("promotion") == [store.id]


def test_a_training_that_was_stopped_is_not_judged(platform: Platform):
    store = platform.wanted(cause="stopped")
    store.claim(1, ("node-0",), "a test", BY)
    store.want("stop", BY, "a test")
    store.record_exit(1, "stopped", "asked to stop", BY)
    for duty in ("run", "checkpoints"):
        platform.trainings.close(store.id, duty)
    assert platform.apply("promotions") == []
    assert platform.trainings.opened("promotion") == []


def test_the_best_checkpoint_becomes_the_champion_with_its_whole_lineage(tracked: Platform):
    store = tracked.finished("promotion")
    assert tracked.compute.revision
    result = judge(tracked)
    assert result.success and checks(result) == {BEATS_UNIGRAMS: True, BEATS_CHAMPION: True}
    champion = registry(tracked).aliased(MODEL, CHAMPION)
    best, score = min(evaluated(store), key=lambda pair: pair[1].bits_per_byte)
    assert champion is not None and champion == registry(tracked).aliased(MODEL, CANDIDATE)
    assert champion.source == f"slipway:{tracked.home.durable / best.folder}"
    assert champion.tags[MANIFEST_TAG] == best.manifest
    assert champion.tags["slipway.training"] == store.id
    assert champion.tags["slipway.snapshot"] == store.specification().snapshot
    [promotion] = promotions(tracked.home.durable, MODEL)
    assert promotion["version"] == champion.number and promotion["before"] is None
    assert promotion["evidence"]["bits_per_byte"] == score.bits_per_byte


def test_it_is_judged_once(tracked: Platform):
    tracked.finished("promotion")
    judge(tracked)
    for _ in range(2):
        assert tracked.apply("promotions") == []
    assert tracked.trainings.opened("promotion") == []


def test_a_run_that_broke_between_candidate_and_champion_is_requested_again(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "BACKOFF_SECONDS", 0.0)
    store = tracked.finished("promotion")
    assert tracked.materialise([keys.key("tiny", "candidate")], store.id).success
    assert registry(tracked).aliased(MODEL, CHAMPION) is None
    assert judge(tracked).success
    version = registry(tracked).aliased(MODEL, CHAMPION)
    assert version is not None and version.number == "1"
    assert tracked.apply("promotions") == []


def test_a_candidate_that_is_worse_than_the_champion_is_rejected_for_good(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "BACKOFF_SECONDS", 0.0)
    tracked.finished("promotion")
    judge(tracked)
    champion = registry(tracked).aliased(MODEL, CHAMPION)
    tracked.apply("promotions")
    store = worse(tracked)
    result = judge(tracked)
    assert not result.success and checks(result)[BEATS_CHAMPION] is False
    assert registry(tracked).aliased(MODEL, CHAMPION) == champion
    candidate = registry(tracked).aliased(MODEL, CANDIDATE)
    assert candidate is not None and candidate.tags["slipway.training"] == store.id
    assert tracked.materialisations("champion", store.id) == []
    for _ in range(2):
        assert tracked.apply("promotions") == []
    assert tracked.trainings.opened("promotion") == []


def test_the_same_checkpoint_is_registered_and_promoted_once(tracked: Platform):
    store = tracked.finished()
    both = [keys.key("tiny", "candidate"), keys.key("tiny", "champion")]
    for _ in range(2):
        assert tracked.materialise(both, store.id).success
    version = registry(tracked).aliased(MODEL, CHAMPION)
    assert version is not None and version.number == "1"
    assert len(promotions(tracked.home.durable, MODEL)) == 1


def test_a_promotion_that_broke_before_the_alias_moved_is_on_record_once(tracked: Platform):
    store = tracked.finished()
    tracked.materialise([keys.key("tiny", "candidate")], store.id)
    version = registry(tracked).aliased(MODEL, CANDIDATE)
    assert version is not None
    registry(tracked).promote(version, {"a": "test"})
    tracked.tracking.client().delete_registered_model_alias(MODEL, CHAMPION)
    registry(tracked).promote(version, {"a": "test"})
    assert registry(tracked).aliased(MODEL, CHAMPION) == version
    assert len(promotions(tracked.home.durable, MODEL)) == 1


def test_a_champion_whose_candidate_was_not_made_is_refused_in_words(tracked: Platform):
    store = tracked.finished()
    result = tracked.materialise([keys.key("tiny", "champion")], store.id)
    assert not result.success
    [failure] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    assert f"{store.id}: its best checkpoint is not registered" in str(failure.step_failure_data.error)
