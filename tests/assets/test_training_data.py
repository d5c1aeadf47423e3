"""Training data: a training on several datasets gets one snapshot of them, which everything else keeps and tells."""

import os
from pathlib import Path

import pytest

from slipway.assets import training_data
from slipway.assets.datasets import garbage, takedown_search
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.takedown_search import TakedownSelection
from slipway.assets.training_commands import start
from slipway.operations import references
from slipway.recipes.load import load
from slipway.recipes.training import ModelRecipe, with_parameters
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.openlineage import events
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import branching
from slipway.resources.trainings.records import BranchRecord
from slipway.trainer.base import verify
from slipway.trainer.data import mixtures, shards, snapshots
from tests.recipes.conftest import DATASET, SWEEP, TRAINING, copied
from tests.recipes.test_mixes import MIX, NAMED
from tests.trainer.test_mixes import snapshot_of


@pytest.fixture
def durable(tmp_path: Path) -> Path:
    """A durable tier on which two datasets point at snapshots."""
    for seed, name in enumerate(("web", "code")):
        snapshot = snapshot_of(tmp_path / "durable", name, seed, 3000, 2000)
        pointer.point(tmp_path / "durable", name, snapshot.sha256, "x")
    return tmp_path / "durable"


@pytest.fixture
def recipe(tmp_path: Path) -> ModelRecipe:
    folder = copied(tmp_path / "recipes")
    text = (folder.path / DATASET).read_text()
    folder.write("datasets/web.yaml", text)
    folder.write("datasets/code.yaml", text.replace("  vocab_size: 4096", f"  file: {tmp_path / 'none.json'}"))
    folder.edit(TRAINING, NAMED, MIX)
    (folder.path / SWEEP).unlink()
    return with_parameters(load(folder.path, {}).trainings["tiny-decoder"], {"mix.passes_at_most": None})


def test_the_snapshot_of_several_datasets_is_the_same_for_all_who_ask(recipe: ModelRecipe, durable: Path) -> None:
    sha256 = training_data.current(recipe, durable)
    assert sha256 == training_data.current(recipe, durable)
    assert sha256 is not None
    mixture = snapshots.read(durable, sha256)
    assert mixture == training_data.read(recipe, durable)
    assert mixtures.sources_of(mixture) == [pointer.current(durable, name) for name in ("code", "web")]


def test_a_new_snapshot_of_one_dataset_makes_another_mixture(recipe: ModelRecipe, durable: Path) -> None:
    before = training_data.current(recipe, durable)
    pointer.point(durable, "web", snapshot_of(durable, "web", 9, 3000).sha256, "y")
    assert training_data.current(recipe, durable) != before


def test_a_dataset_without_a_snapshot_is_named(recipe: ModelRecipe, durable: Path) -> None:
    (durable / "datasets" / "web" / "current.json").unlink()
    assert training_data.current(recipe, durable) is None
    expected = "dataset web has no snapshot yet; to make it: slipway data build web"
    with pytest.raises(ValueError, match=expected):
        start(recipe, Tiers(durable=str(durable), nvme="{node}"), Tracking(uri=""), "test")


def test_a_mixture_that_was_removed_is_written_again(recipe: ModelRecipe, durable: Path) -> None:
    sha256 = training_data.current(recipe, durable)
    assert sha256 is not None
    shards.manifest_path(durable, sha256).unlink()
    assert training_data.current(recipe, durable) == sha256
    assert shards.manifest_path(durable, sha256).exists()


def test_a_training_is_started_on_the_mixture_and_twice_is_once(recipe: ModelRecipe, durable: Path) -> None:
    tiers = Tiers(durable=str(durable), nvme="{node}")
    store = start(recipe, tiers, Tracking(uri=""), "test")
    assert store.specification().snapshot == training_data.current(recipe, durable)
    assert store.specification().identity_config["mix"] == recipe.numbers()["mix"]
    assert start(recipe, tiers, Tracking(uri=""), "test").id == store.id


def test_more_passes_than_the_mix_allows_are_refused_before_anything_is_written(
    recipe: ModelRecipe, durable: Path
) -> None:
    limited = with_parameters(recipe, {"mix.passes_at_most": 4.0})
    with pytest.raises(ValueError, match=r"found a training that reads code 133.33 times, web 133.33 times"):
        start(limited, Tiers(durable=str(durable), nvme="{node}"), Tracking(uri=""), "test")
    assert not (durable / "trainings").exists()


def test_a_mixture_in_use_keeps_the_snapshots_that_it_was_made_of(recipe: ModelRecipe, durable: Path) -> None:
    mixture = training_data.current(recipe, durable)
    assert mixture is not None
    for name in ("web", "code"):
        pointer.point(durable, name, snapshot_of(durable, name, 7, 3000).sha256, "y")
    for path in [*(durable / "shards").iterdir(), *(durable / "snapshots").iterdir()]:
        os.utime(path, (1, 1))
    sources = mixtures.sources_of(snapshots.read(durable, mixture))
    garbage.collect(durable, lambda: {mixture}, keep=0)
    assert all(path.exists() for sha256 in (mixture, *sources) for path in _of_snapshot(durable, sha256))
    garbage.collect(durable, set, keep=0)
    assert not any(shards.manifest_path(durable, sha256).exists() for sha256 in (mixture, *sources))


def test_a_training_that_waits_keeps_its_mixture_when_a_dataset_is_built_anew_and_garbage_is_collected(
    recipe: ModelRecipe, durable: Path
) -> None:
    tiers = Tiers(durable=str(durable), nvme="{node}")
    store = start(recipe, tiers, Tracking(uri=""), "test")
    waits_for = store.specification().snapshot
    for seed in (8, 9):  # what was taken down is missing in each
        pointer.point(durable, "web", snapshot_of(durable, "web", seed, 3000).sha256, "y")
    for path in [*(durable / "shards").iterdir(), *(durable / "snapshots").iterdir()]:
        os.utime(path, (1, 1))
    removed = garbage.collect(durable, lambda: references.snapshots_in_use(tiers), keep=0, older=0).files
    assert removed  # of the snapshot between
    assert store.specification().snapshot == waits_for
    for sha256 in (waits_for, *mixtures.sources_of(snapshots.read(durable, waits_for))):
        described = snapshots.read(durable, sha256)
        assert all(verify.is_whole(shards.shard_path(durable, shard), shard) for shard in described.shards())
    # Who asks now gets another training, on what the datasets have become.
    assert start(recipe, tiers, Tracking(uri=""), "test").specification().snapshot not in ("", waits_for)


def _of_snapshot(durable: Path, sha256: str) -> list[Path]:
    files = [shards.shard_path(durable, shard) for shard in snapshots.read(durable, sha256).shards()]
    return [shards.manifest_path(durable, sha256), *files]


def test_a_takedown_finds_the_mixture_of_a_snapshot_with_the_document(recipe: ModelRecipe, durable: Path) -> None:
    mixture = training_data.current(recipe, durable)
    # The documents tables of these snapshots are gone: what they have is not known.
    assert takedown_search.snapshots_with(durable, [], TakedownSelection(("x",)))[mixture or ""] == "code+web"


def test_a_catalogue_hears_what_a_mixture_was_made_of(recipe: ModelRecipe, durable: Path) -> None:
    mixture = training_data.read(recipe, durable)
    assert mixture is not None
    event = events.of_snapshot(mixture, 0.0)
    assert [dataset["name"] for dataset in event["inputs"]] == ["code", "web"]
    assert [dataset["name"] for dataset in event["outputs"]] == ["code+web"]


def test_a_branch_may_change_the_mix_from_its_step_on_and_not_before(recipe: ModelRecipe, durable: Path) -> None:
    store = start(recipe, Tiers(durable=str(durable), nvme="{node}"), Tracking(uri=""), "test")
    parent = store.specification()

    def phases(after: int) -> BranchRecord:
        changed = {"mix.phases": [{"after_step": after, "weights": {"web": 1, "code": 1}}]}
        return BranchRecord(store.id, "", "commit", 60, "manifest", changed)

    numbers = branching.continued(parent, parent.identity_config, phases(60), "").identity_config
    assert numbers["mix"]["phases"] == [{"after_step": 60, "weights": {"web": 1.0, "code": 1.0}}]
    with pytest.raises(ValueError, match="mix: found other weights before step 60, expected the same weights"):
        branching.continued(parent, parent.identity_config, phases(59), "")
