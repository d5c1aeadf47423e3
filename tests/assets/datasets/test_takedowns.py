"""Takedowns: what is taken down stays out of every later build, from whichever file and whatever the source says."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets import takedown_search
from slipway.assets.datasets.documents import document_step, document_table, takedowns
from slipway.assets.datasets.documents.takedowns import Takedown
from slipway.assets.datasets.images import steps as image_steps
from slipway.assets.datasets.images.documents import IMAGE_DOCUMENTS
from slipway.assets.datasets.snapshots.outcomes import table_of
from slipway.assets.datasets.takedown_search import MatchingDocument, TakedownSelection
from slipway.assets.datasets.texts import steps
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data.shards import TextSnapshot
from tests.assets.datasets import digits
from tests.assets.datasets.builds import build, content, hold_none_out, rebuild, texts_of
from tests.assets.datasets.corpora import recipe_for, write_file

READING = {"metadata": {"url": "url"}}
BAD, GOOD = "https://a.example/bad", "https://a.example/good"
SECRET = "a text that its author does not want to be in any corpus"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Ten documents of a site and one that has to go, beside files of plain text."""
    folder = tmp_path / "corpus"
    lines = [{"text": f"page {index} " * 30, "url": f"{GOOD}/{index}"} for index in range(10)]
    write_file(folder / "pages.jsonl", "".join(map(line, [*lines, {"text": SECRET, "url": BAD}])))
    for number in range(10):
        write_file(folder / f"note{number}.txt", f"note {number} " * 30)
    return folder


def line(document: dict[str, str]) -> str:
    return json.dumps(document) + "\n"


def recipe(corpus: Path, **sections: Any) -> DatasetRecipe:
    return recipe_for(corpus, **({"reading": READING} | sections))


def selection(url: str = "", *documents: str, under: tuple[str, ...] = ()) -> TakedownSelection:
    return TakedownSelection((url,) if url else (), under, documents)


def matching(durable: Path, url: str = "", *documents: str, under: tuple[str, ...] = ()) -> list[MatchingDocument]:
    return takedown_search.matching_documents(
        durable, "small-corpus", TEXT_DOCUMENTS, selection(url, *documents, under=under)
    )


def take_down(durable: Path, url: str = "", *documents: str) -> None:
    matches = matching(durable, url, *documents)
    identities = tuple(match.identity for match in matches)
    takedowns.add(durable, [Takedown(url, documents, identities, "asked for", "test", 1.0)], "small-corpus")


def left_out(recipe: DatasetRecipe, durable: Path) -> dict[str, str]:
    """Why each document is left out of the table of the present source, by file and number."""
    blake3 = steps.make_documents(recipe, durable).result["blake3"]
    rows = pq.read_table(document_table.path(durable, blake3)).to_pylist()
    return {f"{row['name']}#{row['number']}": row["removed"] for row in rows if row["removed"]}


def everything(snapshot: TextSnapshot, durable: Path) -> list[str]:
    return [text for split in ("train", "validation") for text in texts_of(snapshot, durable, split)]


def test_a_url_is_taken_down_and_the_next_snapshot_does_not_have_it(corpus: Path, durable: Path):
    before = build(recipe(corpus), durable)
    assert SECRET in everything(before, durable)
    take_down(durable, BAD)
    after = build(recipe(corpus), durable)
    assert left_out(recipe(corpus), durable) == {"pages.jsonl#10": "takedown"}
    assert sorted(everything(after, durable)) == sorted(set(everything(before, durable)) - {SECRET})
    assert SECRET in everything(before, durable), "old snapshots do not change"


def test_a_file_that_was_taken_down_as_one_document_stays_out_when_it_is_divided(corpus: Path, durable: Path):
    for name in ("a.txt", "b.txt"):
        write_file(corpus / name, "".join(f"line {number} of the file {name}\n" for number in range(200)))
    build(recipe(corpus), durable)
    take_down(durable, "", "a.txt")
    divided = recipe(corpus, reading=READING | {"whole_megabytes": 0.004})
    build(divided, durable)
    out = {name for name, why in left_out(divided, durable).items() if why == "takedown"}
    assert len(out) > 10 and out == {match.name for match in matching(durable, "", "a.txt")}
    assert len(matching(durable, "", "b.txt")) > 10


def test_it_stays_out_when_it_comes_back_from_another_file_or_with_another_text(corpus: Path, durable: Path):
    steps.make_documents(recipe(corpus), durable)
    take_down(durable, BAD)
    write_file(corpus / "mirror.txt", SECRET)
    write_file(corpus / "again.jsonl", line({"text": "what the page says now", "url": BAD}))
    assert left_out(recipe(corpus), durable) == dict.fromkeys(
        ("again.jsonl#0", "mirror.txt#0", "pages.jsonl#10"), "takedown"
    )


def test_a_text_is_known_before_rules_and_masks(corpus: Path, durable: Path):
    steps.make_documents(recipe(corpus), durable)
    take_down(durable, BAD)
    cleaning = {"near_duplicates": None, "decontamination": None, "patterns": {"author": "author"}}
    assert left_out(recipe(corpus, cleaning=cleaning), durable) == {"pages.jsonl#10": "takedown"}


def test_documents_are_taken_down_by_name_one_or_all_of_a_file(corpus: Path, durable: Path):
    steps.make_documents(recipe(corpus), durable)
    take_down(durable, "", "pages.jsonl#3", "note1.txt")
    assert set(left_out(recipe(corpus), durable)) == {"pages.jsonl#3", "note1.txt#0"}
    assert len(matching(durable, "", "pages.jsonl")) == 11
    assert matching(durable, "https://a.example/none", "none.txt") == []


def test_nothing_is_read_again_and_the_bytes_are_those_of_a_build_from_nothing(corpus: Path, durable: Path):
    build(recipe(corpus), durable)
    segments = sorted((durable / "segments").iterdir())
    take_down(durable, BAD)
    after = build(recipe(corpus), durable)
    assert sorted((durable / "segments").iterdir()) == segments
    other = durable.parent / "elsewhere" / "durable"
    for takedown in takedowns.read(durable, "small-corpus"):
        takedowns.add(other, [takedown], "small-corpus")
    assert rebuild(recipe(corpus), other, durable).splits == after.splits
    assert set(content(other)) <= set(content(durable))


def test_a_takedown_makes_the_dataset_out_of_date(corpus: Path, durable: Path):
    steps.make_documents(recipe(corpus), durable)
    assert document_step.recall(recipe(corpus), TEXT_DOCUMENTS, durable) is not None
    take_down(durable, BAD)
    assert document_step.recall(recipe(corpus), TEXT_DOCUMENTS, durable) is None


def test_the_same_takedown_is_noted_once(corpus: Path, durable: Path):
    steps.make_documents(recipe(corpus), durable)
    take_down(durable, BAD)
    take_down(durable, BAD)
    assert len(takedowns.read(durable, "small-corpus")) == 1


def test_a_damaged_journal_refuses_the_build(corpus: Path, durable: Path):
    steps.make_documents(recipe(corpus), durable)
    take_down(durable, BAD)
    path = durable / "datasets" / "small-corpus" / "takedowns.journal"
    path.write_bytes(path.read_bytes().replace(b"bad", b"god"))
    with pytest.raises(ValueError, match=r"takedowns\.journal: found 1 damaged lines"):
        steps.make_documents(recipe(corpus), durable)


def test_what_is_nearly_equal_is_found_wherever_it_stands_in_the_cluster(corpus: Path, durable: Path):
    text = " ".join(f"w{index}" for index in range(300))
    for name in "abc":
        write_file(corpus / f"{name}.txt", f"{text} {name}")
    hold_none_out(durable)
    snapshot = build(recipe(corpus, cleaning={"decontamination": None}, split={"validation": 1e-9}), durable)
    for name in "abc":
        matches = takedown_search.nearly_equal(durable, snapshot.sha256, [f"{name}.txt#0"])
        assert matches == [f"{other}.txt#0" for other in "abc" if other != name]
    assert takedown_search.nearly_equal(durable, snapshot.sha256, ["note1.txt#0"]) == []


def test_all_snapshots_that_keep_a_document_are_found_of_any_dataset(corpus: Path, durable: Path):
    first = build(recipe(corpus), durable)
    other = build(recipe(corpus).model_copy(update={"name": "other"}), durable)
    documents = matching(durable, BAD)
    take_down(durable, BAD)
    without = build(recipe(corpus), durable)
    assert takedown_search.snapshots_with(durable, documents, selection(BAD)) == {
        first.sha256: "small-corpus",
        other.sha256: "other",
    }
    assert takedown_search.were_in(durable, "small-corpus", selection(BAD)) == {BAD}
    assert takedown_search.were_in(durable, "small-corpus", selection(f"{BAD}/")) == set()
    there, gone = "a.example/bad", "https://b.example/"
    assert takedown_search.were_in(durable, "small-corpus", selection(under=(there, gone))) == {there}
    table_of(without, durable).unlink()
    assert without.sha256 in takedown_search.snapshots_with(durable, documents, selection(BAD)), (
        "what it has is not known"
    )


def test_a_dataset_that_was_never_read_is_refused(durable: Path):
    with pytest.raises(ValueError, match="slipway data build small-corpus"):
        matching(durable, BAD)


def test_pictures_are_taken_down_by_their_pixels(tmp_path: Path, durable: Path):
    pictures = digits.recipe_for(digits.make_digits(tmp_path / "digits"))
    documents = image_steps.make_documents(pictures, durable)
    (document,) = takedown_search.matching_documents(
        durable, pictures.name, IMAGE_DOCUMENTS, selection("", "digits-0.parquet#0")
    )
    takedowns.add(durable, [Takedown("", (), (document.identity,), "asked for", "test", 1.0)], pictures.name)
    after = image_steps.make_documents(pictures, durable)
    assert (
        after.result["rows"] == documents.result["rows"]
        and after.result["kept_rows"] == documents.result["kept_rows"] - 1
    )


def noted(durable: Path, *urls: str) -> list[Takedown]:
    added = [Takedown(url, (), (), "asked", "test", float(number)) for number, url in enumerate(urls)]
    for takedown in added:
        takedowns.add(durable, [takedown], "small-corpus")
    return added


def test_a_restore_brings_back_what_a_damaged_line_took_down(durable: Path, tmp_path: Path):
    added = noted(durable, "one", "two", "three")
    path = takedowns.path(durable, "small-corpus")
    backup = Path(shutil.copyfile(path, tmp_path / "kept.journal"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"two", b"2wo") + lines[2])
    with pytest.raises(ValueError, match=r"found 1 damaged lines, expected none: .* slipway restore"):
        takedowns.read(durable, "small-corpus")
    assert takedowns.restore(durable, "small-corpus", backup) == 1
    assert takedowns.read(durable, "small-corpus") == added


def test_a_damaged_line_that_the_backup_does_not_explain_still_refuses_every_build(durable: Path, tmp_path: Path):
    noted(durable, "one")
    path = takedowns.path(durable, "small-corpus")
    backup = Path(shutil.copyfile(path, tmp_path / "kept.journal"))
    noted(durable, "one", "two")
    path.write_bytes(path.read_bytes().replace(b"two", b"2wo"))
    assert takedowns.restore(durable, "small-corpus", backup) == 0
    with pytest.raises(ValueError, match="damaged"):
        takedowns.read(durable, "small-corpus")
