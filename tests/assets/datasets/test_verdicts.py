"""Verdicts: the result for two documents is kept, and never used for another pair."""

from pathlib import Path

import duckdb
import numpy as np
import pytest

from assets.datasets.cleaning.decontamination import Comparison
from assets.datasets.cleaning.verdicts import Verdicts
from assets.datasets.documents import document_step, document_table
from assets.datasets.texts import comparison
from tests.assets.datasets.builds import build
from tests.assets.datasets.corpora import make_corpus, recipe_for, write_file

pytestmark = pytest.mark.pure

SHARED, NOTHING = Comparison("the thirteen words that both have"), Comparison(None)
EVIDENCE = np.array([1, 2, 3], np.uint64)
HASHES = {0: "a" * 64, 1: "b" * 64, 2: "c" * 64}


@pytest.fixture
def verdicts(tmp_path):
    def opened() -> Verdicts:
        return Verdicts(tmp_path / "verdicts.json", HASHES.__getitem__)

    return opened


def test_a_noted_verdict_is_recalled_by_the_next_build(verdicts, tmp_path):
    first = verdicts()
    first.note(0, 1, EVIDENCE, SHARED)
    first.note(0, 2, EVIDENCE, NOTHING)
    first.save(tmp_path)
    assert (verdicts().recall(0, 1, EVIDENCE), verdicts().recall(0, 2, EVIDENCE)) == (SHARED, NOTHING)


def test_other_documents_and_other_evidence_are_not_known(verdicts, tmp_path):
    first = verdicts()
    first.note(0, 1, EVIDENCE, SHARED)
    first.save(tmp_path)
    assert verdicts().recall(1, 0, EVIDENCE) is None
    assert verdicts().recall(0, 1, EVIDENCE[:2]) is None


def test_a_verdict_that_is_not_recalled_is_forgotten(verdicts, tmp_path):
    first = verdicts()
    first.note(0, 1, EVIDENCE, SHARED)
    first.note(0, 2, EVIDENCE, SHARED)
    first.save(tmp_path)
    second = verdicts()
    second.recall(0, 1, EVIDENCE)
    second.save(tmp_path)
    assert (verdicts().recall(0, 1, EVIDENCE), verdicts().recall(0, 2, EVIDENCE)) == (SHARED, None)


def test_a_damaged_file_of_verdicts_counts_as_empty(verdicts, tmp_path):
    (tmp_path / "verdicts.json").write_bytes(b"\xff{")
    assert verdicts().recall(0, 1, EVIDENCE) is None


def test_a_rebuild_reads_no_text_of_documents_that_were_compared_before(tmp_path, durable, monkeypatch):
    corpus = make_corpus(tmp_path / "corpus")
    passage = " ".join(f"word{number}" for number in range(40))
    for number in range(12):
        write_file(corpus / f"shares{number}.txt", f"{number} {passage[number * 7 :]}")
    recipe = recipe_for(
        corpus, cleaning={"near_duplicates": None, "decontamination": {"common": 100, "validation": True}}
    )
    before = build(recipe, durable)
    read: list[int] = []
    stored = comparison._Texts._stored

    def watched(texts: comparison._Texts, row: int) -> str:
        read.append(row)
        return stored(texts, row)

    monkeypatch.setattr(comparison._Texts, "_stored", watched)
    write_file(corpus / "zzz.txt", "something else altogether")
    after = build(recipe, durable)
    assert read == []
    tables = [document_table.path(durable, made.documents["blake3"]) for made in (before, after)]
    assert removed(tables[0]) == removed(tables[1]) != set()
    assert document_step.latest(recipe, durable).result["rows"] == 73


def removed(table: Path) -> set[str]:

    query = f"SELECT name FROM '{table}' WHERE removed = 'contaminated'"
    return {name for (name,) in duckdb.sql(query).fetchall()}
