"""A takedown by one command: the dataset is built without the document, and what has seen it is named."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from assets.datasets.build import build
from assets.datasets.documents import document_table, takedowns
from assets.datasets.documents.takedowns import Takedown
from assets.datasets.reading import sources
from assets.datasets.texts import steps
from operations.takedown import TakedownReport, take_down, trained_on
from recipes.dataset import DatasetRecipe
from resources.home import Home
from resources.mlflow.registry import MANIFEST_TAG, SNAPSHOT_TAG, TRAINING_TAG, Registry
from resources.mlflow.tracking import Tracking
from resources.tiers import Tiers
from resources.trainings.records import BranchRecord, Specification, Terms
from resources.trainings.store import Trainings, TrainingStore
from tests.assets.datasets.corpora import recipe_for, write_file

URL = "https://a.example/bad"


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLED_SECONDS", -1.0)


@pytest.fixture
def tiers(tmp_path: Path) -> Tiers:
    return Tiers(durable=str(tmp_path / "durable"), nvme="{node}")


@pytest.fixture
def recipe(tmp_path: Path) -> DatasetRecipe:
    for each in range(10):
        write_file(tmp_path / "corpus" / f"note{each}.txt", f"note {each} " * 30)
    write_file(tmp_path / "corpus" / "pages.jsonl", json.dumps({"text": "not for any corpus", "url": URL}))
    checks = {"left_out": 1.0, "shrinkage": 1.0, "drift": 100.0}
    return recipe_for(tmp_path / "corpus", reading={"metadata": {"url": "url"}}, checks=checks)


def asked(recipe: DatasetRecipe, tiers: Tiers, tracking: Tracking, **what: Any) -> TakedownReport:
    takedown = dataclasses.replace(Takedown("", (), (), "asked", "test", 0.0), **what)
    with dg.DagsterInstance.ephemeral() as instance:
        return take_down(recipe, tiers, tracking, instance, takedown, False, lambda line: None)


def built(recipe: DatasetRecipe, tiers: Tiers) -> str:
    with dg.DagsterInstance.ephemeral() as instance:
        return build(recipe, tiers, instance, lambda line: None)


def proposed(
    tiers: Tiers, name: str, snapshot: str, init: str = "", branch: BranchRecord | None = None
) -> TrainingStore:
    own = Trainings(tiers.durable_path / "trainings")
    return own.propose(Specification(name, {}, snapshot, "1" * 64, branch=branch), Terms(1, 2, 1, 60.0, 3, init=init))


def waiting(tiers: Tiers, name: str, snapshot: str, **origin: Any) -> TrainingStore:
    store = proposed(tiers, name, snapshot, **origin)
    Trainings(tiers.durable_path / "trainings").start(store, "ada", "the test wants it")
    return store


def started(tiers: Tiers, name: str, snapshot: str, **origin: Any) -> TrainingStore:
    store = waiting(tiers, name, snapshot, **origin)
    assert store.claim(1, ("node-0",), "first start", "ada")
    return store


@pytest.mark.nightly
def test_the_next_snapshot_is_without_it_and_what_has_seen_it_is_named(
    recipe: DatasetRecipe, tiers: Tiers, database: Path, tmp_path: Path
):
    home = Home(tmp_path / "home")
    home.root.mkdir()
    shutil.copyfile(database, home.root / "mlflow.db")
    tracking = Tracking(uri=home.tracking_uri)
    before = built(recipe, tiers)
    saw = started(tiers, "saw", before)
    heir = started(tiers, "heir", "0" * 64, init=f"checkpoints/{saw.id}/000000005.000001.0000")
    branch = started(tiers, "branch", "0" * 64, branch=BranchRecord(heir.id, heir.id, "5", 5, "0" * 64))
    started(tiers, "other", "0" * 64)
    registry = Registry(tracking, tiers.durable_path)
    for model, tags in (("one", {SNAPSHOT_TAG: before}), ("two", {TRAINING_TAG: heir.id}), ("three", {})):
        registry.register(model, tiers.durable_path, "", {MANIFEST_TAG: "0" * 64} | tags)
    report = asked(recipe, tiers, tracking, url=URL)
    assert report.documents == ("pages.jsonl#0",) and report.snapshots == {before: recipe.name}
    assert report.trainings == tuple(sorted((saw.id, heir.id, branch.id))) and report.models == ("one 1", "two 1")
    assert report.snapshot not in (before, "") and report.near == ()
    (noted,) = takedowns.read(tiers.durable_path, recipe.name)
    assert (noted.why, noted.by, noted.time > 0) == ("asked", "test", True)


def test_trainings_that_wait_are_distinguished_from_those_that_were_started(tiers: Tiers):
    there, other = "a" * 64, "b" * 64
    saw = started(tiers, "saw", there)
    waits = waiting(tiers, "waits", there)
    heir = waiting(tiers, "heir", other, init=f"checkpoints/{saw.id}/000000005.000001.0000")
    waiting(tiers, "elsewhere", other)
    proposed(tiers, "proposed", there)  # nobody wants it
    assert trained_on(tiers, [there]) == ({saw.id}, {waits.id, heir.id})


def test_a_url_of_no_document_is_refused_and_nothing_is_noted(recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path):
    steps.make_documents(recipe, tiers.durable_path)
    with pytest.raises(ValueError, match=r"found no document of https://b\.example/ in its source"):
        asked(recipe, tiers, Tracking(uri=f"sqlite:///{tmp_path}/none.db"), url="https://b.example/")
    assert takedowns.read(tiers.durable_path, recipe.name) == []


def test_a_name_of_no_document_is_refused_though_others_are_there(recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path):
    steps.make_documents(recipe, tiers.durable_path)
    names = ("note1.txt", "note2.txt#0", "note3.txt#1", "note1")
    with pytest.raises(ValueError, match=r"found no document of note3\.txt#1, note1 in its source"):
        asked(recipe, tiers, Tracking(uri=f"sqlite:///{tmp_path}/none.db"), documents=names)
    assert takedowns.read(tiers.durable_path, recipe.name) == []


@pytest.mark.nightly
def test_a_page_that_its_source_has_no_more_stays_out_and_who_has_seen_it_is_named(
    recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path
):
    before, pages = built(recipe, tiers), tmp_path / "corpus" / "pages.jsonl"
    saw = started(tiers, "saw", before)
    pages.unlink()
    built(recipe, tiers)
    report = asked(recipe, tiers, Tracking(uri=f"sqlite:///{tmp_path}/none.db"), url=URL)
    assert (report.documents, report.snapshots, report.trainings) == ((), {before: recipe.name}, (saw.id,))
    write_file(pages, json.dumps({"text": "another text by now", "url": URL}))
    table = document_table.path(tiers.durable_path, steps.make_documents(recipe, tiers.durable_path).result["blake3"])
    removed = {row["name"]: row["removed"] for row in pq.read_table(table).to_pylist()}
    assert removed["pages.jsonl"] == "takedown"
