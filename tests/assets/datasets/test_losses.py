"""What a snapshot lost against its parent is told by rule, by language and by source, with the limit that it breaks."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.snapshots import losses
from slipway.assets.datasets.snapshots.outcomes import Outcome
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data.shards import TextSnapshot, TokenizerRecord
from tests.assets.datasets.corpora import recipe_for

Row = tuple[str, str, int, str | None]
"""Name, language, bytes, and why the document was left out."""


def snapshot(durable: Path, *rows: Row) -> TextSnapshot:
    """A snapshot whose documents table has these rows."""
    name = f"{len(list(durable.rglob('*.parquet'))):064x}"
    names, languages, sizes, removed = zip(*rows, strict=True)
    table = pa.table({"name": names, "language": languages, "bytes": sizes, "removed": pa.array(removed, pa.string())})
    path = document_table.path(durable, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return TextSnapshot("texts", "", {}, {"blake3": name}, TokenizerRecord("", 257, 256), "uint16", {})


def rows_of(folder: str, count: int, language: str = "en", size: int = 10) -> list[Row]:
    return [(f"{folder}/{number}.txt", language, size, None) for number in range(count)]


def left_out(rule: str, count: int) -> list[Row]:
    return [(f"a/{rule}{number}.txt", "en", 10, rule) for number in range(count)]


def outcome_of(check: str, durable: Path, before: list[Row], now: list[Row], **limits: float) -> Outcome:
    recipe: DatasetRecipe = recipe_for(durable, checks=limits)
    parent, current = snapshot(durable, *before), snapshot(durable, *now)
    if check == "rule":
        return losses.removals_are_steady(recipe, current, parent, durable)
    return losses.groups_are_kept(check, recipe, current, parent, durable)


def figures(outcome: Outcome, name: str) -> Any:
    return outcome.metadata[name].value


def test_a_rule_that_begins_to_leave_out_much_is_named_with_its_shares(tmp_path: Path):
    before = [*rows_of("a", 97), *left_out("words_at_least", 3)]
    now = [*rows_of("a", 60), *left_out("words_at_least", 38), *left_out("url", 2)]
    outcome = outcome_of("rule", tmp_path, before, now)
    assert not outcome.passed and outcome.metadata["largest"] == pytest.approx(0.35)
    assert outcome.remedy.startswith(
        "38.0% of the documents are left out by rule words_at_least, 3.0% before: more than"
    )
    assert "checks.removal (0.2)" in outcome.remedy
    assert "| words_at_least | 3.0% | 38.0% | 35.0% |" in figures(outcome, "rules")
    assert outcome_of("rule", tmp_path, before, now, removal=0.4).passed


def test_a_rule_that_no_longer_leaves_out_what_it_did_is_named_too(tmp_path: Path):
    outcome = outcome_of("rule", tmp_path, [*rows_of("a", 60), *left_out("near_duplicate", 40)], rows_of("a", 100))
    assert not outcome.passed and "0.0% of the documents are left out by rule near_duplicate, 40.0%" in outcome.remedy


def test_a_language_that_lost_most_of_its_bytes_is_named_though_the_corpus_grew(tmp_path: Path):
    before = [*rows_of("a", 90), *rows_of("b", 10, "ja")]
    now = [*rows_of("a", 200), *rows_of("b", 4, "ja")]
    outcome = outcome_of("language", tmp_path, before, now)
    assert not outcome.passed and "40 bytes are of language ja, 100 before" in outcome.remedy
    assert "| ja | 100 | 40 | 60.0% |" in figures(outcome, "languages")
    assert outcome_of("language", tmp_path, before, now, language=0.7).passed


def test_fewer_texts_of_no_known_language_are_no_loss(tmp_path: Path):
    before, now = (
        [*rows_of("a", 50), *rows_of("b", 50, "unknown")],
        [*rows_of("a", 50), *rows_of("b", 50, "de")],
    )
    assert outcome_of("language", tmp_path, before, now).passed


def test_a_source_that_vanished_is_named_and_one_that_became_smaller_is_not(tmp_path: Path):
    before = [*rows_of("wiki", 50), *rows_of("forum", 10), *rows_of("news", 40)]
    outcome = outcome_of("source", tmp_path, before, [*rows_of("wiki", 20), *rows_of("news", 80)])
    assert not outcome.passed
    assert outcome.remedy.startswith("0 bytes are of source forum, 100 before: more than checks.source (0.9) allows")
    assert outcome_of(
        "source",
        tmp_path,
        before,
        [*rows_of("wiki", 20), *rows_of("forum", 2), *rows_of("news", 80)],
    ).passed


def test_what_was_a_hundredth_of_the_parent_or_less_may_come_and_go(tmp_path: Path):
    before = [*rows_of("a", 199), *rows_of("b", 1, "la")]
    for group in ("language", "source"):
        assert outcome_of(group, tmp_path, before, rows_of("a", 199)).passed


def test_files_in_no_folder_are_one_source(tmp_path: Path):
    before: list[Row] = [(f"{number}.txt", "en", 10, None) for number in range(10)]
    assert outcome_of("source", tmp_path, before, before[:5]).passed
    outcome = outcome_of("source", tmp_path, before, rows_of("a", 10))
    assert "of source ., 100 before" in outcome.remedy


def test_a_first_snapshot_has_nothing_to_lose(tmp_path: Path):
    first, recipe = snapshot(tmp_path, *rows_of("a", 3)), recipe_for(tmp_path)
    assert losses.removals_are_steady(recipe, first, None, tmp_path).passed
    assert losses.groups_are_kept("source", recipe, first, None, tmp_path).passed
