"""Held out is what the initial weights were not trained on, whichever version of a dataset they come from."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from slipway.assets import holdout_filter
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.texts import tokenizer
from slipway.recipes.initial import InitSection
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.records import BranchRecord, RunPolicy, Specification
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.checkpoint.disk.progress import PROGRESS, TrainingProgress
from slipway.trainer.data import mixtures, shards, snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.shards import TextSnapshot as Snapshot
from tests.assets.datasets.builds import build, texts_of
from tests.assets.datasets.corpora import make_corpus, recipe_for, write_file

SMALL, LARGE = 0.1, 0.6


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLED_SECONDS", -1.0)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Snapshot, Snapshot]:
    """A durable tier with two versions of a dataset; the newer one has more of the same documents in validation."""
    root = tmp_path_factory.mktemp("versions")
    corpus = make_corpus(root / "corpus", files=40)
    with pytest.MonkeyPatch.context() as settled:
        settled.setattr(sources, "SETTLED_SECONDS", -1.0)
        older, newer = (build(recipe_for(corpus, validation=share), root / "durable") for share in (SMALL, LARGE))
    return root / "durable", older, newer


@pytest.fixture
def tiers(template: tuple[Path, Snapshot, Snapshot], tmp_path: Path) -> Tiers:
    shutil.copytree(template[0], tmp_path / "durable")
    return Tiers(durable=str(tmp_path / "durable"), nvme="{node}")


@pytest.fixture
def older(template: tuple[Path, Snapshot, Snapshot]) -> Snapshot:
    return template[1]


@pytest.fixture
def newer(template: tuple[Path, Snapshot, Snapshot]) -> Snapshot:
    return template[2]


def built(corpus: Path, tiers: Tiers, validation: float, **sections: Any) -> Snapshot:
    recipe = recipe_for(corpus, validation=validation, **sections)
    return build(recipe.model_copy(update={"name": corpus.name}), tiers.durable_path)


def weights(tiers: Tiers, snapshot: str, training: str = "", **lineage: object) -> InitSection:
    """A checkpoint of a training on a snapshot, as a recipe names it once it was located."""
    folder = tiers.durable_path / "checkpoints" / (training or "first") / "00000010-1"
    folder.mkdir(parents=True, exist_ok=True)
    progress = TrainingProgress(10, 40, 0, {}, {}, {"training": training}, {"snapshot": snapshot, **lineage}, 0.0)
    (folder / PROGRESS).write_bytes(progress.encode())
    return InitSection(checkpoint=str(folder), digest="a" * 64)


def validation_of(tiers: Tiers, snapshot: str) -> set[str]:
    return texts_in(tiers, snapshot, "validation")


def texts_in(tiers: Tiers, snapshot: str, split: str) -> set[str]:
    return set(texts_of(shards.read_manifest(tiers.durable_path, snapshot), tiers.durable_path, split))


def test_documents_that_the_weights_were_trained_on_leave_the_validation_split(
    tiers: Tiers, older: Snapshot, newer: Snapshot
):
    filtered = holdout_filter.snapshot_for(weights(tiers, older.sha256), newer.sha256, tiers)
    trained, held_out = (set(texts_of(sha256, tiers.durable_path, split)) for sha256, split in
                         ((older, "train"), (newer, "validation")))  # fmt: skip
    assert held_out & trained
    assert validation_of(tiers, filtered) == held_out - trained
    snapshot = shards.read_manifest(tiers.durable_path, filtered)
    assert snapshot.splits["train"] == newer.splits["train"]
    assert snapshot.splits["validation"].documents == len(held_out - trained)
    assert snapshot.splits["validation"].text_bytes == sum(len(text.encode()) for text in held_out - trained)
    assert snapshot.source[holdout_filter.LEFT_OUT_KEY] == {
        "snapshot": newer.sha256,
        "documents": len(held_out & trained),
        "seen": [older.sha256],
    }
    assert f"{len(held_out & trained)} validation documents are left out" in holdout_filter.sentence(snapshot)


def test_of_a_mixture_each_snapshot_is_without_what_the_weights_were_trained_on(
    tmp_path: Path, tiers: Tiers, newer: Snapshot
):
    for name in ("code", "web"):
        for n in range(20):
            write_file(tmp_path / name / f"{n}.txt", f"{name} {n} " * 20)

    (tmp_path / "tokenizer.json").write_bytes(tokenizer.read(tiers.durable_path, newer.tokenizer.sha256))
    same = {"tokenizer": {"vocab_size": 300, "file": str(tmp_path / "tokenizer.json")}}

    def mixed(validation: float) -> MixtureSnapshot:
        return mixtures.mixture({name: built(tmp_path / name, tiers, validation, **same) for name in ("code", "web")})

    older, younger = mixed(SMALL), mixed(LARGE)
    for snapshot in (older, younger):
        shards.write_manifest(tiers.durable_path, snapshot)
    mixture = snapshots.read(
        tiers.durable_path, holdout_filter.snapshot_for(weights(tiers, older.sha256), younger.sha256, tiers)
    )
    assert isinstance(mixture, MixtureSnapshot)
    removed = younger.splits["validation"].documents - mixture.splits["validation"].documents
    assert removed and holdout_filter.sentence(mixture).startswith(f"{removed} validation documents are left out")
    learnt = {text for source in mixtures.sources_of(older) for text in texts_in(tiers, source, "train")}
    for before, after in zip(mixtures.sources_of(younger), mixtures.sources_of(mixture), strict=True):
        assert validation_of(tiers, after) == validation_of(tiers, before) - learnt
    assert holdout_filter.snapshot_for(weights(tiers, older.sha256), mixture.sha256, tiers) == mixture.sha256


def test_a_near_duplicate_of_what_the_weights_were_trained_on_is_not_held_out(tmp_path: Path, tiers: Tiers):
    write_file(tmp_path / "corpus" / "pages" / "base.txt", "\n".join(f"line {n} of the first page" for n in range(40)))
    make_corpus(tmp_path / "corpus", files=20)
    sections = {"cleaning": {"near_duplicates": {"similarity": 0.7}, "decontamination": None}}
    older = built(tmp_path / "corpus", tiers, SMALL, **sections)
    text = next(iter(sorted(texts_of(older, tiers.durable_path, "train"), key=len, reverse=True)))
    copies = [f"{text} copy {n}" for n in range(12)]
    for n, copy in enumerate(copies):
        write_file(tmp_path / "corpus" / "pages" / f"copy{n}.txt", copy)
    newer = built(tmp_path / "corpus", tiers, 0.3, **sections)
    held_out = validation_of(tiers, newer.sha256)
    assert held_out & set(copies)
    filtered = holdout_filter.snapshot_for(weights(tiers, older.sha256), newer.sha256, tiers)
    assert not validation_of(tiers, filtered) & set(copies)


def test_weights_of_the_same_snapshot_and_weights_that_saw_nothing_of_it_change_nothing(tmp_path: Path, tiers: Tiers):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        for n in range(20):
            write_file(folder / f"{n}.txt", f"{folder.name} {n} " * 20)
    snapshot, unrelated = (built(folder, tiers, 0.3) for folder in (one, other))
    for saw in (snapshot, unrelated):
        assert holdout_filter.snapshot_for(weights(tiers, saw.sha256), snapshot.sha256, tiers) == snapshot.sha256
    assert holdout_filter.snapshot_for(None, snapshot.sha256, tiers) == snapshot.sha256


def test_leaving_out_twice_gives_the_same_snapshot(tiers: Tiers, older: Snapshot, newer: Snapshot):
    init = weights(tiers, older.sha256)
    once = holdout_filter.snapshot_for(init, newer.sha256, tiers)
    assert holdout_filter.snapshot_for(init, once, tiers) == once
    shards.manifest_path(tiers.durable_path, once).unlink()  # as the collection of garbage does
    assert holdout_filter.snapshot_for(init, newer.sha256, tiers) == once
    assert shards.manifest_path(tiers.durable_path, once).exists()
    shards.manifest_path(tiers.durable_path, newer.sha256).unlink()
    assert holdout_filter.snapshot_for(init, once, tiers) == once


def test_weights_that_saw_all_of_the_validation_split_are_refused(tmp_path: Path, tiers: Tiers, older: Snapshot):
    trained = texts_of(older, tiers.durable_path, "train")
    for n, text in enumerate(trained):
        write_file(tmp_path / "learnt" / f"{n}.txt", text)
    newer = built(tmp_path / "learnt", tiers, LARGE)
    with pytest.raises(ValueError, match=r"the weights were trained on all \d+ validation documents of snapshot"):
        holdout_filter.snapshot_for(weights(tiers, older.sha256), newer.sha256, tiers)


def test_what_the_weights_before_those_weights_saw_counts_too(tiers: Tiers, older: Snapshot, newer: Snapshot):
    by_lineage = weights(tiers, newer.sha256, "third", initial={"digest": "", "snapshots": [older.sha256]})
    root = all_trainings(tiers)
    first = root.propose(Specification("tiny", {}, older.sha256, "", "one"), RunPolicy(1, 1, 1, 30.0, 2))
    start = weights(tiers, older.sha256, first.id)
    second = root.propose(
        Specification("tiny", {}, newer.sha256, "", "two"), RunPolicy(1, 1, 1, 30.0, 2, init=str(start.folder))
    )
    cut = BranchRecord(second.id, second.id, "10", 10, "b" * 64)
    branch = root.propose(Specification("tiny", {}, newer.sha256, "", "three", cut), RunPolicy(1, 1, 1, 30.0, 2))
    for init in (by_lineage, weights(tiers, newer.sha256, second.id), weights(tiers, newer.sha256, branch.id)):
        seen_snapshots = holdout_filter.snapshots_seen(Path(init.folder), tiers)
        assert seen_snapshots == {older.sha256, newer.sha256}
    filtered = holdout_filter.snapshot_for(by_lineage, newer.sha256, tiers)
    assert validation_of(tiers, filtered) < validation_of(tiers, newer.sha256)


def test_a_snapshot_that_was_removed_tells_nothing_more(tiers: Tiers, older: Snapshot, newer: Snapshot):
    shards.manifest_path(tiers.durable_path, older.sha256).unlink()
    assert holdout_filter.snapshot_for(weights(tiers, older.sha256), newer.sha256, tiers) == newer.sha256
