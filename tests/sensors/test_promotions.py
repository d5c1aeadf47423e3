"""Promotions: a finished training is judged once; its best checkpoint becomes the champion when the checks pass."""

import dataclasses
import shutil

import dagster as dg
import pytest
from dagster import DagsterRunStatus

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.promotion.evaluation import evaluate, evaluated
from slipway.assets.promotion.policy_checks import BEATS_CHAMPION, BEATS_UNIGRAMS, CHECKS
from slipway.assets.suites import measured
from slipway.assets.training import run_policy, specification
from slipway.cli.main import main
from slipway.recipes.training import ModelRecipe, with_parameters
from slipway.resources.mlflow.registry import CANDIDATE, CHAMPION, FOLDER_TAG, MANIFEST_TAG, Registry, Version
from slipway.resources.promotions.promotion import Judgement, Promotions, history, undecided
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.sensors.promotions import PROMOTES_TAG
from slipway.sensors.support import runs
from slipway.trainer.base import atomic, codec, digest
from slipway.trainer.checkpoint.disk import manifest
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.record import fence
from slipway.trainer.record.scores import Score
from tests.sensors.platform import BY, Platform

MODEL = "tiny-model"


def registry(platform: Platform) -> Registry:
    return Registry(platform.tracking, platform.home.durable)


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}


def judge(platform: Platform) -> dg.ExecuteInProcessResult:
    [request] = platform.apply("promotions")
    return platform.launch(request)


def worse(platform: Platform) -> TrainingStore:
    """A training of two steps, evaluated."""
    store = platform.start_training(run={"steps": 2})
    platform.advance(store)
    evaluate(store.read(), store.commits(), platform.measuring)
    platform.trainings.close(store.id, WorkQueue.CHECKPOINTS)
    return store


def of_recipe(platform: Platform, recipe: ModelRecipe) -> TrainingStore:
    """A training of another recipe, over and evaluated."""
    current = pointer.current(platform.home.durable, recipe.datasets[0])
    assert current is not None
    store = platform.trainings.propose(specification(recipe, current, platform.tiers), run_policy(recipe))
    platform.add(keys.training_partitions(recipe.name), store.id)
    platform.trainings.start(store, BY, "a test", (WorkQueue.PROMOTION,))
    platform.advance(store)
    evaluate(store.read(), store.commits(), platform.measuring)
    return store


def scored(platform: Platform, cause: str, loss: float, bits: float) -> TrainingStore:
    """A training that is over, with one checkpoint of this score; its weights are those of the finished training."""
    recipe, other = platform.recipe, platform.finished().commits()[-1]
    current = pointer.current(platform.home.durable, recipe.datasets[0])
    assert current is not None
    store = platform.trainings.propose(specification(recipe, current, platform.tiers, cause), run_policy(recipe))
    platform.add(keys.training_partitions(recipe.name), store.id)
    platform.trainings.start(store, BY, "a test", (WorkQueue.PROMOTION,))
    store.claim(1, ("node-0",), "a test", BY)
    folder = f"checkpoints/{digest.sha256(cause.encode())[:12]}"
    commit = fence.Commit(5, fence.Token(1), folder, copied(platform, other.folder, folder))
    fence.commit(store.folder, commit)
    score = Score(commit.name, loss, perplexity=2.0, bits_per_byte=bits, accuracy=0.1, tokens=100)
    codec.replace(store.folder / "evaluations" / f"{commit.name}.json", score)
    store.record_exit(1, "succeeded", "all steps done", BY)
    return store


def copied(platform: Platform, source: str, target: str) -> str:
    """Copy a checkpoint so that it is another one, by a blank in its progress; returns its manifest's SHA-256."""
    folder = platform.home.durable / target
    shutil.copytree(platform.home.durable / source, folder)
    progress = (folder / PROGRESS).read_bytes() + b" "
    (folder / PROGRESS).write_bytes(progress)
    described = manifest.decode((folder / manifest.MANIFEST).read_bytes())
    file = manifest.CheckpointFile(len(progress), digest.of_bytes(progress))
    data = dataclasses.replace(described, files={**described.files, PROGRESS: file}).encode()
    (folder / manifest.MANIFEST).write_bytes(data)
    return digest.sha256(data)


def flip(platform: Platform, version: Version) -> None:
    """Change one byte of the version's weights."""
    folder = platform.home.durable / version.tags[FOLDER_TAG]
    path = max(folder.rglob("model*"), key=lambda path_of_weights: path_of_weights.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def failure(result: dg.ExecuteInProcessResult) -> str:
    """What the step said that failed."""
    [event] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    return str(event.step_failure_data.error)


def test_materialising_the_champion_alone_promotes_no_candidate_that_failed_its_checks(tracked: Platform):
    store = scored(tracked, "worse than guessing", loss=40.0, bits=20.0)
    assert checks(tracked.materialize([keys.key("tiny", "candidate")], store.id))[BEATS_UNIGRAMS] is False
    result = tracked.materialize([keys.key("tiny", "champion")], store.id)
    assert registry(tracked).aliased(MODEL, CHAMPION) is None
    assert not result.success and BEATS_UNIGRAMS in failure(result)
    assert "its loss 40 is not below" in failure(result) and "train it for more steps" in failure(result)


@pytest.mark.slow
def test_of_two_recipes_that_share_a_model_the_better_one_stays_champion(tracked: Platform):
    """Both candidates pass before there is a champion; the better one is promoted first."""
    changes = {"run.seed": 7, "run.steps": 20, "checkpoint.every": 20}
    other = with_parameters(tracked.recipe, changes).model_copy(update={"name": "second"})
    tracked = tracked.with_training(other)
    best = tracked.finished()
    late = of_recipe(tracked, other)
    for recipe, store in (("tiny", best), ("second", late)):
        assert set(checks(tracked.materialize([keys.key(recipe, "candidate")], store.id)).values()) == {True}
    assert tracked.materialize([keys.key("tiny", "champion")], best.id).success
    result = tracked.materialize([keys.key("second", "champion")], late.id)
    champion = registry(tracked).aliased(MODEL, CHAMPION)
    assert champion is not None and champion.tags["slipway.training"] == best.id
    assert not result.success and BEATS_CHAMPION in failure(result)


@pytest.mark.slow
def test_a_candidate_waits_while_the_champion_is_damaged_and_is_judged_when_there_is_another(tracked: Platform):
    assert tracked.materialize([keys.key("tiny", "candidate"), keys.key("tiny", "champion")], tracked.finished().id)
    champion = registry(tracked).aliased(MODEL, CHAMPION)
    assert champion is not None
    store = scored(tracked, "better", loss=0.01, bits=0.005)
    flip(tracked, champion)
    shutil.rmtree(tracked.home.durable / measured.FOLDER)  # it would be compared with what was measured before
    result = judge(tracked)
    assert result.success and checks(result)[BEATS_CHAMPION] is False
    assert registry(tracked).aliased(MODEL, CHAMPION) == champion
    for _ in range(2):
        assert tracked.apply("promotions") == []
    assert tracked.trainings.pending(WorkQueue.PROMOTION) == [store.id]
    [observation] = tracked.observations(store.id)
    assert "its candidate waits: the champion, version 1, cannot be measured" in str(observation.metadata)
    waiting = undecided(tracked.home.durable, store.commits()[0].manifest)
    assert waiting is not None and "cannot be measured" in waiting.undecided
    Promotions(registry(tracked), tracked.home.durable, MODEL).record(
        Judgement(MODEL, store.commits()[0].manifest, champion.manifest, {"a test": True}, BY)
    )
    assert tracked.materialize([keys.key("tiny", "champion")], store.id).success
    tracked.cursors.clear()  # the rest of a training with which something was wrong is over
    assert tracked.apply("promotions") == []
    assert tracked.trainings.pending(WorkQueue.PROMOTION) == []


def test_a_finished_training_whose_checkpoints_are_evaluated_is_to_be_judged(platform: Platform):
    store = platform.finished(WorkQueue.PROMOTION)
    [request] = platform.apply("promotions")
    assert request.asset_selection == [keys.key("tiny", "candidate"), keys.key("tiny", "champion")]
    assert request.tags.items() >= {PROMOTES_TAG: store.id, "dagster/partition": store.id}.items()
    platform.queue(request)
    assert platform.apply("promotions") == []


def test_trainings_of_one_recipe_are_judged_one_after_the_other(platform: Platform):
    first = platform.finished(WorkQueue.PROMOTION)
    second = platform.start_training(cause="another")
    second.claim(1, ("node-0",), "a test", BY)
    commit = fence.Commit(5, fence.Token(1), "checkpoints/another", "0" * 64)
    fence.commit(second.folder, commit)
    score = Score(commit.name, loss=4.0, perplexity=54.6, bits_per_byte=2.0, accuracy=0.1, tokens=100)
    atomic.replace(second.folder / "evaluations" / f"{commit.name}.json", atomic.readable_json(vars(score)))
    second.record_exit(1, "succeeded", "all steps done", BY)
    platform.trainings.close(second.id, WorkQueue.CHECKPOINTS)
    [request] = platform.apply("promotions")
    run = platform.queue(request)
    assert platform.apply("promotions") == []
    platform.end(run, DagsterRunStatus.FAILURE)
    [next_one] = platform.apply("promotions")
    judged = {run_request.tags["dagster/partition"] for run_request in (request, next_one)}
    assert judged == {first.id, second.id}


def test_a_training_is_not_judged_before_all_its_checkpoints_are_evaluated(platform: Platform):
    store = platform.finished(WorkQueue.PROMOTION, WorkQueue.CHECKPOINTS)
    assert platform.apply("promotions") == []
    assert platform.trainings.pending(WorkQueue.PROMOTION) == [store.id]


def test_a_training_that_was_stopped_is_not_judged(platform: Platform):
    store = platform.start_training(cause="stopped")
    store.claim(1, ("node-0",), "a test", BY)
    store.want("stop", BY, "a test")
    store.record_exit(1, "stopped", "asked to stop", BY)
    for duty in (WorkQueue.RUN, WorkQueue.CHECKPOINTS):
        platform.trainings.close(store.id, duty)
    assert platform.apply("promotions") == []
    assert platform.trainings.pending(WorkQueue.PROMOTION) == []


def test_the_best_checkpoint_becomes_the_champion_with_its_whole_lineage(tracked: Platform):
    store = tracked.finished(WorkQueue.PROMOTION)
    assert tracked.compute.revision
    result = judge(tracked)
    assert result.success and checks(result) == dict.fromkeys(CHECKS, True)
    champion = registry(tracked).aliased(MODEL, CHAMPION)
    best, score = min(evaluated(store.read()), key=lambda pair: pair[1].bits_per_byte)
    assert champion is not None and champion == registry(tracked).aliased(MODEL, CANDIDATE)
    assert champion.source == f"slipway:{tracked.home.durable / best.folder}"
    assert champion.tags[MANIFEST_TAG] == best.manifest
    assert champion.tags["slipway.training"] == store.id
    assert champion.tags["slipway.snapshot"] == store.specification().snapshot
    [promotion] = history(tracked.home.durable, MODEL)
    assert promotion.version == champion.number and promotion.before is None
    assert promotion.judgement is not None and promotion.judgement.figures["bits_per_byte"] == score.bits_per_byte


def test_the_command_exports_the_champion_with_its_weights_and_its_tokenizer(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    tracked.finished(WorkQueue.PROMOTION)
    judge(tracked)
    monkeypatch.setenv("SLIPWAY_HOME", str(tracked.home.root))
    monkeypatch.setenv("SLIPWAY_RECIPES", str(tracked.root / "recipes"))
    assert main(["models", "export", "tiny-m", "--to", str(tracked.root / "out")]) == 0
    names = {path.name for path in (tracked.root / "out").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


def test_a_training_is_judged_once(tracked: Platform):
    tracked.finished(WorkQueue.PROMOTION)
    judge(tracked)
    for _ in range(2):
        assert tracked.apply("promotions") == []
    assert tracked.trainings.pending(WorkQueue.PROMOTION) == []


@pytest.mark.slow
def test_a_run_that_broke_between_candidate_and_champion_is_requested_again(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "BACKOFF_SECONDS", 0.0)
    store = tracked.finished(WorkQueue.PROMOTION)
    assert tracked.materialize([keys.key("tiny", "candidate")], store.id).success
    assert registry(tracked).aliased(MODEL, CHAMPION) is None
    assert judge(tracked).success
    version = registry(tracked).aliased(MODEL, CHAMPION)
    assert version is not None and version.number == "1"
    assert tracked.apply("promotions") == []


@pytest.mark.slow
def test_a_candidate_that_is_worse_than_the_champion_is_rejected_for_good(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "BACKOFF_SECONDS", 0.0)
    tracked.finished(WorkQueue.PROMOTION)
    judge(tracked)
    champion = registry(tracked).aliased(MODEL, CHAMPION)
    tracked.apply("promotions")
    store = worse(tracked)
    result = judge(tracked)
    assert result.success and checks(result)[BEATS_CHAMPION] is False  # a rejection is no failure
    [observation] = tracked.observations(store.id, "champion")
    assert "which a guess by frequency alone reaches: train it for more steps" in str(observation.description)
    assert registry(tracked).aliased(MODEL, CHAMPION) == champion
    candidate = registry(tracked).aliased(MODEL, CANDIDATE)
    assert candidate is not None and candidate.tags["slipway.training"] == store.id
    assert tracked.materializations("champion", store.id) == []
    for _ in range(2):
        assert tracked.apply("promotions") == []
    assert tracked.trainings.pending(WorkQueue.PROMOTION) == []


@pytest.mark.slow
def test_the_same_checkpoint_is_registered_and_promoted_once(tracked: Platform):
    store = tracked.finished()
    both = [keys.key("tiny", "candidate"), keys.key("tiny", "champion")]
    for _ in range(2):
        assert tracked.materialize(both, store.id).success
    version = registry(tracked).aliased(MODEL, CHAMPION)
    assert version is not None and version.number == "1"
    assert len(history(tracked.home.durable, MODEL)) == 1


@pytest.mark.slow
def test_a_promotion_that_broke_before_the_alias_moved_is_on_record_once(tracked: Platform):
    store = tracked.finished()
    tracked.materialize([keys.key("tiny", "candidate")], store.id)
    version = registry(tracked).aliased(MODEL, CANDIDATE)
    assert version is not None
    model = Promotions(registry(tracked), tracked.home.durable, MODEL)
    model.promote(version, BY, "a test")
    tracked.tracking.client().delete_registered_model_alias(MODEL, CHAMPION)
    model.promote(version, BY, "a test")
    assert registry(tracked).aliased(MODEL, CHAMPION) == version
    assert len(history(tracked.home.durable, MODEL)) == 1


def test_a_champion_whose_candidate_was_not_made_is_refused_in_words(tracked: Platform):
    store = tracked.finished()
    result = tracked.materialize([keys.key("tiny", "champion")], store.id)
    assert not result.success
    [failure] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    assert f"{store.id}: its best checkpoint is not registered" in str(failure.step_failure_data.error)
