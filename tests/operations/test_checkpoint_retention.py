"""Retention of checkpoints, through the platform's own definitions: on record first, then the bytes."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.assets.promotion.evaluation import best
from slipway.resources.mlflow.registry import FOLDER_TAG, MANIFEST_TAG, Registry
from slipway.resources.promotions import promotion
from slipway.resources.promotions.promotion import Promotion
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.base import codec, patience
from slipway.trainer.checkpoint.retention import holds
from slipway.trainer.checkpoint.tiers import copying, replicas
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.scores import Score
from tests.sensors.platform import BY, EVERY, STEPS, Platform

CHECKPOINTS = keys.checkpoint_partitions("tiny")
FIRST, MIDDLE, LAST = range(EVERY, STEPS + 1, EVERY)


def retained(platform: Platform, **config: Any) -> dg.ExecuteInProcessResult:
    job = platform.repository.get_job("checkpoint_retention")
    return job.execute_in_process(
        {"ops": {"retain_checkpoints": {"config": config}}},
        instance=platform.instance,
        resources=platform.resources,
        raise_on_error=False,
    )


def edit(path: Path, value: dict[str, Any]) -> None:
    """Write a record with its own checksum."""
    codec.replace(path, {name: field for name, field in value.items() if name != codec.CHECKSUM})


def keeps(store: TrainingStore, **rules: dict[str, int]) -> None:
    """Let the training's tiers keep what these rules say; its best is at any step."""
    policy = json.loads((store.folder / "terms.json").read_bytes())
    for tier, rule in rules.items():
        policy["operation"]["storage"][tier] = {"minutes": 30, "every": 0, "best": 0, **rule}
    edit(store.folder / "terms.json", policy)


@pytest.fixture
def store(tracked: Platform) -> TrainingStore:
    """A finished training with three checkpoints, of which each tier keeps the last alone."""
    store = tracked.finished()
    keeps(store, durable={"last": 1}, backup={"last": 1})
    return store


@pytest.fixture
def backup(platform: Platform) -> Path:
    """A folder as backup of the platform."""
    folder = platform.root / "backup"
    folder.mkdir()
    platform.resources["tiers"] = Tiers(durable=str(platform.home.durable), nvme=platform.home.nvme, backup=str(folder))
    return folder


def steps(store: TrainingStore, *tiers: str) -> list[int]:
    facts = store.read()
    return [commit.step for commit in (facts.commits_on(*tiers) if tiers else facts.commits)]


def there(platform: Platform, store: TrainingStore, tier: Path | None = None) -> list[int]:
    """The steps whose bytes lie on a tier, by default the durable one."""
    folders = sorted(((tier or platform.home.durable) / "checkpoints" / store.id).iterdir())
    return [int(folder.name.split(".")[0]) for folder in folders]


def back_up(store: TrainingStore, commit: Commit, platform: Platform, folder: Path) -> None:
    source = platform.home.durable / commit.folder
    size = copying.replicate(source, copying.tier_at(folder), commit.folder, commit.manifest)
    replicas.record(store.folder, commit, "backup", size)


def test_a_checkpoint_that_no_rule_keeps_loses_its_record_its_bytes_and_its_partition(
    platform: Platform, store: TrainingStore
):
    platform.trainings.open(store.id, WorkQueue.CHECKPOINTS)
    for _ in range(2):
        platform.apply("checkpoint_arrivals")
    assert len(platform.partitions(CHECKPOINTS)) == 3
    assert retained(platform).success
    assert steps(store) == there(platform, store) == [LAST]
    for _ in range(3):
        platform.apply("checkpoint_arrivals")
    assert platform.partitions(CHECKPOINTS) == [keys.checkpoint_partition(store.id, LAST)]
    assert platform.trainings.pending(WorkQueue.CHECKPOINTS) == []


def test_a_dry_run_changes_nothing_and_lists_what_would_go(platform: Platform, store: TrainingStore):
    result = retained(platform, dry_run=True)
    assert steps(store) == there(platform, store) == [FIRST, MIDDLE, LAST]
    [output] = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
    metadata: Any = output.step_output_data.metadata[store.id].value
    assert metadata["withdrawn"] == [f"durable: {commit.name}" for commit in store.commits()[:2]]


def test_the_best_stay_by_their_evaluation(platform: Platform, store: TrainingStore):
    keeps(store, durable={"last": 1, "best": 1})
    for path in (store.folder / "evaluations").iterdir():
        score = json.loads(path.read_bytes())
        score["loss"] = 0.1 if path.name.startswith(f"{FIRST:09d}") else 2.0
        edit(path, score)
    retained(platform)
    assert there(platform, store) == [FIRST, LAST]


def test_a_checkpoint_that_a_registered_model_refers_to_stays(platform: Platform, store: TrainingStore):
    commit = store.commits()[0]
    registry = Registry(platform.tracking, platform.home.durable)
    registry.register("a-model", platform.home.durable / commit.folder, "", {MANIFEST_TAG: commit.manifest})
    retained(platform)
    assert there(platform, store) == [FIRST, LAST]


@pytest.mark.parametrize("promoted", [1, 2, 3])
def test_the_champion_and_the_one_before_it_stay_whatever_becomes_of_mlflow(
    platform: Platform, store: TrainingStore, promoted: int
):
    """MLflow has no roles: whoever may look at it may delete a version, or all of them are lost with its database."""
    for number, commit in enumerate([*store.commits()[::-1]][:promoted], start=1):
        tags = {MANIFEST_TAG: commit.manifest, FOLDER_TAG: commit.folder}
        source = str(platform.home.durable / commit.folder)
        record = Promotion("a-model", str(number), commit.manifest, None, source, tags, BY, "a test", 1.0)
        assert promotion.add(platform.home.durable, number, record)
    retained(platform)
    assert there(platform, store) == [[LAST], [MIDDLE, LAST], [FIRST, MIDDLE, LAST]][promoted - 1]


@pytest.mark.parametrize("number", [1, 2])
def test_where_a_promotion_was_lost_nothing_is_removed_whatever_became_of_mlflow(
    platform: Platform, store: TrainingStore, number: int
):
    durable = platform.home.durable
    for promotion_number, commit in enumerate(store.commits()[:2], 1):
        tags = {FOLDER_TAG: commit.folder, MANIFEST_TAG: commit.manifest}
        record = Promotion("model", str(promotion_number), commit.manifest, None, "", tags, BY, "a test", 0.0)
        assert promotion.add(durable, promotion_number, record)
    codec.replace(durable / "models" / "model" / "mirrored.json", {"promotions": 2})
    for suffix in ("json", "copy"):
        (durable / "models" / "model" / "promotions" / f"{number:06d}.{suffix}").unlink()
    assert not retained(platform).success
    assert steps(store) == there(platform, store) == [FIRST, MIDDLE, LAST]


def test_a_checkpoint_that_another_training_starts_from_stays(platform: Platform, store: TrainingStore):
    other = platform.proposed("another")
    policy = json.loads((other.folder / "terms.json").read_bytes())
    policy["init"] = str(platform.home.durable / store.commits()[1].folder)
    edit(other.folder / "terms.json", policy)
    retained(platform)
    assert there(platform, store) == [MIDDLE, LAST]


def test_a_checkpoint_that_waits_for_its_evaluation_stays_until_then(platform: Platform, store: TrainingStore):
    shutil.move(store.folder / "evaluations", platform.root / "evaluations")
    platform.trainings.open(store.id, WorkQueue.CHECKPOINTS)
    retained(platform)
    assert there(platform, store) == [FIRST, MIDDLE, LAST]
    shutil.move(platform.root / "evaluations", store.folder / "evaluations")
    retained(platform)
    assert there(platform, store) == [LAST]


def test_the_candidate_stays_until_it_is_judged(platform: Platform, store: TrainingStore):
    (store.folder / "evaluations" / f"{store.commits()[-1].name}.json").unlink()
    best_score = best(store.read())
    assert best_score is not None
    candidate, _ = best_score
    platform.trainings.open(store.id, WorkQueue.PROMOTION)
    retained(platform)
    assert there(platform, store) == [candidate.step, LAST]
    platform.trainings.close(store.id, WorkQueue.PROMOTION)
    retained(platform)
    assert there(platform, store) == [LAST]


def test_the_candidate_of_a_model_that_codes_no_text_is_the_one_of_the_least_loss(
    platform: Platform, store: TrainingStore
):
    for number, commit in enumerate(store.commits()):
        path = store.folder / "evaluations" / f"{commit.name}.json"
        score = codec.read(path, Score)
        codec.replace(path, dataclasses.replace(score, bits_per_byte=0.0, loss=1.0 + number))
    platform.trainings.open(store.id, WorkQueue.PROMOTION)
    retained(platform)
    assert there(platform, store) == [FIRST, LAST]


def test_a_retention_that_was_broken_off_is_finished_by_the_next(platform: Platform, store: TrainingStore):
    first = store.commits()[0]
    fence.prune(store.folder, first, "a retention that was killed before it removed anything")
    assert there(platform, store) == [FIRST, MIDDLE, LAST]
    keeps(store, durable={"last": 5})
    retained(platform)
    assert there(platform, store) == [MIDDLE, LAST]


def test_a_training_that_is_over_leaves_nothing_on_the_nvme(platform: Platform, store: TrainingStore):
    last, node = store.commits()[-1], platform.tiers.nvme_path("node-1")
    node.mkdir(parents=True)
    copying.replicate(platform.home.durable / last.folder, copying.tier_at(node), last.folder, last.manifest)
    replicas.record(store.folder, last, "nvme", 7)
    retained(platform)
    assert not (node / "checkpoints" / store.id).exists()
    assert replicas.holders(store.folder, [last]) == {last.name: ("durable",)}


def test_a_node_is_cleared_of_a_training_once_and_again_when_it_ran_once_more(platform: Platform, store: TrainingStore):
    checkpoints = platform.tiers.nvme_path("node-1") / "checkpoints" / store.id
    for path in (store.folder / "exits").iterdir():
        path.unlink()
    store.want("stop", "test", "a test")
    store.record_exit(1, "stopped", "a test", "test")
    retained(platform)
    checkpoints.mkdir(parents=True)
    retained(platform)
    assert checkpoints.exists(), "the node was not asked again"
    assert store.claim(2, ("node-1",), "once more", "test")
    store.record_exit(2, "stopped", "once more", "test")
    retained(platform)
    assert not checkpoints.exists()


def test_each_tier_keeps_by_its_own_rule(platform: Platform, store: TrainingStore, backup: Path):
    keeps(store, backup={"last": 2})
    for commit in store.commits():
        back_up(store, commit, platform, backup)
    retained(platform)
    assert steps(store, "durable") == there(platform, store) == [LAST]
    assert steps(store, "backup") == steps(store) == [MIDDLE, LAST]
    assert there(platform, store, backup) == [MIDDLE, LAST]


def test_a_backup_that_is_away_is_reported_and_the_durable_tier_is_retained_all_the_same(
    platform: Platform, store: TrainingStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(patience, "SECONDS", 0.2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    durable, nvme = str(platform.home.durable), platform.home.nvme
    platform.resources["tiers"] = Tiers(durable=durable, nvme=nvme, backup="s3://bucket/prefix")
    assert not retained(platform).success
    assert there(platform, store) == [LAST]


def test_what_the_backup_could_not_take_is_copied_once_after_the_training_and_shown(
    platform: Platform, store: TrainingStore, backup: Path
):
    last = store.commits()[-1]
    replicas.note_fault(store.folder, last.name, "backup", replicas.NOT_COPIED, "no answer")
    backup.rmdir()
    backup.write_bytes(b"in the way")
    retained(platform)
    assert steps(store, "backup") == []
    backup.unlink()
    backup.mkdir()
    assert retained(platform).success
    assert steps(store, "backup") == there(platform, store, backup) == [LAST]
    assert platform.trainings.is_open(store.id, WorkQueue.CHECKPOINTS)
    assert retained(platform).success and there(platform, store, backup) == [LAST]


def test_a_checkpoint_that_was_never_due_on_the_backup_is_not_copied_there(
    platform: Platform, store: TrainingStore, backup: Path
):
    assert retained(platform).success
    assert steps(store, "backup") == []


def test_a_damaged_copy_stays_for_a_month_and_a_superseded_one_for_a_day(platform: Platform, store: TrainingStore):
    keeps(store, durable={"last": 5})
    first, middle, _ = store.commits()
    store.set_aside(first, "a flipped bit")
    (store.folder / "commits" / f"{middle.name}.json").unlink()
    retained(platform)
    assert there(platform, store) == [FIRST, MIDDLE, LAST]
    retained(platform, unlisted_hours=0)
    assert there(platform, store) == [FIRST, LAST]
    retained(platform, damaged_days=0)
    assert there(platform, store) == [LAST]


@pytest.mark.slow
def test_a_registry_that_is_away_stops_the_retention(platform: Platform, store: TrainingStore):
    (platform.root / "home" / "mlflow.db").unlink(missing_ok=True)
    (platform.root / "home" / "mlflow.db").mkdir()
    assert not retained(platform).success
    assert there(platform, store) == [FIRST, MIDDLE, LAST]


def test_of_a_trial_that_was_not_among_the_best_only_what_is_referred_to_stays(tracked: Platform, store: TrainingStore):
    """The others' checkpoints leave through the same door as any."""
    keeps(store, durable={"last": 5}, backup={"last": 5})
    assert retained(tracked).success and [commit.step for commit in store.commits()] == [FIRST, MIDDLE, LAST]
    store.let_checkpoints_go("sweep", "a test")
    kept_commit = next(commit for commit in store.commits() if commit.step == MIDDLE)
    with holds.holding(store.folder, [kept_commit.name], "ada", "it is read"):
        assert retained(tracked).success
    assert [commit.step for commit in store.commits()] == [MIDDLE]
    folders = [path.name for path in (tracked.home.durable / kept_commit.folder).parent.iterdir()]
    assert folders == [kept_commit.name]
