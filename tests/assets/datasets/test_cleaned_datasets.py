"""Cleaning, end to end: training documents never contain held-out documents, however the dataset grows."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.snapshots.outcomes import table_of
from slipway.assets.datasets.texts import checks, steps
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base.digest import of_bytes
from tests.assets.datasets import builds
from tests.assets.datasets.builds import build, texts_of
from tests.assets.datasets.corpora import recipe_for, write_file
from tests.assets.datasets.test_assets import materialize, metadata_of

VALIDATION = 0.25


def prose(chosen: random.Random, count: int) -> list[str]:
    return [f"w{chosen.randrange(100_000)}" for _ in range(count)]


def split_of(text: str) -> str:
    return builds.split_of(of_bytes(text.encode()), VALIDATION)


def text_in(split: str, chosen: random.Random, count: int = 200) -> str:
    """A text of random words that the split rule puts into `split`."""
    while split_of(text := " ".join(prose(chosen, count))) != split:
        pass
    return text


def near(text: str, split: str, chosen: random.Random) -> str:
    """Nearly the same text (another last word), in `split`."""
    while split_of(changed := text.rpartition(" ")[0] + f" x{chosen.randrange(10**6)}") != split:
        pass
    return changed


def rows_of(recipe: DatasetRecipe, durable: Path) -> dict[str, dict[str, Any]]:
    table = document_table.DocumentTable(**steps.make_documents(recipe, durable).result)
    return {row["name"]: row for row in pq.read_table(document_table.path(durable, table.blake3)).to_pylist()}


def recipe_of(folder: Path, **cleaning: Any) -> DatasetRecipe:
    return recipe_for(folder, validation=VALIDATION, shard_tokens=2000, cleaning=cleaning)


@pytest.fixture
def chosen():
    return random.Random(0)


@pytest.fixture
def corpus(tmp_path, chosen):
    """Texts without anything in common."""
    for number in range(20):
        write_file(tmp_path / "corpus" / f"m{number}.txt", " ".join(prose(chosen, 200)))
    return tmp_path / "corpus"


@pytest.mark.parametrize("first", ["a", "z"])
def test_a_training_document_that_is_nearly_a_validation_document_is_left_out_in_any_order(
    corpus, durable, chosen, first
):
    held_out = text_in("validation", chosen)
    training = near(held_out, "train", chosen)
    write_file(corpus / f"{first}.txt", training)
    write_file(corpus / "n.txt", held_out)
    rows = rows_of(recipe_of(corpus), durable)
    assert rows["n.txt"]["split"] == "validation"
    assert rows[f"{first}.txt"]["removed"] == "near_duplicate_of_validation"
    assert [name for name, row in rows.items() if row["removed"]] == [f"{first}.txt"]
    assert training not in texts_of(build(recipe_of(corpus), durable), durable, "train")


def test_the_first_of_near_duplicate_training_documents_is_kept(corpus, durable, chosen):
    text = text_in("train", chosen)
    write_file(corpus / "a.txt", text)
    for name in ("b.txt", "c.txt"):
        write_file(corpus / name, near(text, "train", chosen))
    rows = rows_of(recipe_of(corpus), durable)
    assert [rows[f"{name}.txt"]["removed"] for name in "abc"] == [None, "near_duplicate", "near_duplicate"]
    assert [rows[f"{name}.txt"]["because"] for name in "abc"] == [None, "a.txt#0", "a.txt#0"]


def test_near_duplicates_are_found_in_whatever_folder_the_platform_keeps_its_documents(tmp_path, corpus, chosen):
    text = text_in("train", chosen)
    write_file(corpus / "a.txt", text)
    write_file(corpus / "b.txt", near(text, "train", chosen))
    rows = rows_of(recipe_of(corpus), tmp_path / 'the owner\'s "home", [*] and {a}' / "durable")
    assert [rows[f"{name}.txt"]["removed"] for name in "ab"] == [None, "near_duplicate"]


def test_near_duplicates_are_kept_when_the_recipe_turns_the_comparison_off(corpus, durable, chosen):
    text = text_in("train", chosen)
    for name in ("a.txt", "b.txt"):
        write_file(corpus / name, near(text, "train", chosen))
    rows = rows_of(recipe_of(corpus, near_duplicates=None), durable)
    assert not any(row["removed"] for row in rows.values())


def test_a_passage_of_a_validation_document_counts_only_if_the_recipe_says_so(corpus, durable, chosen):
    held_out = text_in("validation", chosen)
    leaked = " ".join([text_in("train", chosen), *held_out.split()[50:70], text_in("train", chosen)])
    while split_of(leaked) != "train":
        leaked += " more"
    write_file(corpus / "held_out.txt", held_out)
    write_file(corpus / "leaked.txt", leaked)
    assert rows_of(recipe_of(corpus), durable)["leaked.txt"]["removed"] is None
    rows = rows_of(recipe_of(corpus, decontamination={"validation": True}), durable)
    assert rows["leaked.txt"]["removed"] == "contaminated"
    assert rows["leaked.txt"]["because"].startswith(f"held_out.txt#0: {held_out.split()[50]} ")
    assert (rows["held_out.txt"]["split"], rows["held_out.txt"]["removed"]) == ("validation", None)
    assert sum(row["removed"] is not None for row in rows.values()) == 1


def test_a_training_document_with_a_passage_of_an_evaluation_set_is_contaminated(corpus, tmp_path, durable, chosen):
    questions = [prose(chosen, 40) for _ in range(3)]
    write_file(tmp_path / "questions.jsonl", "".join(f'{{"text": "{" ".join(question)}"}}\n' for question in questions))
    while split_of(leaked := " ".join([*prose(chosen, 100), *questions[1][5:25], *prose(chosen, 100)])) != "train":
        pass
    write_file(corpus / "leaked.txt", leaked)
    against = {"decontamination": {"against": (str(tmp_path / "questions.jsonl"),)}}
    assert rows_of(recipe_of(corpus), durable)["leaked.txt"]["removed"] is None
    rows = rows_of(recipe_of(corpus, **against), durable)
    assert {name for name, row in rows.items() if row["removed"] == "contaminated"} == {"leaked.txt"}
    assert rows["leaked.txt"]["because"] == f"questions.jsonl#1: {' '.join(questions[1][5:18])}"


def test_a_short_item_is_found_in_every_document_that_quotes_it_and_by_the_field_that_the_recipe_names(
    corpus, tmp_path, durable, chosen
):
    question = " ".join(prose(chosen, 9))
    write_file(tmp_path / "set.jsonl", f'{{"question": "{question}", "id": 1}}\n')
    for number in range(12):
        write_file(corpus / f"quotes{number}.txt", " ".join([*prose(chosen, 50), question, *prose(chosen, 50)]))
    named = {"file": str(tmp_path / "set.jsonl"), "fields": ("question",)}
    recipe = recipe_of(corpus, decontamination={"against": (named,)})
    for _ in ("first", "again after a change"):
        rows = rows_of(recipe, durable)
        quoting = [row for name, row in rows.items() if name.startswith("quotes")]
        held_out = [row for row in quoting if row["split"] == "validation"]
        assert {row["because"] for row in quoting if row not in held_out} == {f"set.jsonl#0.question: {question}"}
        assert all(row["removed"] is None for row in rows.values() if row not in quoting or row in held_out)
        write_file(corpus / "another.txt", " ".join(prose(chosen, 90)))
    assert len(held_out) < len(quoting)


def test_a_snapshot_of_which_too_much_is_of_an_evaluation_set_is_refused(corpus, tmp_path, durable, chosen):
    question = " ".join(prose(chosen, 9))
    write_file(tmp_path / "set.txt", question)
    for number in range(12):
        write_file(corpus / f"quotes{number}.txt", " ".join([*prose(chosen, 50), question, *prose(chosen, 50)]))
    recipe = recipe_of(corpus, decontamination={"against": (str(tmp_path / "set.txt"),)})
    snapshot = build(recipe, durable)
    outcome = checks.few_are_contaminated(recipe, table_of(snapshot, durable))
    assert not outcome.passed and outcome.blocks and outcome.metadata["because"] == f"set.txt#0: {question}"


def test_a_mask_moves_no_document_to_another_split(corpus, durable, chosen):
    for number in range(60):
        write_file(corpus / f"mail{number}.txt", " ".join([*prose(chosen, 100), f"user{number}@example.org"]))
    splits = [
        {name: row["split"] for name, row in rows_of(recipe_of(corpus, mask=mask), durable).items()}
        for mask in ((), ("email",))
    ]
    assert splits[0] == splits[1] and set(splits[0].values()) == {"train", "validation"}


def test_another_evaluation_set_is_another_table(corpus, tmp_path, durable, chosen):
    leaked = text_in("train", chosen)
    write_file(corpus / "leaked.txt", leaked)
    write_file(tmp_path / "set.txt", text_in("train", chosen))
    recipe = recipe_of(corpus, decontamination={"against": (str(tmp_path / "set.txt"),)})
    assert rows_of(recipe, durable)["leaked.txt"]["removed"] is None
    write_file(tmp_path / "set.txt", leaked)
    assert rows_of(recipe, durable)["leaked.txt"]["removed"] == "contaminated"


def test_rules_and_masks_show_in_the_table_and_in_the_ui_by_name_and_number(corpus, durable, chosen):
    write_file(corpus / "short.txt", "too short")
    write_file(corpus / "brief.txt", "too brief")
    write_file(corpus / "lorem.txt", "lorem ipsum " + text_in("train", chosen))
    write_file(corpus / "mail.txt", text_in("train", chosen) + " write to jane.doe@company.org or 81.2.69.142")
    recipe = recipe_of(corpus, rules={"words_at_least": 10, "lorem_ipsum_at_most": 0}, mask=("email", "ip"))
    rows = rows_of(recipe, durable)
    assert Counter(row["removed"] for row in rows.values()) == {
        None: 21,
        "words_at_least": 2,
        "lorem_ipsum_at_most": 1,
    }
    assert {name: row["masked"] for name, row in rows.items() if row["masked"]} == {"mail.txt": 2}
    metadata = metadata_of(materialize(recipe, durable), "documents")
    assert metadata["left_out"] == {"words_at_least": 2, "lorem_ipsum_at_most": 1}
    assert metadata["masked"] == 2
    assert "| words_at_least | 2 | brief.txt#0, short.txt#0 |  | too brief" in metadata["samples_left_out"]


@pytest.mark.parametrize("seed", range(3))
def test_added_documents_change_no_split_and_no_near_duplicate_of_a_held_out_document_is_trained_on(
    corpus, durable, seed
):
    chosen = random.Random(seed)
    split_by_hash: dict[str, str] = {}
    for round in range(4):
        for number in range(6):
            name, joining = f"{chosen.choice('az')}{round}-{number}.txt", chosen.choice(["new", "twin", "copy"])
            other = chosen.choice(sorted(corpus.glob("*.txt"))).read_text()
            text = {
                "new": " ".join(prose(chosen, 200)),
                "twin": near(other, chosen.choice(document_table.SPLITS), chosen),
                "copy": other,
            }[joining]
            write_file(corpus / name, text)
        rows = rows_of(recipe_of(corpus), durable)
        remaining = {row["blake3"]: row["split"] for row in rows.values() if row["removed"] is None}
        assert all(split_by_hash.get(blake3, split) == split for blake3, split in remaining.items())
        split_by_hash |= remaining
        assert_apart(corpus, rows)


def assert_apart(corpus: Path, rows: dict[str, dict[str, Any]]) -> None:
    """No training document begins as a document whose hash puts it into validation, kept or not."""
    trained_on, held_out = set(), set()
    for name, row in rows.items():
        prefix = " ".join((corpus / name).read_text().split()[:100])
        if builds.split_of(row["blake3"], VALIDATION) == "validation":
            held_out.add(prefix)
        elif row["removed"] is None:
            trained_on.add(prefix)
    assert trained_on and held_out
    assert not trained_on & held_out
