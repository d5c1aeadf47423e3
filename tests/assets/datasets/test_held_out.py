"""Small datasets: a document is held out where the share of the recipe would be none, and stays so."""

import json

import pytest

from slipway.assets.datasets.documents import held_out
from slipway.assets.datasets.texts import steps
from slipway.assets.datasets.texts.checks import outcomes
from tests.assets.datasets import builds
from tests.assets.datasets.corpora import make_corpus, recipe_for, write_file
from tests.assets.datasets.test_documents import rows_of

NONE = 1e-9
"""A share that is no document of any corpus."""


def validation(rows) -> set[str]:
    return {row["name"] for row in rows if row["split"] == "validation"}


def test_of_a_few_documents_one_is_held_out_and_the_snapshot_passes_its_checks(tmp_path, durable):
    recipe = recipe_for(make_corpus(tmp_path / "corpus", files=19), validation=NONE)
    snapshot = builds.build(recipe, durable)
    assert snapshot.splits["validation"].documents == 1 and snapshot.splits["train"].documents == 18
    assert not [outcome for outcome in outcomes(recipe, snapshot, None, durable) if outcome.blocks]


def test_what_is_held_out_stays_so_when_the_dataset_grows(tmp_path, durable):
    corpus = make_corpus(tmp_path / "corpus", files=19)
    builds.build(recipe_for(corpus, validation=NONE), durable)
    before = validation(rows_of(recipe_for(corpus, validation=NONE), durable))
    make_corpus(corpus, files=150)
    grown = validation(rows_of(recipe_for(corpus, validation=0.05), durable))
    assert before < grown


def test_an_unchanged_source_is_not_built_again_because_of_it(tmp_path, durable):
    recipe = recipe_for(make_corpus(tmp_path / "corpus", files=19), validation=NONE)
    snapshot = builds.build(recipe, durable)
    assert steps.up_to_date(recipe, durable) == snapshot.sha256


def test_nothing_is_noted_where_the_share_holds_documents_out(corpus, durable):
    builds.build(recipe_for(corpus), durable)
    assert held_out.read(durable, "small-corpus") is None


def test_a_document_that_models_may_have_read_is_not_held_out_later(tmp_path, durable):
    corpus = make_corpus(tmp_path / "corpus", files=60)
    builds.build(recipe_for(corpus), durable)
    assert validation(rows_of(recipe_for(corpus, validation=NONE), durable)) == set()


def test_a_document_that_is_most_of_the_corpus_is_not_held_out(tmp_path, durable):
    corpus = make_corpus(tmp_path / "corpus", files=19)
    for number in range(5):
        write_file(corpus / f"long{number}.txt", f"{number} and others " * 10_000)
    [text] = validation(rows_of(recipe_for(corpus, validation=NONE), durable))
    assert "long" not in text
    two = recipe_for(make_corpus(tmp_path / "two", files=2), validation=NONE)
    assert validation(rows_of(two, tmp_path / "other")) == set()


def test_a_note_that_makes_no_sense_refuses_the_build_and_says_what_to_do(tmp_path, durable):
    recipe = recipe_for(make_corpus(tmp_path / "corpus", files=19), validation=NONE)
    builds.build(recipe, durable)
    held_out.path(durable, "small-corpus").write_text(json.dumps({"identity": 3}))
    write_file(tmp_path / "corpus" / "more.txt", "more")
    with pytest.raises(ValueError, match=r"held_out.json.*identity.*slipway restore"):
        steps.make_documents(recipe, durable)


def test_a_note_that_is_gone_comes_back_from_a_backup_and_one_that_is_there_stays(tmp_path):
    backup = held_out.path(tmp_path / "backup", "small")
    backup.parent.mkdir(parents=True)
    backup.write_text('{"identity": "00ab"}')
    for _ in range(2):
        held_out.restore(tmp_path / "durable", "small", backup)
        noted = held_out.read(tmp_path / "durable", "small")
        assert noted is not None and noted.identity == "00ab"
        backup.write_text('{"identity": "00cd"}')


def test_of_equal_documents_the_one_that_is_held_out_is_kept(tmp_path, durable):
    addresses = (f"write to m{number}@mail.org about the parts" for number in range(40))
    for number, text in enumerate(addresses):
        write_file(tmp_path / "corpus" / f"{number:02}.txt", text)
    cleaning = {"mask": ("email",), "near_duplicates": None, "decontamination": None}
    remaining = [row for row in rows_of(recipe_for(tmp_path / "corpus", cleaning=cleaning), durable) if row["split"]]
    assert [row["split"] for row in remaining] == ["validation"] and remaining[0]["masked"] == 1
