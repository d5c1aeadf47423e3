"""Extraction: only new and changed files are read, and their grouping changes nothing."""

import os
import tracemalloc

import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets.building.build import begin_build
from slipway.assets.datasets.building.build_log import quiet
from slipway.assets.datasets.building.scratch_dir import scratch_dir
from slipway.assets.datasets.documents import extraction, extracts
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.reading.sources import SourceFile
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.trainer.base import atomic, digest
from tests.assets.datasets.corpora import recipe_for, write_file

pytestmark = pytest.mark.pure


def extract(recipe, durable) -> extracts.Extracts:
    with begin_build(recipe, TEXT_DOCUMENTS, durable, quiet) as build:
        return extraction.extract(build, sources.list_source(recipe))


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
    cleaning = {"normalize": False, "near_duplicates": None, "decontamination": None}
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


@pytest.mark.parametrize("files", [1, 300, 1500, 5000])
def test_some_workers_get_about_the_same_to_read_and_none_too_much(files: int):
    mega = 1 << 20
    units = list(extraction.units_of([SourceFile(f"{n:04}", mega, "1", True) for n in range(files)], files * mega))
    assert [file.name for unit in units for file in unit] == [f"{n:04}" for n in range(files)]
    sizes = [len(unit) for unit in units]
    assert min(sizes[:-1], default=8) >= 8 and max(sizes) <= min(32, max(8, files // 32))


def test_a_build_of_a_file_more_reads_mostly_the_same_units():
    files = [SourceFile(f"{n:04}", 1 << 20, "1", True) for n in range(701)]
    before, after = (list(extraction.units_of(files[:count], count << 20)) for count in (700, 701))
    assert before[:-1] == after[: len(before) - 1]


def test_finished_segments_of_an_attempt_that_broke_off_are_found_again(corpus, durable, monkeypatch):
    monkeypatch.setattr(extraction, "UNIT_FILES", 20)
    listing = sources.list_source(recipe_for(corpus))
    last = corpus / list(listing.files)[-1].name
    content = last.read_bytes()
    with begin_build(recipe_for(corpus), TEXT_DOCUMENTS, durable, quiet) as build:
        last.unlink()
        last.symlink_to(last)  # which no reason of a file explains
        with pytest.raises(OSError, match="symbolic links"):
            extraction.extract(build, listing)
    finished = {path.name: path.stat().st_ino for path in (durable / "segments").iterdir()}
    assert len(finished) == 2
    last.unlink()
    last.write_bytes(content)
    extract(recipe_for(corpus), durable)
    assert finished.items() <= {path.name: path.stat().st_ino for path in (durable / "segments").iterdir()}.items()


def unread(recipe, durable) -> dict[str, str]:
    """The files that could not be read, with the reason."""
    rows = [row for path in extracts.segments(extracts.newest(durable, recipe.name), durable) for row in rows_of(path)]
    return {row["file"]: row["removed"] for row in rows if row["removed"]}


def rows_of(path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = pq.read_table(path, columns=["file", "removed"]).to_pylist()
    return rows


def test_files_that_cannot_be_read_now_are_quarantined_and_read_by_the_next_build(corpus, durable):
    recipe, listing = recipe_for(corpus), sources.list_source(recipe_for(corpus))
    gone, changed = (corpus / list(listing.files)[index].name for index in (3, 40))
    content = gone.read_bytes()
    gone.unlink()
    changed.write_text("changed since it was listed")
    with begin_build(recipe, TEXT_DOCUMENTS, durable, quiet) as build:
        extraction.extract(build, listing)
    assert unread(recipe, durable) == {
        list(listing.files)[3].name: "unreadable: gone since it was listed",
        list(listing.files)[40].name: "unreadable: changed while it was read",
    }
    gone.write_bytes(content)
    assert extract(recipe, durable).read == 2
    assert "changed since it was listed" in texts(recipe, durable) and content.decode() in texts(recipe, durable)


def test_of_a_file_that_changes_while_it_is_read_no_document_is_kept(corpus, durable, monkeypatch):
    recipe = recipe_for(corpus)
    write_file(corpus / "lines.jsonl", "".join(f'{{"text": "line {number}"}}\n' for number in range(50_000)))
    row_of, done = extraction._Rows.append, list[bool]()

    def appending(rows, row):
        if row["file"] == "lines.jsonl" and not done:
            done.append(True)
            with (corpus / "lines.jsonl").open("a") as file:
                file.write('{"text": "written while it is read"}\n')
        row_of(rows, row)

    monkeypatch.setattr(extraction._Rows, "append", appending)
    extract(recipe, durable)
    assert unread(recipe, durable) == {"lines.jsonl": "unreadable: changed while it was read"}
    assert not any(text and text.startswith("line ") for text in texts_or_none(recipe, durable))
    assert extract(recipe, durable).read == 1
    assert "written while it is read" in texts(recipe, durable)


def texts_or_none(recipe, durable) -> list[str | None]:
    paths = extracts.segments(extracts.newest(durable, recipe.name), durable)
    return [text for path in paths for text in pq.read_table(path, columns=["text"])["text"].to_pylist()]


def test_a_copy_that_keeps_the_time_of_modification_is_read(corpus, durable):
    first, second = corpus / "package0" / "module0.py", corpus / "package0" / "module3.py"
    second.write_bytes(first.read_bytes()[::-1])
    os.utime(second, (1, 1))
    recipe = recipe_for(corpus)
    extract(recipe, durable)
    second.write_bytes(first.read_bytes())
    os.utime(second, (1, 1))
    assert extract(recipe, durable).read == 1


def test_files_that_are_known_are_not_in_memory(durable, monkeypatch):
    monkeypatch.setattr(extracts, "ROWS_AT_ONCE", 100)
    write_file(extracts.segment_path(durable, "a" * 64), "")
    files = [sources.SourceFile(f"{number:06}", number, f"{number}-2-3", True) for number in range(3000)]
    with scratch_dir(durable, "corpus") as scratch:
        rows = [(file.name, file.version, file.bytes, f"{file.bytes:064}", "a" * 64) for file in files]
        extracts.write_index(durable, "corpus", "key", iter(rows), scratch)
    known = extracts.KnownFiles(durable, "corpus", "key")
    assert [row for _, row in known.of(files)] == rows  # and what is imported at the first time does not count

    def peak(count: int) -> int:
        tracemalloc.start()
        matched = sum(row is not None for _, row in known.of(files[:count]))
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert matched == count
        return peak_bytes

    assert peak(3000) - peak(300) < 50 * 2700  # bytes; a row in memory takes 600


def test_a_listing_is_compared_with_an_index_name_by_name(durable):
    write_file(extracts.segment_path(durable, "there"), "")
    rows = [("a", "1", 1, "x", "there"), ("b", "1", 1, "x", "gone"), ("c", "1", 1, "x", "there")]
    rows += [("e", "", 1, "x", "there"), ("é", "1", 1, "x", "there")]
    with scratch_dir(durable, "corpus") as scratch:
        extracts.write_index(durable, "corpus", "key", iter(rows), scratch)
    files = [sources.SourceFile(name, 1, "1", True) for name in ("a", "aa", "b", "c", "e", "é", "🙂")]
    known = {file.name for file, row in extracts.KnownFiles(durable, "corpus", "key").of(files) if row}
    assert known == {"a", "c", "é"}
    assert list(extracts.KnownFiles(durable, "corpus", "another")) == []


def test_of_an_index_with_a_flipped_bit_no_file_is_known(durable):
    write_file(extracts.segment_path(durable, "there"), "")
    with scratch_dir(durable, "corpus") as scratch:
        index = extracts.write_index(durable, "corpus", "key", iter([("a", "1", 1, "x", "there")]), scratch)
    assert len(list(extracts.KnownFiles(durable, "corpus", "key"))) == 1
    data = bytearray(index.read_bytes())
    data[4] ^= 1
    index.chmod(0o644)
    index.write_bytes(data)
    assert list(extracts.KnownFiles(durable, "corpus", "key")) == []


def test_the_digest_of_files_is_that_of_their_canonical_json():
    files = [("a", "0" * 64), ("ä/b", "1" * 64)]
    for some in ([], files[:1], files):
        assert extracts.digest_of(iter(some)) == digest.of_bytes(atomic.canonical_json(some))


def test_an_index_is_written_and_hashed_a_batch_at_a_time(durable, monkeypatch):
    monkeypatch.setattr(extracts, "ROWS_AT_ONCE", 100)
    rows = [(f"{number:06}", "1-2-3", number, f"{number:064}", "a" * 64) for number in range(2000)]

    def write(count: int) -> None:
        with scratch_dir(durable, "corpus") as scratch:
            extracts.write_index(durable, "corpus", "key", iter(rows[:count]), scratch)
        extracts.digest_of((name, blake3) for name, _, _, blake3, _ in rows[:count])

    def peak(count: int) -> int:
        tracemalloc.start()
        write(count)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak_bytes

    write(100)  # what is imported at the first time does not count
    assert peak(2000) < 3 * peak(200)
    assert [tuple(row.values()) for row in pq.read_table(extracts.newest(durable, "corpus")).to_pylist()] == rows[:200]
