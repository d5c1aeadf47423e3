"""The scrub of the durable tier: each night by a job, by hand by the command, from the backup or from the sources."""

from pathlib import Path

import dagster as dg
import pytest

from slipway.assets.datasets.assets import build
from slipway.assets.datasets.documents import takedowns
from slipway.assets.datasets.documents.takedowns import Takedown
from slipway.assets.datasets.reading import sources
from slipway.operations import metadata_backup, metadata_restore
from slipway.operations.scrub import job, scrubbed, sentence
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources.home import Home
from slipway.resources.mlflow import database
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.trainer.data import shards
from tests.assets.datasets.corpora import make_corpus, recipe_for, write_file
from tests.assets.datasets.test_scrub import flip


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLED_SECONDS", -1.0)


@pytest.fixture
def tiers(tmp_path: Path) -> Tiers:
    (tmp_path / "backup").mkdir()
    return Tiers(durable=str(tmp_path / "durable"), nvme="{node}", backup=str(tmp_path / "backup"))


@pytest.fixture
def recipe(tmp_path: Path) -> DatasetRecipe:
    return recipe_for(make_corpus(tmp_path / "corpus", files=30), shard_tokens=400)


def make(recipe: DatasetRecipe, tiers: Tiers) -> shards.TextSnapshot:
    with dg.DagsterInstance.ephemeral() as instance:
        return shards.read_manifest(tiers.durable_path, build(recipe, tiers, instance, lambda line: None))


def test_a_lost_shard_and_a_lost_table_are_made_anew_from_the_source_with_the_same_bytes(
    recipe: DatasetRecipe, tiers: Tiers
):
    snapshot, durable = make(recipe, tiers), tiers.durable_path
    paths = [
        shards.shard_path(durable, snapshot.splits["train"].shards[0]),
        durable / "documents" / f"{snapshot.documents['blake3']}.parquet",
    ]
    contents_before = [path.read_bytes() for path in paths]
    for path in paths:
        flip(path)
    without = scrubbed(tiers, 0, 1, lambda progress: None)
    assert len(without.lost) == 2 and "slipway data scrub --rebuild" in sentence(without.lost[0])
    again = scrubbed(
        tiers, 0, 1, lambda progress: None, {recipe.name: recipe}, lambda damaged_recipe: make(damaged_recipe, tiers)
    )
    assert [damage.mended for damage in again.damaged] == ["the source of small-corpus"] * 2
    assert [path.read_bytes() for path in paths] == contents_before
    assert scrubbed(tiers, 0, 1, lambda progress: None).damaged == ()


def test_what_no_build_makes_anew_is_told_with_what_a_person_can_do(
    recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path
):
    snapshot, durable = make(recipe, tiers), tiers.durable_path
    write_file(tmp_path / "corpus" / "package0" / "module0.py", "changed " * 60)
    newer = make(recipe, tiers)
    [path, *_] = [shards.shard_path(durable, shard) for shard in set(snapshot.shards()) - set(newer.shards())]
    flip(path)
    report = scrubbed(
        tiers, 0, 1, lambda progress: None, {recipe.name: recipe}, lambda damaged_recipe: make(damaged_recipe, tiers)
    )
    assert "no dataset points at that snapshot now" in sentence(report.lost[0]) and len(report.lost) == 1
    flip(durable / "tokenizers" / f"{snapshot.tokenizer.sha256}.json")
    [tokenizer] = [
        loss for loss in scrubbed(tiers, 0, 1, lambda progress: None).lost if loss.name != report.lost[0].name
    ]
    assert "put a copy of it there" in sentence(tokenizer)


def test_the_job_of_the_night_fails_with_what_to_do_when_something_is_lost(recipe: DatasetRecipe, tiers: Tiers):
    snapshot = make(recipe, tiers)
    every = {"ops": {"scrub_datasets": {"config": {"nights": 1}}}}
    assert job.execute_in_process(every, resources={"tiers": tiers}).success
    flip(shards.manifest_path(tiers.durable_path, snapshot.sha256))
    with pytest.raises(
        dg.Failure, match=r"is lost: found SHA-256 .*, and no other place has it; .*: slipway data scrub"
    ):
        job.execute_in_process(every, resources={"tiers": tiers})


def test_takedowns_and_tokenizers_are_in_the_backup_of_the_metadata_and_come_back(
    recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path
):
    snapshot, durable = make(recipe, tiers), tiers.durable_path
    first, second = (
        Takedown(url, ("a#0",), ("b" * 64,), "asked", "test", time) for url, time in (("u", 1.0), ("v", 2.0))
    )
    takedowns.add(durable, [first], recipe.name)
    text = f"slipway: dataset/1\nsource: {{kind: directory, path: {tmp_path / 'corpus'}}}\n"
    write_file(tmp_path / "recipes" / "datasets" / "texts.yaml", text)
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        metadata_backup.back_up(
            instance, tiers, Tracking(uri=f"{database.URI}{tmp_path / 'mlflow.db'}"), tmp_path / "recipes"
        )
    tokenizer = durable / "tokenizers" / f"{snapshot.tokenizer.sha256}.json"
    flip(tokenizer)
    [damage] = scrubbed(tiers, 0, 1, lambda progress: None).damaged
    assert damage.mended.startswith(f"{tmp_path / 'backup'}/metadata/")
    takedowns.path(durable, recipe.name).unlink()
    takedowns.add(durable, [second], recipe.name)
    (tmp_path / "home").mkdir()
    assert metadata_restore.restore(Home(tmp_path / "home"), tiers, "ann").takedowns == 1
    assert {takedown.url for takedown in takedowns.read(durable, recipe.name)} == {"u", "v"}
    (tmp_path / "home").rename(tmp_path / "first")
    (tmp_path / "home").mkdir()
    assert metadata_restore.restore(Home(tmp_path / "home"), tiers, "ann").takedowns == 0
