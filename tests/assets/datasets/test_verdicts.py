"""Verdicts: the result for two documents is kept, and never used for another pair."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from slipway.assets.datasets.cleaning import decontamination, verdicts
from slipway.assets.datasets.cleaning.decontamination import contaminated
from slipway.assets.datasets.cleaning.verdicts import Verdicts
from slipway.assets.datasets.cleaning.word_hashes import PASSAGE as PASSAGE_WORDS
from slipway.assets.datasets.documents import document_step, document_table
from slipway.assets.datasets.texts import comparison
from slipway.recipes.cleaning import DecontaminationSection
from slipway.trainer.base import digest
from tests.assets.datasets.builds import build
from tests.assets.datasets.cleaning import corpora
from tests.assets.datasets.corpora import make_corpus, recipe_for, write_file

pytestmark = pytest.mark.pure

PASSAGE = " ".join(f"word{number}" for number in range(PASSAGE_WORDS))
TRAINING = [f"one {PASSAGE} two", "something else", f"other {PASSAGE} words"]
HELD_OUT = [f"three {PASSAGE} four"]


@pytest.fixture
def search(tmp_path):
    """Look for leaks with the verdicts of the last time; gives the training documents that were read."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(training: list[str], held_out: list[str]) -> list[str]:
        read: list[str] = []
        connection = corpora.connection(scratch)
        connection.register("training", corpora.fingerprints(training))
        texts = [*training, *held_out]
        held_out_rows = pa.array(range(len(training), len(texts)), pa.int64())
        connection.register("held_out", corpora.fingerprints(held_out).set_column(0, "row", held_out_rows))
        hashes = [digest.of_bytes(text.encode()) for text in texts]
        connection.register("hashes", pa.table({"row": range(len(texts)), "hash": hashes}))

        def text(row: int) -> str:
            if row < len(training):
                read.append(training[row])
            return texts[row]

        verdicts = Verdicts(tmp_path, scratch)
        leaks = contaminated(connection, "training", "held_out", text, text, DecontaminationSection(), verdicts)
        assert [leak.row for leak in leaks] == [row for row, text in enumerate(training) if PASSAGE in text]
        verdicts.save()
        return read

    return run


def test_a_pair_is_compared_once_wherever_its_documents_stand(search):
    assert search(TRAINING, HELD_OUT) == [TRAINING[0], TRAINING[2]]
    assert search(TRAINING, HELD_OUT) == []
    assert search(["before all others", *TRAINING], HELD_OUT) == []


def test_other_documents_are_not_known(search):
    search(TRAINING, HELD_OUT)
    assert search([*TRAINING, f"new {PASSAGE}"], HELD_OUT) == [f"new {PASSAGE}"]
    assert search(TRAINING, [f"five {PASSAGE} six"]) == [TRAINING[0], TRAINING[2]]


def test_a_verdict_without_a_passage_is_remembered_too(search, monkeypatch):
    monkeypatch.setattr(decontamination, "_shared", lambda *texts: None)
    monkeypatch.setattr("tests.assets.datasets.test_verdicts.PASSAGE", "in no text")
    assert search(TRAINING, HELD_OUT) == [TRAINING[0], TRAINING[2]]
    assert search(TRAINING, HELD_OUT) == []


def test_a_verdict_that_is_not_recalled_is_forgotten(search):
    search(TRAINING, HELD_OUT)
    search(TRAINING[:2], HELD_OUT)
    assert search(TRAINING, HELD_OUT) == [TRAINING[2]]


@pytest.mark.parametrize("file", ["verdicts.json", "verdicts.parquet"])
def test_damaged_verdicts_count_as_none(search, tmp_path, file):
    search(TRAINING, HELD_OUT)
    damaged = bytearray((tmp_path / file).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / file).write_bytes(damaged)
    assert search(TRAINING, HELD_OUT) == [TRAINING[0], TRAINING[2]]
    assert search(TRAINING, HELD_OUT) == []


def test_many_verdicts_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "WAITING", 3)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    noted = Verdicts(tmp_path, scratch)
    for number in range(8):
        noted.note(str(number), None if number % 2 else PASSAGE)
    noted.save()
    rows_of_file = duckdb.sql(f"SELECT * FROM {Verdicts(tmp_path, scratch).known} ORDER BY key").fetchall()
    assert rows_of_file == [(str(number), None if number % 2 else PASSAGE) for number in range(8)]


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

    def recording(texts: comparison._Texts, row: int) -> str:
        read.append(row)
        return stored(texts, row)

    monkeypatch.setattr(comparison._Texts, "_stored", recording)
    write_file(corpus / "zzz.txt", "something else altogether")
    after = build(recipe, durable)
    assert read == []
    tables = [document_table.path(durable, snapshot.documents["blake3"]) for snapshot in (before, after)]
    assert removed(tables[0]) == removed(tables[1]) != set()
    assert document_step.latest(recipe, durable).result["rows"] == 73


def removed(table: Path) -> set[str]:

    query = f"SELECT name FROM '{table}' WHERE removed = 'contaminated'"
    return {name for (name,) in duckdb.sql(query).fetchall()}
