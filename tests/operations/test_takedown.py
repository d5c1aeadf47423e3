"""A takedown by one command: the dataset is built without the document, and what has seen it is named."""

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets import takedown_search
from slipway.assets.datasets.assets import build
from slipway.assets.datasets.documents import document_table, takedowns
from slipway.assets.datasets.documents.takedowns import Takedown
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.takedown_search import TakedownSelection
from slipway.assets.datasets.texts import steps
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.cli import data_lines
from slipway.operations.takedown import TakedownReport, TakedownRequest, noted, outlook, take_down, trained_on
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources.home import Home
from slipway.resources.mlflow.registry import MANIFEST_TAG, SNAPSHOT_TAG, TRAINING_TAG, Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.records import BranchRecord, RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
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
    for number in range(10):
        write_file(tmp_path / "corpus" / f"note{number}.txt", f"note {number} " * 30)
    write_file(tmp_path / "corpus" / "pages.jsonl", json.dumps({"text": "not for any corpus", "url": URL}))
    checks = {"left_out": 1.0, "shrinkage": 1.0, "drift": 100.0}
    return recipe_for(tmp_path / "corpus", reading={"metadata": {"url": "url"}}, checks=checks)


def take_down_documents(recipe: DatasetRecipe, tiers: Tiers, tracking: Tracking, **what: Any) -> TakedownReport:
    request = TakedownRequest(TakedownSelection(**what), "asked", "test")
    with dg.DagsterInstance.ephemeral() as instance:
        return take_down(recipe, tiers, tracking, instance, request, lambda line: None)


def note(recipe: DatasetRecipe, durable: Path, what: TakedownSelection) -> list[Takedown]:
    """Note a takedown as the command does before it builds."""
    documents = takedown_search.matching_documents(durable, recipe.name, TEXT_DOCUMENTS, what)
    takedowns.add(durable, noted(TakedownRequest(what, "asked", "test"), documents), recipe.name)
    return takedowns.read(durable, recipe.name)


def built(recipe: DatasetRecipe, tiers: Tiers) -> str:
    with dg.DagsterInstance.ephemeral() as instance:
        return build(recipe, tiers, instance, lambda line: None)


def proposed(
    tiers: Tiers, name: str, snapshot: str, init: str = "", branch: BranchRecord | None = None
) -> TrainingStore:
    own = Trainings(tiers.durable_path / "trainings")
    return own.propose(
        Specification(name, {}, snapshot, "1" * 64, branch=branch), RunPolicy(1, 2, 1, 60.0, 3, init=init)
    )


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
    report = take_down_documents(recipe, tiers, tracking, urls=(URL,))
    assert report.documents == ("pages.jsonl#0",) and report.snapshots == {before: recipe.name}
    assert report.trainings == tuple(sorted((saw.id, heir.id, branch.id))) and report.models == ("one 1", "two 1")
    assert report.snapshot not in (before, "") and report.near == ()
    (takedown,) = takedowns.read(tiers.durable_path, recipe.name)
    assert (takedown.why, takedown.by, takedown.time > 0) == ("asked", "test", True)


def test_trainings_that_wait_are_distinguished_from_those_that_were_started(tiers: Tiers):
    there, other = "a" * 64, "b" * 64
    saw = started(tiers, "saw", there)
    pending_training = waiting(tiers, "waits", there)
    heir = waiting(tiers, "heir", other, init=f"checkpoints/{saw.id}/000000005.000001.0000")
    waiting(tiers, "elsewhere", other)
    proposed(tiers, "proposed", there)  # nobody wants it
    assert trained_on(tiers, [there]) == ({saw.id}, {pending_training.id, heir.id})


def test_a_url_of_no_document_is_refused_and_nothing_is_noted(recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path):
    steps.make_documents(recipe, tiers.durable_path)
    with pytest.raises(ValueError, match=r"found no document of https://b\.example/ in its source"):
        take_down_documents(recipe, tiers, Tracking(uri=f"sqlite:///{tmp_path}/none.db"), urls=("https://b.example/",))
    assert takedowns.read(tiers.durable_path, recipe.name) == []


def test_a_name_of_no_document_is_refused_though_others_are_there(recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path):
    steps.make_documents(recipe, tiers.durable_path)
    names = ("note1.txt", "note2.txt#0", "note3.txt#1", "note1")
    with pytest.raises(ValueError, match=r"found no document of note3\.txt#1, note1 in its source"):
        take_down_documents(recipe, tiers, Tracking(uri=f"sqlite:///{tmp_path}/none.db"), documents=names)
    assert takedowns.read(tiers.durable_path, recipe.name) == []


@pytest.mark.nightly
def test_a_page_that_its_source_has_no_more_stays_out_and_who_has_seen_it_is_named(
    recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path
):
    before, pages = built(recipe, tiers), tmp_path / "corpus" / "pages.jsonl"
    saw = started(tiers, "saw", before)
    pages.unlink()
    built(recipe, tiers)
    report = take_down_documents(recipe, tiers, Tracking(uri=f"sqlite:///{tmp_path}/none.db"), urls=(URL,))
    assert (report.documents, report.snapshots, report.trainings) == ((), {before: recipe.name}, (saw.id,))
    write_file(pages, json.dumps({"text": "another text by now", "url": URL}))
    table = document_table.path(tiers.durable_path, steps.make_documents(recipe, tiers.durable_path).result["blake3"])
    removed = {row["name"]: row["removed"] for row in pq.read_table(table).to_pylist()}
    assert removed["pages.jsonl"] == "takedown"


def test_an_area_is_looked_at_first_with_what_has_seen_it_and_nothing_is_noted(
    recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path
):
    write_file(
        tmp_path / "corpus" / "site.jsonl",
        "".join(json.dumps({"text": f"page {number}", "url": f"{URL}/{number}"}) + "\n" for number in range(30)),
    )
    steps.make_documents(recipe, tiers.durable_path)
    request = TakedownRequest(TakedownSelection(under=("a.example/bad/", "a.example/bad/7")), "asked", "test")
    report = outlook(recipe, tiers, Tracking(uri=f"sqlite:///{tmp_path}/none.db"), request)
    assert (report.snapshot, len(report.documents)) == ("", 31)
    assert report.under == {"a.example/bad/": 31, "a.example/bad/7": 1}
    assert report.urls["site.jsonl#3"] == f"{URL}/3"
    assert takedowns.read(tiers.durable_path, recipe.name) == []
    lines = data_lines.takedown(report)
    assert f"would be taken down: pages.jsonl#0 ({URL})" in lines
    assert "would be taken down: 11 more; all of them: --json" in lines
    assert "under a.example/bad/: 31 documents" in lines
    assert lines[-1] == "31 documents of 2 files; nothing is noted yet; to take them down: --apply"


def test_each_url_and_each_area_is_noted_by_itself_and_stays_out(recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path):
    pages = [{"text": f"page {number} " * 20, "url": f"https://b.example/{number}"} for number in range(4)]
    write_file(tmp_path / "corpus" / "site.jsonl", "".join(json.dumps(page) + "\n" for page in pages))
    steps.make_documents(recipe, tiers.durable_path)
    what = TakedownSelection((URL, "https://b.example/3"), ("b.example/2",), ("note1.txt",))
    noted_takedowns = note(recipe, tiers.durable_path, what)
    assert [(takedown.url, takedown.under, takedown.documents) for takedown in noted_takedowns] == [
        (URL, "", ("pages.jsonl#0",)),
        ("https://b.example/3", "", ("site.jsonl#3",)),
        ("", "b.example/2", ("site.jsonl#2",)),
        ("", "", ("note1.txt#0",)),
    ]
    write_file(tmp_path / "corpus" / "new.jsonl", json.dumps({"text": "new", "url": "http://b.example/2/new.html"}))
    table = document_table.path(tiers.durable_path, steps.make_documents(recipe, tiers.durable_path).result["blake3"])
    out = {f"{row['name']}#{row['number']}" for row in pq.read_table(table).to_pylist() if row["removed"] == "takedown"}
    assert out == {"pages.jsonl#0", "site.jsonl#2", "site.jsonl#3", "note1.txt#0", "new.jsonl#0"}


def test_an_area_of_no_document_is_refused_with_what_keeps_it_out(recipe: DatasetRecipe, tiers: Tiers, tmp_path: Path):
    steps.make_documents(recipe, tiers.durable_path)
    with pytest.raises(ValueError, match=r"no document of b\.example/ in its source.*cleaning\.urls\.blocked"):
        take_down_documents(
            recipe, tiers, Tracking(uri=f"sqlite:///{tmp_path}/none.db"), under=("b.example/", "a.example")
        )
    assert takedowns.read(tiers.durable_path, recipe.name) == []
