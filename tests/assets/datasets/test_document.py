"""What a file says of a document: its URL, its licence and its date."""

import datetime
import json
from pathlib import Path

import pytest

from slipway.assets.datasets.reading import readers
from slipway.assets.datasets.reading.document import LONGEST_VALUE, NOTHING, About, Text
from slipway.recipes.dataset import MetadataSection, ReadingSection
from tests.assets.datasets.corpora import recipe_for
from tests.assets.datasets.test_cleaned_datasets import rows_of
from tests.assets.datasets.test_readers import parquet

READING = ReadingSection(metadata=MetadataSection(url="source.url", license="license", date="date"))
ORIGIN = About("http://a.example/1", "MIT", "2026-01-02")


def about_of(name: str, data: bytes, folder: Path, reading: ReadingSection = READING) -> list[About]:
    (folder / name).write_bytes(data)
    with (folder / name).open("rb") as stream:
        return [document.about for document in readers.read(name, stream, reading) if isinstance(document, Text)]


def line(text: str = "text", url: object = ORIGIN.url, **fields: object) -> str:
    origin = {"license": ORIGIN.license, "date": ORIGIN.date}
    return json.dumps({"text": text, "source": {"url": url}} | origin | fields)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_fields_of_an_object_say_where_a_document_comes_from(tmp_path: Path, name: str):
    rest = '{"text": "another"}'
    data = f"{line()}\n{rest}\n" if name == "a.jsonl" else f"[{line()}, {rest}]"
    assert about_of(name, data.encode(), tmp_path) == [ORIGIN, NOTHING]


def test_columns_of_a_table_do_so(tmp_path: Path):
    data = f"source.url,text,date,license\n{ORIGIN.url},one,{ORIGIN.date},MIT\n,two\n"
    assert about_of("a.csv", data.encode(), tmp_path) == [ORIGIN, NOTHING]


def test_columns_of_parquet_do_so_whatever_their_type(tmp_path: Path):
    day = datetime.date.fromisoformat(ORIGIN.date)
    columns = {"text": ["one", "two"], "source": [{"url": ORIGIN.url}] * 2, "license": [["MIT", "BSD"]] * 2}
    expected = ORIGIN._replace(license="MIT, BSD")
    assert about_of("a.parquet", parquet(columns | {"date": [day] * 2}), tmp_path) == [expected] * 2
    assert about_of("b.parquet", parquet(columns), tmp_path) == [expected._replace(date="")] * 2


def test_a_value_that_says_nothing_is_empty(tmp_path: Path):
    data = [
        line(url=7),
        line(url={"no": "text"}),
        line(url="x" * (LONGEST_VALUE + 1)),
        line(url=None),
        line(url="\ud800"),
    ]
    assert [about.url for about in about_of("a.jsonl", "\n".join(data).encode(), tmp_path)] == ["7", "", "", "", "?"]


def test_without_named_fields_nothing_is_said(tmp_path: Path):
    assert about_of("a.jsonl", line().encode(), tmp_path, ReadingSection()) == [NOTHING]


def test_the_documents_table_has_it_and_filters_leave_out_by_it(tmp_path: Path):
    texts = {"kept": {}, "blocked": {"url": "http://ads.example/x"}, "closed": {"license": "none"}}
    (tmp_path / "corpus").mkdir()
    for name, fields in texts.items():
        (tmp_path / "corpus" / f"{name}.jsonl").write_text(line(f"the text {name}", **fields))
    recipe = recipe_for(
        tmp_path / "corpus",
        reading=READING.model_dump(),
        cleaning={"near_duplicates": None, "urls": {"blocked": ("ads.example",)}, "licenses": ("mit",)},
    )
    rows = rows_of(recipe, tmp_path / "durable")
    assert {name: row["removed"] for name, row in rows.items()} == {
        "kept.jsonl": None,
        "blocked.jsonl": "url",
        "closed.jsonl": "license",
    }
    row = rows["kept.jsonl"]
    assert About(row["url"], row["license"], row["date"]) == ORIGIN
