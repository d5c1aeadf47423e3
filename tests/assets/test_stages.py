"""Stages: what went into each step that led to a snapshot, by the records of its builds."""

from pathlib import Path

import pytest

from slipway.assets import stages
from slipway.assets.datasets.reading import sources
from tests.assets.datasets.builds import build
from tests.assets.datasets.corpora import make_corpus, recipe_for


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SETTLED_SECONDS", -1.0)


def test_of_two_builds_of_a_dataset_each_snapshot_has_its_own_stages(tmp_path: Path):
    corpus, durable = make_corpus(tmp_path / "corpus", files=8), tmp_path / "durable"
    snapshots = {share: build(recipe_for(corpus, validation=share), durable) for share in (0.2, 0.6)}
    for share, snapshot in snapshots.items():
        stages_of_snapshot = stages.of_snapshot(durable, snapshot)
        assert stages_of_snapshot.keys() == {"documents", "snapshot", "tokenizer"}
        assert stages_of_snapshot["documents"]["validation"] == share
        assert stages_of_snapshot["snapshot"]["recipe"] == snapshot.recipe
        assert all(stage["version"] and "source" not in stage for stage in stages_of_snapshot.values())


def test_where_no_record_is_left_there_are_no_stages(tmp_path: Path):
    corpus, durable = make_corpus(tmp_path / "corpus", files=4), tmp_path / "durable"
    snapshot = build(recipe_for(corpus), durable)
    for path in (durable / "datasets" / snapshot.dataset / stages.STEPS).iterdir():
        path.write_bytes(b"{")
    assert stages.of_snapshot(durable, snapshot) == {}
