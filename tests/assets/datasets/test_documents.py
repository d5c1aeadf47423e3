"""The documents table: the outcome of every document, and a split that never changes."""

import dataclasses
import gzip
import json
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.images import documents as image_documents
from slipway.assets.datasets.texts import documents as text_documents
from slipway.assets.datasets.texts import steps
from tests.assets.datasets import builds
from tests.assets.datasets.builds import strays
from tests.assets.datasets.corpora import make_corpus, recipe_for, write_file

pytestmark = pytest.mark.pure


def rows_of(recipe, durable) -> list[dict[str, Any]]:
    table = document_table.DocumentTable(**steps.make_documents(recipe, durable).result)
    return list(pq.read_table(document_table.path(durable, table.blake3)).to_pylist())


def test_a_row_has_the_facts_of_its_document(tmp_path, durable):
    write_file(tmp_path / "corpus" / "package" / "module.py", "λ = 1\r\n")
    [row] = rows_of(recipe_for(tmp_path / "corpus", validation=1e-9), durable)
    assert row == {
        "name": "package/module.py",
        "number": 0,
        "bytes": 7,
        "blake3": blake3("λ = 1\n".encode()).hexdigest(),
        "language": "python",
        **{"url": None, "license": None, "date": None},
        "package": "package",
        "masked": 0,
        "split": "train",
        "removed": None,
        "because": None,
    }


def test_the_table_is_named_by_its_content_and_is_the_same_when_made_again(corpus, tmp_path):
    results = [steps.make_documents(recipe_for(corpus), tmp_path / folder).result for folder in ("one", "two")]
    assert results[0] == results[1]
    data = document_table.path(tmp_path / "one", results[0]["blake3"]).read_bytes()
    assert blake3(data).hexdigest() == results[0]["blake3"]
    assert data == document_table.path(tmp_path / "two", results[0]["blake3"]).read_bytes()


def test_a_table_has_the_same_bytes_for_any_number_of_threads(tmp_path):
    """duckdb gives rows to its threads by the hundred thousand."""
    schema = text_documents.SCHEMA
    columns = ", ".join(f"(row % 7)::VARCHAR AS {name}" for name in schema.names if name not in ("removed", "split"))
    contents = set()
    for threads in (1, 2, 3):
        with duckdb.connect() as connection:
            connection.execute(f"SET threads = {threads}; SET preserve_insertion_order = false")
            connection.execute(f"""
                CREATE TABLE live AS SELECT row, {columns}, if(row % 5 = 0, 'a rule', NULL) AS removed, 'train' AS split
                FROM range(140_000) t(row)
            """)
            assert document_table.write_rows(connection, schema, tmp_path / "table") == (140_000, 112_000)
        contents.add((tmp_path / "table").read_bytes())
    assert len(contents) == 1


def test_rows_are_in_the_order_of_names_and_numbers(tmp_path, durable):
    write_file(tmp_path / "corpus" / "b.jsonl", "".join(f'{{"text": "line {number}"}}\n' for number in range(12)))
    write_file(tmp_path / "corpus" / "a.txt", "first")
    ordered = [(row["name"], row["number"]) for row in rows_of(recipe_for(tmp_path / "corpus"), durable)]
    assert ordered == [("a.txt", 0), *(("b.jsonl", number) for number in range(12))]


def test_the_first_of_equal_texts_is_kept(tmp_path, durable):
    for name in ("c.py", "a.py", "b.py"):
        write_file(tmp_path / "corpus" / name, "the same")
    removals = {row["name"]: row["removed"] for row in rows_of(recipe_for(tmp_path / "corpus"), durable)}
    assert removals == {"a.py": None, "b.py": "exact_duplicate", "c.py": "exact_duplicate"}


def test_texts_that_are_equal_once_cleaned_are_equal(tmp_path, durable):
    write_file(tmp_path / "corpus" / "a.txt", "caf\u00e9\n")
    write_file(tmp_path / "corpus" / "b.txt", "cafe\u0301\r\n")
    assert [row["removed"] for row in rows_of(recipe_for(tmp_path / "corpus"), durable)] == [None, "exact_duplicate"]


def test_about_the_wanted_share_is_held_out(tmp_path, durable):
    splits = [row["split"] for row in rows_of(recipe_for(make_corpus(tmp_path / "corpus", files=400)), durable)]
    assert 0.18 < splits.count("validation") / 400 < 0.32


def test_the_validation_split_never_moves(corpus, durable):
    before = {row["blake3"]: row["split"] for row in rows_of(recipe_for(corpus), durable)}
    for index in range(0, 60, 7):
        (corpus / f"package{index % 3}" / f"module{index}.py").unlink()
    (corpus / "package1" / "module1.py").rename(corpus / "renamed.py")
    make_corpus(corpus / "more", files=90)
    after = {row["blake3"]: row["split"] for row in rows_of(recipe_for(corpus), durable) if not row["removed"]}
    common = before.keys() & after.keys()
    assert len(common) >= 50
    assert {name: before[name] for name in common} == {name: after[name] for name in common}


@given(text=st.binary(), share=st.floats(0, 1), larger=st.floats(0, 1))
def test_a_larger_share_only_adds_to_validation(text, share, larger):
    share, larger = sorted((share, larger))
    digest = blake3(text).hexdigest()
    if builds.split_of(digest, share) == "validation":
        assert builds.split_of(digest, larger) == "validation" or larger == 1


def test_an_unreadable_document_is_set_aside_with_its_reason(tmp_path, durable):
    write_file(tmp_path / "corpus" / "a.txt", "good")
    (tmp_path / "corpus" / "b.txt").write_bytes(b"\xfe\xfe bad")
    recipe = recipe_for(tmp_path / "corpus", reading={"quarantine": 0.5})
    removals = {row["name"]: row["removed"] for row in rows_of(recipe, durable)}
    assert removals == {"a.txt": None, "b.txt": "unreadable: not UTF-8"}


def test_more_unreadable_documents_than_allowed_fail_with_names_and_reasons(tmp_path, durable):
    write_file(tmp_path / "corpus" / "a.txt", "good")
    (tmp_path / "corpus" / "b.txt").write_bytes(b"\xfe\xfe bad")
    with pytest.raises(ValueError) as error:
        steps.make_documents(recipe_for(tmp_path / "corpus"), durable)
    assert str(error.value) == (
        "dataset small-corpus: 1 of 2 documents cannot be read, 50.0%, expected at most 1.0% (reading.quarantine): "
        "not UTF-8 (1, such as b.txt: name its encoding in reading.encoding); "
        f"all of them: {durable / 'datasets' / 'small-corpus' / 'unreadable.jsonl'}"
    )
    assert not (durable / "documents").exists()
    assert strays(durable) == []


def test_all_that_cannot_be_read_is_listed_until_a_build_goes_on_without_it(tmp_path, durable):
    for name in ("b.txt", "c.txt"):
        (tmp_path / "corpus").mkdir(exist_ok=True)
        (tmp_path / "corpus" / name).write_bytes(b"\xfe\xfe bad")
    write_file(tmp_path / "corpus" / "a.jsonl", '{"text": "good"}\n{"text": bad}\n')
    with pytest.raises(ValueError, match=r"unreadable.jsonl"):
        steps.make_documents(recipe_for(tmp_path / "corpus"), durable)
    listed = durable / "datasets" / "small-corpus" / "unreadable.jsonl"
    assert [json.loads(line) for line in listed.read_text().splitlines()] == [
        {"name": "a.jsonl", "number": 1, "reason": "malformed JSON"},
        {"name": "b.txt", "number": 0, "reason": "not UTF-8"},
        {"name": "c.txt", "number": 0, "reason": "not UTF-8"},
    ]
    steps.make_documents(recipe_for(tmp_path / "corpus", reading={"quarantine": 0.9}), durable)
    assert not listed.exists()


def test_a_file_that_breaks_off_is_counted_among_files_however_many_documents_others_have(tmp_path, durable):
    lines = [f'{{"text": "line {number} of {part}"}}\n' for part in range(4) for number in range(500)]
    for part in range(4):
        write_file(tmp_path / "corpus" / f"{part}.jsonl", "".join(lines[part * 500 : part * 500 + 500]))
    packed = gzip.compress("".join(f'{{"text": "more {line}"}}\n' for line in range(500)).encode())
    (tmp_path / "corpus" / "5.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    message = (
        "1 of 5 files break off, and the rest of them is lost, 20.0%, expected at most 1.0% .*: truncated .*5.jsonl.gz"
    )
    with pytest.raises(ValueError, match=message):
        steps.make_documents(recipe_for(tmp_path / "corpus"), durable)
    steps.make_documents(recipe_for(tmp_path / "corpus", reading={"quarantine": 0.2}), durable)


def test_a_description_of_the_table_is_plain_values(corpus, durable):
    table = document_table.DocumentTable(**steps.make_documents(recipe_for(corpus), durable).result)
    assert (table.rows, table.kept_rows) == (60, 60)
    assert document_table.DocumentTable(**dataclasses.asdict(table)) == table


@pytest.mark.parametrize("documents", [text_documents, image_documents])
def test_every_column_is_described(documents):
    assert list(documents.COLUMNS) == documents.SCHEMA.names
