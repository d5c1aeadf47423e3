"""Each subject alone: whatever is wrong with one training or sweep, the others go on, and it is shown once."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.assets.sweeps.assets import current_subject, open_sweep
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.sensors.support import faults
from slipway.trainer.record import files
from tests.sensors.conftest import UNCAPTURED
from tests.sensors.platform import BY, SEARCH, TINY, Platform

CHECKPOINTS = keys.checkpoint_partitions(TINY)
SENSORS = ("job_watch", "checkpoint_arrivals", "promotions", "node_failures", "staging", "sweep_completions", "offers")


def remove(path: Path) -> None:
    """Remove a record, and its copy."""
    path.unlink()
    path.with_suffix(".copy").unlink(missing_ok=True)


def a_folder_for_a_file(path: Path) -> None:
    remove(path)
    path.mkdir()


def ended_twice(store: TrainingStore, outcome: str = "failed") -> None:
    """Two incarnations, the second one stopped."""
    for incarnation in (1, 2):
        store.claim(incarnation, ("node-0",), "a test", BY)
        store.record_exit(incarnation, outcome, "a test", BY)
    store.want("stop", BY, "a test")


def a_damaged_old_exit(store: TrainingStore) -> None:
    ended_twice(store)
    path = files.numbered(store.folder, files.EXITS, 1)
    remove(path)
    path.write_bytes(b'{"format": "slip')


WRONG: dict[str, Callable[[TrainingStore], object]] = {
    "deleted": lambda store: shutil.rmtree(store.folder),
    "a folder for a record": lambda store: a_folder_for_a_file(store.folder / "desired" / "000001.json"),
    "a folder for its terms": lambda store: a_folder_for_a_file(store.folder / "terms.json"),
    "proposed half": lambda store: remove(store.folder / "terms.json"),
    "a file for a folder": lambda store: (store.folder / "claims").write_text(""),
    "damaged old exit": a_damaged_old_exit,
}


def problems(platform: Platform, key: dg.AssetKey, partition: str | None = None) -> list[str]:
    """The problems that were shown of a subject, the latest first."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition] if partition else None)
    records = platform.instance.fetch_observations(where, limit=100).records
    metadata = [record.asset_observation.metadata for record in records if record.asset_observation]
    return [str(entry["problem"].value) for entry in metadata if "problem" in entry]


def without_nodes(platform: Platform) -> None:
    for node in ("node-0", "node-1"):
        platform.compute.fleet().mark_lost(node, "a test")


@pytest.mark.parametrize("wrong", WRONG)
def test_whatever_is_wrong_with_one_training_the_others_are_shown_and_it_is_reported_once(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, wrong: str
):
    monkeypatch.setattr(faults, "FIRST_SECONDS", 0.0)
    without_nodes(platform)
    good = platform.finished(WorkQueue.RUN, WorkQueue.CHECKPOINTS, WorkQueue.PROMOTION)
    broken = platform.start_training(cause="another")
    WRONG[wrong](broken)
    for _ in range(3):
        for sensor in SENSORS:
            platform.apply(sensor)
    assert len(platform.materializations("training", good.id)) == 1
    assert len(platform.partitions(CHECKPOINTS)) == len(good.commits())
    assert platform.trainings.pending(WorkQueue.RUN) in ([], [broken.id])
    problem_texts = problems(platform, keys.key(TINY, "training"), broken.id)
    assert 1 <= len(problem_texts) <= 4, "once by each sensor that met it"


def test_a_damaged_old_exit_is_reported_and_the_training_goes_on_to_its_end(platform: Platform):
    without_nodes(platform)
    store = platform.start_training(cause="another")
    a_damaged_old_exit(store)
    for _ in range(3):
        platform.apply("job_watch")
    [problem] = problems(platform, keys.key(TINY, "training"), store.id)
    assert "exits/000001.json" in problem
    observed = [
        {name: value.value for name, value in observation.metadata.items()}
        for observation in platform.observations(store.id)
    ]
    assert [metadata["incarnation"] for metadata in observed if "cause" in metadata] == [2]
    assert platform.trainings.pending(WorkQueue.RUN) == []


def test_a_training_of_a_recipe_that_is_gone_keeps_no_other_from_its_run(platform: Platform):
    without_nodes(platform)
    known, other = platform.proposed(cause="one"), platform.start_training(cause="another")
    gone = platform.trainings.propose(dataclasses.replace(known.specification(), recipe="gone"), known.run_policy())
    platform.trainings.start(gone, BY, "a test")
    [request] = platform.apply("job_watch")
    assert request.tags[keys.TRAINING_TAG] == other.id
    [problem] = problems(platform, keys.key("gone", "training"), gone.id)
    assert problem.startswith("found no recipe that makes gone/training")


def test_a_partition_that_is_no_training_fails_its_run_and_opens_no_duty(platform: Platform):
    platform.add(keys.training_partitions(TINY), "tiny-nonsense")
    assert not platform.materialize([keys.key(TINY, "training")], "tiny-nonsense").success
    assert [platform.trainings.pending(duty) for duty in WorkQueue] == [[]] * len(WorkQueue)
    assert not (platform.trainings.root / "tiny-nonsense").exists()


def test_a_success_without_steps_in_its_ledger_is_shown(platform: Platform):
    store = platform.finished(WorkQueue.RUN)
    shutil.rmtree(store.folder / "ledger")
    platform.apply("job_watch")
    [materialization] = platform.materializations("training", store.id)
    assert "loss" not in materialization.metadata and materialization.metadata["steps"].value == 150


def test_a_checkpoint_whose_partition_was_deleted_by_hand_gets_it_again(platform: Platform):
    store = platform.finished(WorkQueue.CHECKPOINTS)
    shutil.rmtree(store.folder / "evaluations")
    for _ in range(2):
        platform.apply("checkpoint_arrivals")
    first, *others = platform.partitions(CHECKPOINTS)
    for partition in (first, *others):
        platform.instance.delete_dynamic_partition(CHECKPOINTS.name or "", partition)
    platform.apply("checkpoint_arrivals")
    assert platform.partitions(CHECKPOINTS) == [first, *others]


def test_what_a_restored_older_database_lacks_is_shown_again(platform: Platform, tmp_path: Path):
    older = tmp_path / "older"
    shutil.copytree(tmp_path / "dagster", older)
    store = platform.finished(WorkQueue.RUN, WorkQueue.CHECKPOINTS)
    for _ in range(3):
        for sensor in ("job_watch", "checkpoint_arrivals"):
            platform.apply(sensor)
    assert platform.trainings.with_pending_work() == set()
    with dg.instance_for_test(UNCAPTURED, temp_dir=str(older)) as instance:
        restored = Platform(tmp_path, instance)
        assert restored.partitions(CHECKPOINTS) == [] and not restored.materializations("training", store.id)
        for _ in range(3):
            for sensor in ("job_watch", "checkpoint_arrivals"):
                restored.apply(sensor)
        assert len(restored.materializations("training", store.id)) == 1
        assert len(restored.partitions(CHECKPOINTS)) == len(store.commits())
        assert restored.trainings.with_pending_work() == set()


def test_a_sweep_that_two_runs_opened_stops_no_tick_and_is_reported_on_it(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    subject = current_subject(platform.recipes.sweeps[SEARCH], platform.recipe, platform.tiers, platform.tracking)
    store = open_sweep(subject, platform.tiers)
    store.append(*store.read())
    monkeypatch.setattr(type(store), "state", lambda self: (_ for _ in ()).throw(AssertionError("opened twice")))
    for _ in range(2):
        platform.apply("sweep_completions")
    [problem] = problems(platform, keys.key(SEARCH, "sweep"))
    assert problem == "AssertionError: opened twice"
