"""Extraction: only new and changed files are read, and their grouping changes nothing."""

import pyarrow.parquet as pq
import pytest

from assets.datasets.building.build_log import quiet
from assets.datasets.building.workshop import workshop
from assets.datasets.documents import extraction, extracts
from assets.datasets.reading import sources
from assets.datasets.texts.documents import TEXT_DOCUMENTS
from tests.assets.datasets.corpora import recipe_for, write_file

pytestmark = pytest.mark.pure


def extract(recipe, durable) -> extracts.Extracts:
    with workshop(durable, recipe.name) as shop:
        return extraction.extract(recipe, TEXT_DOCUMENTS, sources.list_source(recipe), durable, shop, quiet)


def texts(recipe, durable) -> list[str]:
    """All texts that the newest index leads to."""
    index = extracts.newest(durable, recipe.name)
    live = {(row["name"], row["segment"]) for row in pq.read_table(index).to_pylist()}
    rows = [
        row | {"segment": path.stem}
        for path in extracts.segments(index, durable)
        for row in pq.read_table(path).to_pylist()
    ]
    return sorted(row["text"] for row in rows if (row["file"], row["segment"]) in live)


def test_a_second_extraction_reads_nothing(corpus, durable):
    assert extract(recipe_for(corpus), durable).read == 60
    assert extract(recipe_for(corpus), durable).read == 0


def test_only_new_and_changed_files_are_read(corpus, durable):
    before = extract(recipe_for(corpus), durable)
    write_file(corpus / "new.py", "new")
    write_file(corpus / "package0" / "module0.py", "changed, and of another length")
    after = extract(recipe_for(corpus), durable)
    assert after.read == 2
    assert after.files == 61
    assert after.digest != before.digest
    assert {"new", "changed, and of another length"} <= set(texts(recipe_for(corpus), durable))


def test_a_file_that_is_gone_is_forgotten_without_reading(corpus, durable):
    extract(recipe_for(corpus), durable)
    (corpus / "package0" / "module0.py").unlink()
    after = extract(recipe_for(corpus), durable)
    assert (after.read, after.files, len(texts(recipe_for(corpus), durable))) == (0, 59, 59)


def test_a_touched_file_is_read_and_found_to_be_the_same(corpus, durable):
    before = extract(recipe_for(corpus), durable)
    (corpus / "package0" / "module0.py").touch()
    after = extract(recipe_for(corpus), durable)
    assert after.read == 1
    assert after.digest == before.digest


def test_a_file_that_changed_a_moment_ago_is_read_again(corpus, durable, monkeypatch):
    monkeypatch.setattr(sources, "SETTLED_SECONDS", 3600.0)
    extract(recipe_for(corpus), durable)
    assert extract(recipe_for(corpus), durable).read == 60


def test_other_cleaning_reads_everything(corpus, durable):
    extract(recipe_for(corpus), durable)
    cleaning = {"normalise": False, "near_duplicates": None, "decontamination": None}
    assert extract(recipe_for(corpus, cleaning=cleaning), durable).read == 60


def test_a_lost_segment_is_made_again(corpus, durable):
    extract(recipe_for(corpus), durable)
    before = texts(recipe_for(corpus), durable)
    next((durable / "segments").iterdir()).unlink()
    assert extract(recipe_for(corpus), durable).read == 60
    assert texts(recipe_for(corpus), durable) == before


@pytest.mark.parametrize("unit_files", [1, 7, 1000])
def test_the_grouping_of_files_changes_no_text(corpus, durable, monkeypatch, unit_files):
    monkeypatch.setattr(extraction, "UNIT_FILES", unit_files)
    extract(recipe_for(corpus), durable)
    assert texts(recipe_for(corpus), durable) == sorted(path.read_text() for path in corpus.rglob("*.py"))


def test_finished_segments_of_an_attempt_that_broke_off_are_found_again(corpus, durable, monkeypatch):
    monkeypatch.setattr(extraction, "UNIT_FILES", 20)
    listing = sources.list_source(recipe_for(corpus))
    last = corpus / listing.files[-1].name
    content = last.read_bytes()
    with workshop(durable, "small-corpus") as shop:
        last.write_bytes(b"changed under the reader")
        with pytest.raises(ValueError, match="changed since the corpus was listed"):
            extraction.extract(recipe_for(corpus), TEXT_DOCUMENTS, listing, durable, shop, quiet)
    finished = {path.name: path.stat().st_mtime_ns for path in (durable / "segments").iterdir()}
    assert len(finished) == 2
    last.write_bytes(content)
    extract(recipe_for(corpus), durable)
    assert finished.items() <= {path.name: path.stat().st_mtime_ns for path in (durable / "segments").iterdir()}.items()
