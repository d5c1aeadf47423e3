"""What cannot be read is not empty: retention removes nothing where records, terms or references cannot be read."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.resources.mlflow.registry import MANIFEST_TAG, Registry
from slipway.resources.trainings.store import TrainingStore
from tests.operations.test_checkpoint_retention import FIRST, LAST, MIDDLE, edit, keeps, retained, store, there
from tests.sensors.platform import Platform

__all__ = ["store"]
ALL = [FIRST, MIDDLE, LAST]


def gone(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}-elsewhere"))


def a_file(path: Path) -> None:
    gone(path)
    path.write_bytes(b"in the way")


def a_loop(path: Path) -> None:
    gone(path)
    path.symlink_to(path.name)


def empty(path: Path) -> None:
    gone(path)
    path.mkdir()


FAULTS = [gone, a_file, a_loop, empty]


def age(platform: Platform, store: TrainingStore) -> None:
    """Let the checkpoints be two days old: long enough for one that is on no record."""
    for path in (platform.home.durable / "checkpoints" / store.id).glob("*/MANIFEST.json"):
        os.utime(path, (1e9, 1e9))


@pytest.mark.parametrize("folder", ["claims", "commits"])
@pytest.mark.parametrize("fault", FAULTS)
def test_records_that_cannot_be_listed_cost_no_checkpoint(
    platform: Platform, store: TrainingStore, folder: str, fault: Callable[[Path], None]
):
    age(platform, store)
    fault(store.folder / folder)
    retained(platform)
    assert there(platform, store) == ALL


@pytest.mark.parametrize("folder", ["set-aside", "pruned", "replicas", "withdrawn"])
def test_a_folder_of_records_that_is_a_file_stops_the_retention_of_its_training(
    platform: Platform, store: TrainingStore, folder: str
):
    age(platform, store)
    (store.folder / folder).write_bytes(b"in the way")
    assert not retained(platform).success
    assert there(platform, store) == ALL


def test_a_registered_checkpoint_stays_though_its_training_has_no_record_of_it(
    platform: Platform, store: TrainingStore
):
    first, middle, _ = store.commits()
    registry = Registry(platform.tracking, platform.home.durable)
    registry.register("a-model", platform.home.durable / first.folder, "", {MANIFEST_TAG: first.manifest})
    age(platform, store)
    for commit in (first, middle):
        (store.folder / "commits" / f"{commit.name}.json").unlink()
    retained(platform)
    assert there(platform, store) == [FIRST, LAST]


def test_terms_that_cannot_be_read_may_name_any_checkpoint_so_nothing_is_removed(
    platform: Platform, store: TrainingStore
):
    other = platform.proposed("another")
    for path in other.folder.glob("terms.*"):
        path.write_bytes(b"{")
    assert not retained(platform).success
    assert there(platform, store) == ALL


def test_a_training_that_was_only_half_proposed_stops_nobody(platform: Platform, store: TrainingStore):
    for path in platform.proposed("another").folder.glob("terms.*"):
        path.unlink()
    assert retained(platform).success
    assert there(platform, store) == [LAST]


def test_a_training_whose_records_are_damaged_does_not_stop_the_others(platform: Platform, store: TrainingStore):
    other = platform.start_training(cause="another")
    (other.folder / "claims").write_bytes(b"in the way")
    retained(platform)
    assert there(platform, store) == [LAST]


def test_a_trial_that_starts_from_a_checkpoint_keeps_it(platform: Platform, store: TrainingStore):
    trial = platform.home.durable / "sweeps" / "a-sweep" / "trials" / "a-sweep.0"
    shutil.copytree(platform.proposed("another").folder, trial)
    policy = json.loads((trial / "terms.json").read_bytes())
    policy["init"] = f"{platform.home.durable / store.commits()[0].folder}/"
    edit(trial / "terms.json", policy)
    assert retained(platform).success
    assert there(platform, store) == [FIRST, LAST]


def test_nothing_is_removed_through_a_symbolic_link(platform: Platform, store: TrainingStore):
    folder = platform.home.durable / "checkpoints" / store.id
    folder.rename(platform.root / "precious")
    folder.symlink_to(platform.root / "precious")
    assert not retained(platform).success
    assert sorted(int(path.parent.name[:9]) for path in (platform.root / "precious").glob("*/MANIFEST.json")) == ALL


def test_a_training_that_was_given_up_keeps_its_newest_step(platform: Platform, store: TrainingStore):
    """Its last commit is on a node's NVMe alone: it is brought to the durable tier before the node loses it."""
    keeps(store, durable={"last": 5})
    last = store.commits()[-1]
    node = platform.tiers.nvme_path("node-1")
    (node / last.folder).parent.mkdir(parents=True)
    shutil.move(platform.home.durable / last.folder, node / last.folder)
    path = store.folder / "commits" / f"{last.name}.json"
    edit(path, {**json.loads(path.read_bytes()), "tier": "nvme"})
    for _ in range(2):
        assert retained(platform).success
    assert [commit.step for commit in store.commits()] == ALL
    assert there(platform, store) == ALL
    assert store.read().holders[last.name] == ("durable",)
    assert not (node / last.folder).exists()
